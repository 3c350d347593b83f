package fedhttp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

var (
	bookNow   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	someTerms = Terms{"output-licensing": "redistribution-permitted", "residency": "eu"}
	residency = Terms{"residency": "eu"}
)

const (
	digestA = "sha256:aaaa"
	digestB = "sha256:bbbb"
	digestC = "sha256:cccc"
)

func bookKey(epoch uint64) PolicyKey {
	return PolicyKey{Peer: "b.example", Capability: "summarize", Epoch: epoch}
}

func advertise(t testing.TB, b *PolicyBook, key PolicyKey, digest string) {
	t.Helper()
	if err := b.Advertise(Advertisement{PolicyKey: key, Digest: digest}); err != nil {
		t.Fatalf("Advertise(%v, %q) = %v", key, digest, err)
	}
}

// wantAuthorized fails unless a task with the obligations gets this
// authorization; reason is ReasonNone for one that may go.
func wantAuthorized(t testing.TB, b *PolicyBook, obligations Terms, want Authorization, reason Reason) {
	t.Helper()
	wantAuthorizedAt(t, b, obligations, bookNow, want, reason)
}

func wantAuthorizedAt(t testing.TB, b *PolicyBook, obligations Terms, now time.Time, want Authorization, reason Reason) {
	t.Helper()
	task := Task{Capability: "summarize", Obligations: obligations}
	got, err := b.Authorize("b.example", task, nil, now)
	if got != want || reasonOf(err) != reason {
		t.Fatalf("Authorize = %+v, %v; want %+v, reason %q", got, err, want, reason)
	}
	if (err != nil) != errors.Is(err, ErrPolicyUnresolved) {
		t.Fatalf("error %v does not match ErrPolicyUnresolved", err)
	}
}

func reasonOf(err error) Reason {
	var unresolved *unresolvedError
	if errors.As(err, &unresolved) {
		return unresolved.reason
	}
	return ReasonNone
}

// TestPreflightTable goes through all combinations of what the preflight table
// depends on.
func TestPreflightTable(t *testing.T) {
	t.Parallel()
	type agreed int
	const (
		no agreed = iota
		withoutTerms
		termsSuffice
		termsFallShort
		otherDigest // accepted only
		expired     // negotiated only
	)
	terms := map[agreed]Terms{termsSuffice: someTerms, termsFallShort: {"residency": "us"}}
	for _, obliged := range []bool{false, true} {
		for _, granted := range []bool{false, true} {
			for _, advertised := range []bool{false, true} {
				for _, accepted := range []agreed{no, withoutTerms, termsSuffice, termsFallShort, otherDigest} {
					for _, negotiated := range []agreed{no, withoutTerms, termsSuffice, termsFallShort, expired} {
						name := fmt.Sprintf("obliged=%t,granted=%t,advertised=%t,accepted=%d,negotiated=%d",
							obliged, granted, advertised, accepted, negotiated)
						t.Run(name, func(t *testing.T) {
							t.Parallel()
							var b PolicyBook
							key := bookKey(7)
							if advertised {
								advertise(t, &b, key, digestA)
							}
							switch accepted {
							case no:
							case otherDigest:
								b.Accept(Policy{PolicyKey: key, Digest: digestC})
							default:
								b.Accept(Policy{PolicyKey: key, Digest: digestA, Terms: terms[accepted]})
							}
							switch negotiated {
							case no:
							case expired:
								b.CacheNegotiation(Negotiation{PolicyKey: key, Digest: digestB, ExpiresAt: bookNow})
							default:
								b.CacheNegotiation(Negotiation{
									PolicyKey: key, Digest: digestB, ExpiresAt: bookNow.Add(1), Terms: terms[negotiated],
								})
							}
							task := Task{Capability: key.Capability}
							if obliged {
								task.Obligations = residency
							}
							var defaults Terms
							if granted {
								defaults = someTerms
							}

							var want Authorization
							reason := ReasonNone
							if advertised {
								want = Authorization{Digest: digestA, Epoch: 7}
							}
							agreedWith := func(a agreed) bool { return a == withoutTerms || a == termsSuffice }
							switch {
							case !obliged || granted:
								want.Basis = BasisNoObligation
							case !advertised:
								reason = ReasonNotAdvertised
							case agreedWith(accepted):
								want.Basis = BasisAccepted
							case agreedWith(negotiated):
								want = Authorization{Digest: digestB, Epoch: 7, Basis: BasisNegotiated}
							case accepted == termsFallShort || negotiated == termsFallShort:
								reason = ReasonTermsInsufficient
							default:
								reason = ReasonNotAccepted
							}
							got, err := b.Authorize(key.Peer, task, defaults, bookNow)
							if got != want || reasonOf(err) != reason || errors.Is(err, ErrPolicyUnresolved) != (reason != ReasonNone) {
								t.Errorf("Authorize = %+v, %v; want %+v, reason %q", got, err, want, reason)
							}
						})
					}
				}
			}
		}
	}
}

func TestAuthorizeWithoutCapability(t *testing.T) {
	t.Parallel()
	var b PolicyBook
	advertise(t, &b, bookKey(1), digestA)
	if auth, err := b.Authorize("b.example", Task{}, nil, bookNow); err != nil || auth != (Authorization{Basis: BasisNoObligation}) {
		t.Errorf("no obligations: %+v, %v", auth, err)
	}
	// Also where the defaults grant them: there is no policy that they could be of.
	for _, defaults := range []Terms{nil, someTerms} {
		auth, err := b.Authorize("b.example", Task{Obligations: residency}, defaults, bookNow)
		if !errors.Is(err, ErrTaskRequired) || errors.Is(err, ErrPolicyUnresolved) || auth != (Authorization{}) {
			t.Errorf("obligations: %+v, %v; want ErrTaskRequired", auth, err)
		}
	}
}

func TestDefaultsGrantInPart(t *testing.T) {
	t.Parallel()
	var b PolicyBook
	advertise(t, &b, bookKey(1), digestA)
	for _, defaults := range []Terms{residency, {"residency": "eu", "output-licensing": "none"}, {"residency": "eu", "x": "y"}} {
		auth, err := b.Authorize("b.example", Task{Capability: "summarize", Obligations: someTerms}, defaults, bookNow)
		if reasonOf(err) != ReasonNotAccepted || auth.Basis != BasisNone {
			t.Errorf("defaults %v: %+v, %v", defaults, auth, err)
		}
	}
}

func TestEpochs(t *testing.T) {
	t.Parallel()
	var b PolicyBook
	advertise(t, &b, bookKey(5), digestA)
	b.Accept(Policy{PolicyKey: bookKey(5), Digest: digestA})
	b.CacheNegotiation(Negotiation{PolicyKey: bookKey(5), Digest: digestB, ExpiresAt: bookNow.Add(time.Hour)})
	accepted := Authorization{Digest: digestA, Epoch: 5, Basis: BasisAccepted}
	wantAuthorized(t, &b, residency, accepted, ReasonNone)

	stale := func(newest string) {
		t.Helper()
		err := b.Advertise(Advertisement{PolicyKey: bookKey(4), Digest: digestC})
		if !errors.Is(err, ErrStaleEpoch) {
			t.Fatalf("stale Advertise = %v", err)
		}
		for _, part := range []string{`"b.example"`, `"summarize"`, "epoch 4", "epoch " + newest} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not have %q", err, part)
			}
		}
	}
	stale("5")
	wantAuthorized(t, &b, residency, accepted, ReasonNone)

	// Ignored, for they could match nothing.
	b.Accept(Policy{PolicyKey: bookKey(4), Digest: digestA})
	b.CacheNegotiation(Negotiation{PolicyKey: bookKey(4), Digest: digestA, ExpiresAt: bookNow.Add(time.Hour)})
	if n := len(b.symbols); n != 2 {
		t.Errorf("%d symbols after agreements of an old epoch, want 2", n)
	}

	b.Withdraw("b.example", "summarize")
	wantAuthorized(t, &b, residency, Authorization{}, ReasonNotAdvertised)
	wantAuthorized(t, &b, nil, Authorization{Basis: BasisNoObligation}, ReasonNone)
	stale("5")
	advertise(t, &b, bookKey(5), digestA)
	wantAuthorized(t, &b, residency, accepted, ReasonNone)

	// Another digest of the same epoch, and back.
	advertise(t, &b, bookKey(5), digestC)
	wantAuthorized(t, &b, residency, Authorization{Digest: digestB, Epoch: 5, Basis: BasisNegotiated}, ReasonNone)
	advertise(t, &b, bookKey(5), digestA)
	wantAuthorized(t, &b, residency, accepted, ReasonNone)

	// A newer epoch drops all that was agreed.
	advertise(t, &b, bookKey(6), digestA)
	wantAuthorized(t, &b, residency, Authorization{Digest: digestA, Epoch: 6}, ReasonNotAccepted)
	if n := len(b.symbols); n != 1 {
		t.Errorf("%d symbols after the epoch moved, want 1", n)
	}
	b.Withdraw("b.example", "summarize")
	stale("6")
	b.Withdraw("b.example", "nothing")
	b.Withdraw("nobody", "summarize")
}

func TestAcceptBeforeAdvertise(t *testing.T) {
	t.Parallel()
	var b PolicyBook
	for _, digest := range []string{digestA, digestB} {
		b.Accept(Policy{PolicyKey: bookKey(0), Digest: digest})
		b.Accept(Policy{PolicyKey: bookKey(2), Digest: digest})
	}
	b.CacheNegotiation(Negotiation{PolicyKey: bookKey(1), Digest: digestC, ExpiresAt: bookNow.Add(1)})
	wantAuthorized(t, &b, residency, Authorization{}, ReasonNotAdvertised)
	advertise(t, &b, bookKey(0), digestB)
	wantAuthorized(t, &b, residency, Authorization{Digest: digestB, Epoch: 0, Basis: BasisAccepted}, ReasonNone)
	advertise(t, &b, bookKey(1), digestA)
	wantAuthorized(t, &b, residency, Authorization{Digest: digestC, Epoch: 1, Basis: BasisNegotiated}, ReasonNone)
	advertise(t, &b, bookKey(2), digestA)
	wantAuthorized(t, &b, residency, Authorization{Digest: digestA, Epoch: 2, Basis: BasisAccepted}, ReasonNone)
	advertise(t, &b, bookKey(2), digestB)
	wantAuthorized(t, &b, residency, Authorization{Digest: digestB, Epoch: 2, Basis: BasisAccepted}, ReasonNone)
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	var b PolicyBook
	key := bookKey(3)
	pending := Authorization{Digest: digestA, Epoch: 3}
	later := bookNow.Add(time.Hour)
	advertise(t, &b, key, digestA)
	b.Accept(Policy{PolicyKey: key, Digest: digestA})
	b.Accept(Policy{PolicyKey: bookKey(4), Digest: digestA})
	b.CacheNegotiation(Negotiation{PolicyKey: key, Digest: digestA, ExpiresAt: later})
	b.Revoke(key, digestA)
	wantAuthorized(t, &b, residency, pending, ReasonNotAccepted)

	b.Accept(Policy{PolicyKey: key, Digest: digestA})
	b.CacheNegotiation(Negotiation{PolicyKey: key, Digest: digestB, ExpiresAt: later})
	b.Revoke(key, digestA)
	wantAuthorized(t, &b, residency, Authorization{Digest: digestB, Epoch: 3, Basis: BasisNegotiated}, ReasonNone)
	b.Revoke(key, digestC)
	b.Revoke(PolicyKey{Peer: "nobody", Capability: "summarize"}, digestA)
	b.Revoke(key, digestB)
	wantAuthorized(t, &b, residency, pending, ReasonNotAccepted)

	// That of the other epoch is still there.
	advertise(t, &b, bookKey(4), digestA)
	wantAuthorized(t, &b, residency, Authorization{Digest: digestA, Epoch: 4, Basis: BasisAccepted}, ReasonNone)
}

func TestNegotiationExpiry(t *testing.T) {
	t.Parallel()
	pending := Authorization{Digest: digestA, Epoch: 1}
	going := Authorization{Digest: digestB, Epoch: 1, Basis: BasisNegotiated}
	negotiate := func(b *PolicyBook, at time.Time) {
		b.CacheNegotiation(Negotiation{PolicyKey: bookKey(1), Digest: digestB, ExpiresAt: at})
	}
	for _, at := range []time.Time{
		bookNow, bookNow.Add(123456789), bookNow.In(time.FixedZone("", 3600)), time.Now(),
		time.Date(1500, 1, 1, 0, 0, 0, 1, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
	} {
		var b PolicyBook
		advertise(t, &b, bookKey(1), digestA)
		negotiate(&b, at)
		wantAuthorizedAt(t, &b, residency, at.Add(-1), going, ReasonNone)
		wantAuthorizedAt(t, &b, residency, at, pending, ReasonNotAccepted)
		wantAuthorizedAt(t, &b, residency, at.Add(1), pending, ReasonNotAccepted)
	}

	var b PolicyBook
	advertise(t, &b, bookKey(1), digestA)
	negotiate(&b, time.Time{})
	for _, now := range []time.Time{{}, bookNow} {
		wantAuthorizedAt(t, &b, residency, now, pending, ReasonNotAccepted)
	}
	// The newest replaces, whichever of the two ends later.
	negotiate(&b, bookNow.Add(2))
	wantAuthorized(t, &b, residency, going, ReasonNone)
	negotiate(&b, bookNow)
	wantAuthorized(t, &b, residency, pending, ReasonNotAccepted)
}

func TestNegotiatedUntil(t *testing.T) {
	t.Parallel()
	var b PolicyBook
	want := func(at time.Time) {
		t.Helper()
		if got := b.negotiatedUntil("b.example", "summarize"); !got.Equal(at) || got.IsZero() != at.IsZero() {
			t.Errorf("negotiatedUntil = %v, want %v", got, at)
		}
	}
	want(time.Time{})
	advertise(t, &b, bookKey(1), digestA)
	want(time.Time{})
	b.CacheNegotiation(Negotiation{PolicyKey: bookKey(2), Digest: digestB, ExpiresAt: bookNow.Add(1)})
	want(time.Time{})
	b.CacheNegotiation(Negotiation{PolicyKey: bookKey(1), Digest: digestB, ExpiresAt: bookNow})
	want(bookNow)
	advertise(t, &b, bookKey(2), digestA)
	want(bookNow.Add(1))
	b.Withdraw("b.example", "summarize")
	want(time.Time{})
}

func TestTerms(t *testing.T) {
	t.Parallel()
	accepted := Authorization{Digest: digestA, Epoch: 1, Basis: BasisAccepted}
	pending := Authorization{Digest: digestA, Epoch: 1}
	for _, tt := range []struct {
		name        string
		terms       Terms
		obligations Terms
		want        Authorization
		reason      Reason
	}{
		{"nil says nothing", nil, someTerms, accepted, ReasonNone},
		{"empty grants nothing", Terms{}, residency, pending, ReasonTermsInsufficient},
		{"equal", someTerms, someTerms, accepted, ReasonNone},
		{"more", someTerms, residency, accepted, ReasonNone},
		{"less", residency, someTerms, pending, ReasonTermsInsufficient},
		{"other value", Terms{"residency": "us"}, residency, pending, ReasonTermsInsufficient},
		{"prefix of the value", Terms{"residency": "e"}, residency, pending, ReasonTermsInsufficient},
		{"key as value", Terms{"eu": "residency"}, residency, pending, ReasonTermsInsufficient},
		{"empty value", Terms{"residency": ""}, Terms{"residency": ""}, accepted, ReasonNone},
		{"no value", Terms{"a": "b"}, Terms{"residency": ""}, pending, ReasonTermsInsufficient},
		{"empty key", Terms{"": "x", "y": "z"}, Terms{"": "x"}, accepted, ReasonNone},
		{"long", Terms{"k": strings.Repeat("v", 70_000), "l": "m"}, Terms{"l": "m"}, accepted, ReasonNone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var b PolicyBook
			advertise(t, &b, bookKey(1), digestA)
			b.Accept(Policy{PolicyKey: bookKey(1), Digest: digestA, Terms: tt.terms})
			wantAuthorized(t, &b, tt.obligations, tt.want, tt.reason)
		})
	}
	t.Run("copied and replaced", func(t *testing.T) {
		t.Parallel()
		var b PolicyBook
		advertise(t, &b, bookKey(1), digestA)
		mine := Terms{"residency": "eu"}
		b.Accept(Policy{PolicyKey: bookKey(1), Digest: digestA, Terms: mine})
		mine["residency"] = "us"
		wantAuthorized(t, &b, residency, accepted, ReasonNone)
		b.Accept(Policy{PolicyKey: bookKey(1), Digest: digestA, Terms: mine})
		wantAuthorized(t, &b, residency, pending, ReasonTermsInsufficient)
		b.Accept(Policy{PolicyKey: bookKey(1), Digest: digestA})
		wantAuthorized(t, &b, residency, accepted, ReasonNone)
	})
}

func TestBookRefusesFields(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxPolicyName)
	for _, tt := range []struct {
		peer, capability, digest string
		names                    []string
	}{
		{"", "c", "d", []string{"Peer"}},
		{"p", "", "d", []string{"Capability"}},
		{"p", "c", "", []string{"Digest"}},
		{"", "", "", []string{"Peer", "Capability", "Digest"}},
		{long + "x", "c", "d", []string{"Peer"}},
		{"p", long + "x", "d", []string{"Capability"}},
		{long, long, long + long, nil},
	} {
		var b PolicyBook
		key := PolicyKey{Peer: tt.peer, Capability: tt.capability, Epoch: 1}
		b.Accept(Policy{PolicyKey: key, Digest: tt.digest})
		b.CacheNegotiation(Negotiation{PolicyKey: key, Digest: tt.digest, ExpiresAt: bookNow.Add(1)})
		err := b.Advertise(Advertisement{PolicyKey: key, Digest: tt.digest})
		if (err != nil) != (tt.names != nil) {
			t.Fatalf("Advertise(%.9q, %.9q, %.9q) = %v", tt.peer, tt.capability, tt.digest, err)
		}
		for _, name := range tt.names {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%q does not name %s", err, name)
			}
		}
		if tt.names != nil && len(b.symbols) > 0 {
			t.Errorf("%v: the book has kept something", tt.names)
		}
		auth, err := b.Authorize(tt.peer, Task{Capability: tt.capability, Obligations: residency}, nil, bookNow)
		if (err == nil) != (tt.names == nil) {
			t.Errorf("Authorize = %v, %v", auth, err)
		}
	}
}

func TestBasisText(t *testing.T) {
	t.Parallel()
	for basis, want := range map[Basis]string{
		BasisNone: "", BasisNoObligation: "no_obligation", BasisAccepted: "accepted", BasisNegotiated: "negotiated",
	} {
		text, err := basis.MarshalText()
		if err != nil || string(text) != want || basis.String() != want {
			t.Errorf("Basis(%d) is %q, %q, %v; want %q", basis, basis, text, err, want)
		}
		var back Basis
		if err := back.UnmarshalText(text); err != nil || back != basis {
			t.Errorf("UnmarshalText(%q) = %v, %v", text, back, err)
		}
	}
	if len(basisNames) != int(BasisNegotiated)+1 {
		t.Error("basisNames and the constants differ in number")
	}
	if _, err := Basis(9).MarshalText(); err == nil {
		t.Error("Basis(9) marshals")
	}
	if err := new(Basis).UnmarshalText([]byte("granted")); err == nil {
		t.Error(`"granted" unmarshals`)
	}
}
