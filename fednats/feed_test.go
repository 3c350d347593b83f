package fednats

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

func TestFeed(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	writer, reader := open(t, s, Config{}), open(t, s, Config{})
	book := feed1(t, reader)
	ctx := t.Context()
	wantBasis(t, book, key(4), "not_advertised")

	must(t, writer.Advertise(ctx, fedhttp.Advertisement{PolicyKey: key(4), Digest: "sha256:a"}))
	wantBasis(t, book, key(4), "not_accepted")
	must(t, writer.Accept(ctx, fedhttp.Policy{PolicyKey: key(4), Digest: "sha256:a"}))
	wantBasis(t, book, key(4), "accepted sha256:a")

	// Terms that fall short, of the same policy; and none at all are not no terms.
	must(t, writer.Accept(ctx, fedhttp.Policy{PolicyKey: key(4), Digest: "sha256:a", Terms: fedhttp.Terms{}}))
	wantBasis(t, book, key(4), "terms_insufficient")
	must(t, writer.Accept(ctx, fedhttp.Policy{PolicyKey: key(4), Digest: "sha256:a", Terms: residency}))
	wantBasis(t, book, key(4), "accepted sha256:a")

	must(t, writer.Revoke(ctx, key(4), "sha256:a"))
	wantBasis(t, book, key(4), "not_accepted")
	must(t, writer.CacheNegotiation(ctx, fedhttp.Negotiation{PolicyKey: key(4), Digest: "sha256:n", ExpiresAt: time.Now().Add(time.Hour)}))
	wantBasis(t, book, key(4), "negotiated sha256:n")

	// An older epoch is refused, a newer one drops what was agreed.
	err := writer.Advertise(ctx, fedhttp.Advertisement{PolicyKey: key(3), Digest: "sha256:old"})
	if !errors.Is(err, fedhttp.ErrStaleEpoch) {
		t.Fatalf("an older epoch: %v", err)
	}
	must(t, writer.Advertise(ctx, fedhttp.Advertisement{PolicyKey: key(5), Digest: "sha256:n"}))
	wantBasis(t, book, key(5), "not_accepted")

	must(t, writer.Accept(ctx, fedhttp.Policy{PolicyKey: key(5), Digest: "sha256:n"}))
	wantBasis(t, book, key(5), "accepted sha256:n")
	must(t, writer.Withdraw(ctx, "org-b", "summarize"))
	wantBasis(t, book, key(5), "not_advertised")

	// A replica that starts now knows the same: nothing is advertised, and no older
	// epoch may be.
	late := feed1(t, open(t, s, Config{}))
	wantBasis(t, late, key(5), "not_advertised")
	for _, b := range []*fedhttp.PolicyBook{book, late} {
		if err := b.Advertise(fedhttp.Advertisement{PolicyKey: key(4), Digest: "sha256:a"}); !errors.Is(err, fedhttp.ErrStaleEpoch) {
			t.Errorf("the epoch is forgotten: %v", err)
		}
	}
	must(t, writer.Advertise(ctx, fedhttp.Advertisement{PolicyKey: key(5), Digest: "sha256:n"}))
	wantBasis(t, book, key(5), "accepted sha256:n")
	wantBasis(t, late, key(5), "accepted sha256:n")
	if n := reader.Status().Refused; n != 0 {
		t.Errorf("%d values refused", n)
	}
}

// TestFeedApart: an acceptance and a negotiation of one digest have a key each. A
// revocation ends both; the deletion of one leaves the other.
func TestFeedApart(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{})
	book := feed1(t, f)
	bucket, err := f.bucket(t.Context(), f.names.policies())
	must(t, err)
	must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(4), Digest: "sha256:a"}))
	both := func() {
		t.Helper()
		must(t, f.CacheNegotiation(t.Context(), fedhttp.Negotiation{PolicyKey: key(4), Digest: "sha256:a", ExpiresAt: time.Now().Add(time.Hour)}))
		must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(4), Digest: "sha256:a"}))
		wantBasis(t, book, key(4), "accepted sha256:a")
	}
	v := newPolicyValue(key(4), "sha256:a", nil)
	both()
	must(t, bucket.Delete(t.Context(), v.name(kindAccepted)))
	wantBasis(t, book, key(4), "negotiated sha256:a")
	must(t, bucket.Delete(t.Context(), v.name(kindNegotiated)))
	wantBasis(t, book, key(4), "not_accepted")
	both()
	must(t, bucket.Delete(t.Context(), v.name(kindNegotiated)))
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(4), Digest: "sha256:a", Terms: fedhttp.Terms{}}))
	wantBasis(t, book, key(4), "terms_insufficient")
	both()
	must(t, f.Revoke(t.Context(), key(4), "sha256:a"))
	wantBasis(t, book, key(4), "not_accepted")
	both()
	must(t, f.CacheNegotiation(t.Context(), fedhttp.Negotiation{PolicyKey: key(4), Digest: "sha256:n", ExpiresAt: time.Now().Add(time.Hour)}))
	must(t, f.Revoke(t.Context(), key(4), "sha256:a"))
	wantBasis(t, book, key(4), "negotiated sha256:n")
	if _, err := bucket.Get(t.Context(), v.name(kindNegotiated)); err != nil {
		t.Errorf("a negotiation of another digest is revoked: %v", err)
	}
}

// TestFeedArbitraryNames: what no key of NATS can have, and what only differs where
// a careless encoding does not.
func TestFeedArbitraryNames(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{})
	book := feed1(t, f)
	names := []string{
		"a", "A", "=a", "/a", "a.b", "a b", "a*", ">", "ä", "\xff\xfe", "a\tb", " a", strings.Repeat("x", 96),
		strings.Repeat("x", 97), strings.Repeat("x", 1000), strings.Repeat("x", 999) + "y", strings.Repeat("\xff", 1000),
		"\u2028",
	}
	for n, name := range names {
		k := fedhttp.PolicyKey{Peer: name, Capability: names[len(names)-1-n], Epoch: uint64(n)}
		digest := "sha256:" + name
		if len(digest) > 1000 {
			digest = digest[:1000]
		}
		must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: k, Digest: digest}))
		must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: k, Digest: digest}))
		wantBasis(t, book, k, "accepted "+digest)
		if n%2 == 0 {
			must(t, f.Revoke(t.Context(), k, digest))
			wantBasis(t, book, k, "not_accepted")
		}
	}
	for n, name := range names {
		k := fedhttp.PolicyKey{Peer: name, Capability: names[len(names)-1-n]}
		if got, accepted := basis(book, k), n%2 == 1; strings.HasPrefix(got, "accepted") != accepted {
			t.Errorf("%q: %s", name, got)
		}
	}
	if n := f.Status().Refused; n != 0 {
		t.Errorf("%d values refused", n)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, s := range []string{
		"", "a", "a-b", "a_b", "-a", "_a", "=", "=YQ", "/", "a/b", "a.b", "a*", "a>", " ", "\x00", "\xff", "ä", "YQ",
		strings.Repeat("a", 96), strings.Repeat("a", 97), "/" + strings.Repeat("a", 43),
	} {
		tok := token(s)
		if other, ok := seen[tok]; ok {
			t.Errorf("%q and %q are both %q", s, other, tok)
		}
		seen[tok] = s
		if tok == "" || len(tok) > 140 || strings.ContainsAny(tok, ".*> \t\r\n") {
			t.Errorf("%q is no token of NATS, %q", tok, s)
		}
		back, ok := untoken(tok)
		if long := len(s) > maxPlain; ok == long || ok && back != s {
			t.Errorf("%q is %q, and back %q, %v", s, tok, back, ok)
		}
	}
	for _, tok := range []string{"", "=YQ", "=YQ==", "=\xff", "a b", "/abc", strings.Repeat("a", 97)} {
		if s, ok := untoken(tok); ok {
			t.Errorf("%q is taken for %q, whose token is %q", tok, s, token(s))
		}
	}
}

// TestDecode: a reader that is used again has nothing left of what came before.
func TestDecode(t *testing.T) {
	t.Parallel()
	type value struct {
		A string `json:"a"`
	}
	for n, c := range []struct{ text, want string }{
		{`{"a":"1"}`, "1"}, {`{"a":"2"}  `, "2"}, {`  {"a":"3"}`, "3"}, {`{}`, ""}, {`{"a":"4"}{"a":"5"}`, "error"},
		{`{"a":"6"}`, "6"}, {`{"a":"7"`, "error"}, {`"b"}`, "error"}, {``, "error"}, {`{"b":""}`, "error"}, {`{"a":"8"}x`, "error"},
		{`null`, ""}, {`{"a":"9"}` + strings.Repeat(" ", maxValue), "error"}, {`{"a":"10"}`, "10"},
	} {
		var v value
		got := ""
		if err := decode([]byte(c.text), &v); err != nil {
			got = "error"
		} else {
			got = v.A
		}
		if got != c.want {
			t.Errorf("value %d: %q, want %q", n, got, c.want)
		}
	}
}
