package fednats

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fedhttp/fedhttp"
)

// behind is a bucket as a server sees it that has not applied the last word on a key:
// the first read of each finds the word before it.
type behind struct {
	nats.JetStreamManager
	before map[string]*nats.RawStreamMsg // by subject; nil: nothing
}

func (b *behind) GetLastMsg(stream, subject string, opts ...nats.JSOpt) (*nats.RawStreamMsg, error) {
	msg, stale := b.before[subject]
	switch delete(b.before, subject); {
	case !stale:
		return b.JetStreamManager.GetLastMsg(stream, subject, opts...)
	case msg == nil:
		return nil, nats.ErrMsgNotFound
	}
	return msg, nil
}

// TestReadBehind: a server that answers a read without having the last word yet makes
// nobody leave something in force that was taken back.
func TestReadBehind(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	f := open(t, newServer(t, t.TempDir()), Config{})
	advertised := fedhttp.Advertisement{PolicyKey: key(1), Digest: "sha256:a"}
	policy := fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:a"}
	negotiated := fedhttp.Negotiation{PolicyKey: key(1), Digest: "sha256:a", ExpiresAt: time.Now().Add(time.Hour)}
	other := negotiated
	other.Digest = "sha256:other"
	v := newPolicyValue(key(1), "sha256:a", nil)
	subject := func(kind string) string { return bucketSubject(f.names.policies()) + v.name(kind) }
	current := f.records
	// read is what there is of a kind now, for a read that will be behind.
	read := func(kind string) *nats.RawStreamMsg {
		msg, err := current.GetLastMsg(bucketStream(f.names.policies()), subject(kind))
		must(t, err)
		return msg
	}
	revoke := func() error { return f.Revoke(ctx, key(1), "sha256:a") }

	for _, c := range []struct {
		name, kind string
		before     func() *nats.RawStreamMsg
		write, do  func() error
		gone       func(*Policies) bool
	}{
		{
			"revoked, before the acceptance was seen", kindAccepted, nil,
			func() error { return f.Accept(ctx, policy) }, revoke,
			func(p *Policies) bool { return len(p.Accepted) == 0 },
		},
		{
			"revoked, before the negotiation was seen", kindNegotiated, nil,
			func() error { return f.CacheNegotiation(ctx, negotiated) }, revoke,
			func(p *Policies) bool { return len(p.Negotiated) == 0 },
		},
		{
			"revoked, while another negotiation was seen", kindNegotiated, func() *nats.RawStreamMsg {
				must(t, f.CacheNegotiation(ctx, other))
				return read(kindNegotiated)
			},
			func() error { return f.CacheNegotiation(ctx, negotiated) }, revoke,
			func(p *Policies) bool { return len(p.Negotiated) == 0 },
		},
		{
			"withdrawn, before the advertisement was seen", kindAdvertised, nil,
			func() error { return f.Advertise(ctx, advertised) },
			func() error { return f.Withdraw(ctx, "org-b", "summarize") },
			func(p *Policies) bool { return p.Advertised[0].Withdrawn },
		},
		{
			"withdrawn, while an earlier withdrawal was seen", kindAdvertised, func() *nats.RawStreamMsg {
				return read(kindAdvertised)
			},
			func() error { return f.Advertise(ctx, advertised) },
			func() error { return f.Withdraw(ctx, "org-b", "summarize") },
			func(p *Policies) bool { return p.Advertised[0].Withdrawn },
		},
	} {
		var before *nats.RawStreamMsg
		if c.before != nil {
			before = c.before()
		}
		must(t, c.write())
		f.records = &behind{current, map[string]*nats.RawStreamMsg{subject(c.kind): before}}
		must(t, c.do())
		p, err := f.Policies(ctx)
		must(t, err)
		if !c.gone(p) {
			t.Errorf("%s: %+v", c.name, p)
		}
	}

	// What is of another digest stays, and nothing becomes of what never was.
	must(t, f.CacheNegotiation(ctx, other))
	must(t, revoke())
	must(t, f.Withdraw(ctx, "org-c", "summarize"))
	p, err := f.Policies(ctx)
	must(t, err)
	if len(p.Negotiated) != 1 || p.Negotiated[0].Digest != "sha256:other" || len(p.Advertised) != 1 {
		t.Errorf("%+v", p)
	}
}
