package fednats

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fedhttp/fedhttp"
)

// TestPolicies: what is listed is what Feed makes of the bucket.
func TestPolicies(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{})
	if p, err := f.Policies(t.Context()); err != nil || p.Advertised != nil || p.Accepted != nil || p.Negotiated != nil {
		t.Fatalf("%+v, %v", p, err)
	}
	other := func(capability string, epoch uint64) fedhttp.PolicyKey {
		return fedhttp.PolicyKey{Peer: "org-c", Capability: capability, Epoch: epoch}
	}
	expires := time.Now().Add(time.Hour).UTC().Round(0)
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:old"}))
	must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(1), Digest: "sha256:old"}))
	must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(2), Digest: "sha256:a"}))
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(2), Digest: "sha256:a", Terms: residency}))
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(2), Digest: "sha256:revoked"}))
	must(t, f.Revoke(t.Context(), key(2), "sha256:revoked"))
	must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: other("negotiated", 3), Digest: "sha256:x"}))
	must(t, f.CacheNegotiation(t.Context(), fedhttp.Negotiation{PolicyKey: other("negotiated", 3), Digest: "sha256:n", ExpiresAt: expires}))
	must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: other("withdrawn", 7), Digest: "sha256:w"}))
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: other("withdrawn", 7), Digest: "sha256:w"}))
	must(t, f.Withdraw(t.Context(), "org-c", "withdrawn"))
	must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: other("overwritten", 1), Digest: "sha256:o"}))
	bucket, err := f.bucket(t.Context(), f.names.policies())
	must(t, err)
	for _, k := range []string{"adv.org-c.overwritten", "acc.org-b.summarize.2.evil", "nonsense"} {
		_, err := bucket.PutString(t.Context(), k, `{"peer":"org-b","capability":"summarize","epoch":2,"digest":"sha256:evil"}`)
		must(t, err)
	}
	refused := f.Status().Refused

	p, err := f.Policies(t.Context())
	must(t, err)
	if n := f.Status().Refused - refused; n != 3 {
		t.Errorf("%d values were refused, want 3", n)
	}
	var got []string
	for _, a := range p.Advertised {
		got = append(got, fmt.Sprintf("advertised %v withdrawn=%t", a.PolicyKey, a.Withdrawn))
	}
	for _, a := range p.Accepted {
		got = append(got, fmt.Sprintf("accepted %v %s %#v", a.PolicyKey, a.Digest, map[string]string(a.Terms)))
	}
	for _, n := range p.Negotiated {
		got = append(got, fmt.Sprintf("negotiated %v %s until=%t", n.PolicyKey, n.Digest, n.ExpiresAt.Equal(expires)))
	}
	want := []string{
		"advertised {org-b summarize 2} withdrawn=false", "advertised {org-c negotiated 3} withdrawn=false",
		"advertised {org-c withdrawn 7} withdrawn=true",
		"accepted {org-b summarize 1} sha256:old map[string]string(nil)",
		`accepted {org-b summarize 2} sha256:a map[string]string{"residency":"eu"}`,
		"accepted {org-c withdrawn 7} sha256:w map[string]string(nil)",
		"negotiated {org-c negotiated 3} sha256:n until=true",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}

	if at := p.Advertised[0].StoredAt; at.IsZero() || at.After(p.Accepted[1].StoredAt) {
		t.Errorf("advertised %v, and accepted later, %v", at, p.Accepted[1].StoredAt)
	}

	fed, listed := feed1(t, f), p.Book()
	for _, k := range []fedhttp.PolicyKey{key(2), other("negotiated", 3), other("withdrawn", 7), other("overwritten", 1)} {
		if got, want := basis(listed, k), basis(fed, k); got != want {
			t.Errorf("%v: %s, and for a book that is fed %s", k, got, want)
		}
	}
	for _, book := range []*fedhttp.PolicyBook{fed, listed} { // the epoch of what was withdrawn is known
		if err := book.Advertise(fedhttp.Advertisement{PolicyKey: other("withdrawn", 6), Digest: "d"}); !errors.Is(err, fedhttp.ErrStaleEpoch) {
			t.Errorf("%v", err)
		}
	}
	if _, err := open(t, s, Config{Parts: PartDenials}).Policies(t.Context()); err == nil {
		t.Error("policies without their part")
	}
}

// TestPoliciesMeanwhile: what changes while it is read counts as it was last.
func TestPoliciesMeanwhile(t *testing.T) {
	t.Parallel()
	refused := 0
	r := policyReader{refuse: func(string, error) { refused++ }, records: map[string]policyRecord{}}
	at := time.Now()
	revision := uint64(0)
	apply := func(digest string, value []byte) {
		revision++
		v := newPolicyValue(key(1), digest, nil)
		if value == nil {
			value, _ = encode(v)
		}
		r.apply(entry{key: v.name(kindAccepted), value: value, revision: revision, deleted: len(value) == 0}, at)
	}
	for _, digest := range []string{"again", "deleted", "spoilt", "kept"} {
		apply(digest, nil)
	}
	apply("deleted", []byte{})
	apply("spoilt", []byte("{"))
	apply("again", nil)
	got := r.list().Accepted
	if len(got) != 2 || got[0].Digest != "kept" || got[1].Digest != "again" || refused != 1 {
		t.Errorf("%+v, %d refused", got, refused)
	}
}

func TestUnresolvedList(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{})
	for epoch := range uint64(2) {
		f.Coordinator().PolicyUnresolved(t.Context(), unresolved(epoch))
		eventually(t, "published", func() bool { return f.Status().Unresolved.Published == epoch+1 })
	}
	_, err := f.js.Publish(t.Context(), f.names.unresolvedSubject()+"org-b.x", []byte("{"))
	must(t, err)
	got, err := f.Unresolved(t.Context())
	must(t, err)
	if len(got) != 2 || got[0].Epoch != 0 || got[1].Epoch != 1 || got[1].Obligations["residency"] != "eu" || f.Status().Refused != 1 {
		t.Errorf("%+v, %d refused", got, f.Status().Refused)
	}
	if _, err := open(t, s, Config{Parts: PartDenials}).Unresolved(t.Context()); err == nil {
		t.Error("unresolved policies without their part")
	}
}

func TestAllEscalations(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{Name: "a"})
	for i := range uint64(2) {
		f.Escalator().Escalate(t.Context(), escalation(fmt.Sprint(i)))
		eventually(t, "published", func() bool { return f.Status().Escalations.Published == i+1 })
	}
	before, err := f.AllEscalations(t.Context())
	must(t, err)
	must(t, f.AckEscalation(t.Context(), before[0].ID, "alice"))
	all, err := f.AllEscalations(t.Context())
	must(t, err)
	if len(all) != 2 || all[0].ID != before[1].ID || all[1].ID != before[0].ID || all[1].AckedBy != "alice" || all[0].AckedBy != "" {
		t.Errorf("%+v", all)
	}
	// One that is acknowledged while it is read comes twice.
	stream, err := f.js.Stream(t.Context(), f.names.escalations())
	must(t, err)
	cfg := stream.CachedInfo().Config
	cfg.MaxMsgsPerSubject = 2
	_, err = f.js.UpdateStream(t.Context(), cfg)
	must(t, err)
	must(t, f.AckEscalation(t.Context(), before[1].ID, "bob"))
	if n := messages(t, f, f.names.escalations()); n != 3 {
		t.Fatalf("%d messages, want 3", n)
	}
	all, err = f.AllEscalations(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != before[1].ID || all[0].AckedBy != "bob" {
		t.Errorf("%+v, %v", all, err)
	}
	one, err := f.Escalation(t.Context(), before[0].ID)
	if err != nil || one.ID != before[0].ID || one.AckedBy != "alice" || one.From != "a" || one.Decision.TaskID != "0" || one.StoredAt.IsZero() {
		t.Errorf("%+v, %v", one, err)
	}
	for _, id := range []string{"", "org-b.none", "org-b.*", ">", "a..b", ".a", "a b", "a\r\nb"} {
		if _, err := f.Escalation(t.Context(), id); !errors.Is(err, ErrNoEscalation) {
			t.Errorf("%q: %v", id, err)
		}
		if err := f.AckEscalation(t.Context(), id, "alice"); !errors.Is(err, ErrNoEscalation) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := f.AckEscalation(t.Context(), before[1].ID, ""); err == nil {
		t.Error("nobody has acknowledged")
	}
}

// TestNoSetup: who only looks creates nothing.
func TestNoSetup(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	for _, parts := range []Parts{PartPolicies, PartEscalations} {
		if f, err := Open(t.Context(), Config{Conn: connect(t, s), Parts: parts, NoSetup: true}); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("%v, %v", f, err)
		}
	}
	js, err := jetstream.New(connect(t, s))
	must(t, err)
	for name := range js.StreamNames(t.Context()).Name() {
		t.Errorf("there is a stream %s", name)
	}
	open(t, s, Config{})
	open(t, s, Config{NoSetup: true})
}
