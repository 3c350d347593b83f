package fedhttp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// The helpers of the tests in virtual time begin with vt.

// vtBubble runs test in a bubble of virtual time. The bubble is the leak check
// as well: it panics where a goroutine is blocked for good at its end.
func vtBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// vtRig is a Transport in front of a peer that counts, inside a bubble.
type vtRig struct {
	t      *testing.T
	begin  time.Time
	peer   *fedtest.Peer
	base   *http.Transport
	book   *PolicyBook
	tr     *Transport
	client *http.Client
	told   recorder[Unresolved]
	raised recorder[Escalation]
}

func newRig(t *testing.T, server fedtest.Config, change func(*Config, *Peer)) *vtRig {
	t.Helper()
	r := &vtRig{t: t, begin: time.Now(), peer: fedtest.NewUnstartedPeer(server), book: &PolicyBook{}}
	r.base = r.peer.Transport()
	r.base.DisableKeepAlives = true // so that net/http sends nothing again on its own account
	cfg := Config{
		Base: r.base, Book: r.book, Logger: slog.New(slog.DiscardHandler),
		Coordinator: coordinatorFunc(func(_ context.Context, u Unresolved) { r.told.add(u) }),
		Escalator:   escalatorFunc(func(_ context.Context, e Escalation) { r.raised.add(e) }),
	}
	p := Peer{ID: "b", Origins: []string{r.peer.URL}}
	if change != nil {
		change(&cfg, &p)
	}
	cfg.Peers = append([]Peer{p}, cfg.Peers...)
	tr, err := NewTransport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.tr, r.client = tr, &http.Client{Transport: tr}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		r.base.CloseIdleConnections()
		r.peer.Close()
	})
	return r
}

// source is the peer's own anchor, without the way over HTTP.
func (r *vtRig) source(context.Context, string) (Anchor, error) {
	a := r.peer.Anchor()
	return Anchor{Version: a.Version, IssuedAt: a.IssuedAt, ExpiresAt: a.ExpiresAt}, nil
}

func (r *vtRig) state() *peerState { return r.tr.states["b"] }

func (r *vtRig) status() PeerStatus { return r.tr.Status()[0] }

// elapsed is the virtual time since the rig was made.
func (r *vtRig) elapsed() time.Duration { return time.Since(r.begin) }

// vtResult is what a call came to.
type vtResult struct {
	resp *http.Response
	body string
	err  error
	d    Decision
	at   time.Duration // since the rig was made
}

// get sends a GET for the task through an http.Client, as a user would.
func (r *vtRig) get(ctx context.Context, task Task) vtResult {
	r.t.Helper()
	return r.do(r.request(ctx, http.MethodGet, task, nil))
}

func (r *vtRig) request(ctx context.Context, method string, task Task, body io.Reader) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ContextWithTask(ctx, task), method, r.peer.URL+"/"+task.Capability, body)
	if err != nil {
		r.t.Error(err)
	}
	req.Header.Set(fedtest.HeaderTask, task.ID)
	return req
}

func (r *vtRig) do(req *http.Request) vtResult {
	r.t.Helper()
	resp, err := r.client.Do(req)
	res := vtResult{resp: resp, err: err, at: r.elapsed()}
	if err != nil {
		var fault *Error
		if !errors.As(err, &fault) {
			r.t.Errorf("%v is no *Error", err)
			return res
		}
		res.d = fault.Decision
		return res
	}
	d, ok := DecisionFromResponse(resp)
	if !ok {
		r.t.Error("a response without a decision")
	}
	res.d = d
	body, err := io.ReadAll(resp.Body)
	res.body = string(body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		r.t.Errorf("body: %v", err)
	}
	return res
}

func vtKey(capability string, epoch uint64) PolicyKey {
	return PolicyKey{Peer: "b", Capability: capability, Epoch: epoch}
}

func (r *vtRig) advertise(capability string, epoch uint64, digest string) {
	r.t.Helper()
	if err := r.book.Advertise(Advertisement{PolicyKey: vtKey(capability, epoch), Digest: digest}); err != nil {
		r.t.Errorf("Advertise: %v", err)
	}
}

func (r *vtRig) accept(capability string, epoch uint64, digest string) {
	r.book.Accept(Policy{PolicyKey: vtKey(capability, epoch), Digest: digest})
}

// vtTask demands something of the policy for capability "cap".
func vtTask(id string) Task {
	return Task{ID: id, Capability: "cap", Obligations: Terms{"residency": "eu"}}
}

func vtWant[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// vtUnsent checks an unresolved policy: the sentinel, the reason, and that
// nothing about it looks like a failure of a transport.
func (r *vtRig) vtUnsent(res vtResult, id string, reason Reason) {
	r.t.Helper()
	if !errors.Is(res.err, ErrPolicyUnresolved) {
		r.t.Errorf("task %s: %v is not ErrPolicyUnresolved", id, res.err)
	}
	for _, other := range []error{ErrRejected, ErrRouting, ErrBoundary, ErrPeerUnavailable} {
		if errors.Is(res.err, other) {
			r.t.Errorf("task %s: %v is %v as well", id, res.err, other)
		}
	}
	vtWant(r.t, id+": outcome", res.d.Outcome, OutcomePolicyUnresolved)
	vtWant(r.t, id+": reason", res.d.Reason, reason)
	vtWant(r.t, id+": attempts", res.d.Attempts, 0)
	vtWant(r.t, id+": delivery", res.d.Delivery, DeliveryNone)
	vtWant(r.t, id+": sends", r.peer.Sends(id), 0)
	vtNoTimeout(r.t, id, res.err)
}

// vtNoTimeout asks in the ways in which callers of an http.Client find out that
// a request timed out on the wire.
func vtNoTimeout(t *testing.T, id string, err error) {
	t.Helper()
	var asNet interface {
		error
		Timeout() bool
		Temporary() bool
	}
	if errors.As(err, &asNet) && (asNet.Timeout() || asNet.Temporary()) {
		t.Errorf("%s: %v looks like a network timeout", id, err)
	}
	var fault *Error
	if errors.As(err, &fault) && fault.Timeout() {
		t.Errorf("%s: %v says that it timed out", id, err)
	}
}

func TestPreflight(t *testing.T) {
	eu := Terms{"residency": "eu"}
	long := time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	type world struct {
		r *vtRig
		*PolicyBook
	}
	rows := []struct {
		name     string
		defaults Terms
		know     func(w world)
		task     Task
		outcome  Outcome
		reason   Reason
		digest   string
		epoch    uint64
		basis    Basis
	}{
		{name: "no obligations, nothing known", task: Task{Capability: "cap"}, basis: BasisNoObligation},
		{name: "no task at all", basis: BasisNoObligation},
		{name: "granted by default terms", defaults: Terms{"residency": "eu", "x": "y"}, task: vtTask(""), basis: BasisNoObligation},
		{
			name: "default terms grant another value", defaults: Terms{"residency": "us"}, task: vtTask(""),
			outcome: OutcomePolicyUnresolved, reason: ReasonNotAdvertised,
		},
		{name: "nothing advertised", task: vtTask(""), outcome: OutcomePolicyUnresolved, reason: ReasonNotAdvertised},
		{
			name: "another capability is accepted", task: vtTask(""), outcome: OutcomePolicyUnresolved, reason: ReasonNotAdvertised,
			know: func(w world) { w.r.advertise("other", 1, "d1"); w.r.accept("other", 1, "d1") },
		},
		{
			name: "accepted without being advertised", task: vtTask(""), outcome: OutcomePolicyUnresolved, reason: ReasonNotAdvertised,
			know: func(w world) { w.r.accept("cap", 1, "d1") },
		},
		{
			name: "advertised only", task: vtTask(""), outcome: OutcomePolicyUnresolved, reason: ReasonNotAccepted, digest: "d1", epoch: 1,
			know: func(w world) { w.r.advertise("cap", 1, "d1") },
		},
		{
			name: "accepted", task: vtTask(""), digest: "d1", epoch: 3, basis: BasisAccepted,
			know: func(w world) { w.r.advertise("cap", 3, "d1"); w.r.accept("cap", 3, "d1") },
		},
		{
			name: "accepted for another epoch", task: vtTask(""), outcome: OutcomePolicyUnresolved, reason: ReasonNotAccepted, digest: "d1", epoch: 4,
			know: func(w world) { w.r.advertise("cap", 4, "d1"); w.r.accept("cap", 3, "d1") },
		},
		{
			name: "another digest is accepted", task: vtTask(""), outcome: OutcomePolicyUnresolved, reason: ReasonNotAccepted, digest: "d2", epoch: 3,
			know: func(w world) { w.r.advertise("cap", 3, "d2"); w.r.accept("cap", 3, "d1") },
		},
		{
			name: "accepted and revoked", task: vtTask(""), outcome: OutcomePolicyUnresolved, reason: ReasonNotAccepted, digest: "d1", epoch: 3,
			know: func(w world) {
				w.r.advertise("cap", 3, "d1")
				w.r.accept("cap", 3, "d1")
				w.Revoke(vtKey("cap", 3), "d1")
			},
		},
		{
			name: "withdrawn", task: vtTask(""), outcome: OutcomePolicyUnresolved, reason: ReasonNotAdvertised,
			know: func(w world) { w.r.advertise("cap", 3, "d1"); w.r.accept("cap", 3, "d1"); w.Withdraw("b", "cap") },
		},
		{
			name: "negotiated", task: vtTask(""), digest: "n1", epoch: 3, basis: BasisNegotiated,
			know: func(w world) {
				w.r.advertise("cap", 3, "d1")
				w.CacheNegotiation(Negotiation{PolicyKey: vtKey("cap", 3), Digest: "n1", ExpiresAt: long})
			},
		},
		{
			name: "accepted comes before negotiated", task: vtTask(""), digest: "d1", epoch: 3, basis: BasisAccepted,
			know: func(w world) {
				w.r.advertise("cap", 3, "d1")
				w.CacheNegotiation(Negotiation{PolicyKey: vtKey("cap", 3), Digest: "n1", ExpiresAt: long})
				w.r.accept("cap", 3, "d1")
			},
		},
		{
			name: "a nanosecond before the negotiation expires", task: vtTask(""), digest: "d1", epoch: 3, basis: BasisNegotiated,
			know: func(w world) {
				w.r.advertise("cap", 3, "d1")
				w.CacheNegotiation(Negotiation{PolicyKey: vtKey("cap", 3), Digest: "d1", ExpiresAt: time.Now().Add(1)})
			},
		},
		{
			name: "the negotiation expires now", task: vtTask(""), outcome: OutcomePolicyUnresolved, reason: ReasonNotAccepted, digest: "d1", epoch: 3,
			know: func(w world) {
				w.r.advertise("cap", 3, "d1")
				w.CacheNegotiation(Negotiation{PolicyKey: vtKey("cap", 3), Digest: "d1", ExpiresAt: time.Now()})
			},
		},
		{
			name: "terms fall short", task: vtTask(""), outcome: OutcomePolicyUnresolved, reason: ReasonTermsInsufficient, digest: "d1", epoch: 3,
			know: func(w world) {
				w.r.advertise("cap", 3, "d1")
				w.Accept(Policy{PolicyKey: vtKey("cap", 3), Digest: "d1", Terms: Terms{"residency": "us"}})
			},
		},
		{
			name: "terms grant", task: vtTask(""), digest: "d1", epoch: 3, basis: BasisAccepted,
			know: func(w world) {
				w.r.advertise("cap", 3, "d1")
				w.Accept(Policy{PolicyKey: vtKey("cap", 3), Digest: "d1", Terms: eu})
			},
		},
		{
			name: "a late older epoch", task: vtTask(""), digest: "d5", epoch: 5, basis: BasisAccepted,
			know: func(w world) {
				w.r.advertise("cap", 5, "d5")
				w.r.accept("cap", 5, "d5")
				if err := w.Advertise(Advertisement{PolicyKey: vtKey("cap", 4), Digest: "d4"}); !errors.Is(err, ErrStaleEpoch) {
					w.r.t.Errorf("an older epoch: %v", err)
				}
			},
		},
		{name: "obligations without a capability", task: Task{Obligations: eu}, outcome: OutcomeTaskRequired, reason: ReasonNoCapability},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := newRig(t, fedtest.Config{}, func(_ *Config, p *Peer) {
					p.Hold.Max, p.DefaultTerms, p.Receipt = -1, row.defaults, IgnoreReceipt
				})
				if row.know != nil {
					row.know(world{r, r.book})
				}
				task := row.task
				task.ID = "t"
				res := r.get(t.Context(), task)
				vtWant(t, "outcome", res.d.Outcome, row.outcome)
				vtWant(t, "reason", res.d.Reason, row.reason)
				vtWant(t, "basis", res.d.Basis, row.basis)
				if row.outcome != OutcomeDelivered {
					vtWant(t, "sends", r.peer.Sends("t"), 0)
					return
				}
				vtWant(t, "digest", res.d.PolicyDigest, row.digest)
				vtWant(t, "epoch", res.d.Epoch, row.epoch)
				vtWant(t, "sends", r.peer.Sends("t"), 1)
				sent := r.peer.Routing.Log()[0]
				vtWant(t, "digest sent", sent.AskedDigest, row.digest)
				if (sent.AskedEpoch != "") != (row.digest != "") {
					t.Errorf("epoch sent: %q with digest %q", sent.AskedEpoch, row.digest)
				}
			})
		})
	}
}

// TestPreflightHeaders: the caller cannot claim a policy, and its own header is
// left as it is.
func TestPreflightHeaders(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := newRig(t, fedtest.Config{}, func(_ *Config, p *Peer) { p.Receipt = IgnoreReceipt })
		names := []string{fedtest.HeaderPolicyDigest, fedtest.HeaderNegotiationEpoch, fedtest.HeaderAnchorVersion}
		send := func(task Task) http.Header {
			req := r.request(t.Context(), http.MethodGet, task, nil)
			for _, name := range names {
				req.Header[http.CanonicalHeaderKey(name)] = []string{"forged", "twice"}
			}
			if res := r.do(req); res.err != nil {
				t.Error(res.err)
			}
			for _, name := range names {
				if got := strings.Join(req.Header.Values(name), ","); got != "forged,twice" {
					t.Errorf("the caller's %s became %q", name, got)
				}
			}
			log := r.peer.Routing.Log()
			return log[len(log)-1].Header
		}
		for _, name := range names {
			if got := send(Task{})[http.CanonicalHeaderKey(name)]; got != nil {
				t.Errorf("%s of an ordinary request: %q", name, got)
			}
		}
		r.advertise("cap", 7, "d7")
		r.accept("cap", 7, "d7")
		h := send(vtTask("t"))
		vtWant(t, "digest", strings.Join(h.Values(names[0]), ","), "d7")
		vtWant(t, "epoch", strings.Join(h.Values(names[1]), ","), "7")
		vtWant(t, "anchor", strings.Join(h.Values(names[2]), ","), "")
	})
}

func TestPreflightRequireTask(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := newRig(t, fedtest.Config{}, func(_ *Config, p *Peer) { p.RequireTask = true })
		res := r.get(t.Context(), Task{ID: "t"})
		if !errors.Is(res.err, ErrTaskRequired) {
			t.Errorf("%v is not ErrTaskRequired", res.err)
		}
		vtWant(t, "sends", r.peer.Sends("t"), 0)
		vtWant(t, "with a capability", r.get(t.Context(), Task{ID: "t", Capability: "cap"}).d.Outcome, OutcomeDelivered)
		vtWant(t, "sends", r.peer.Sends("t"), 1)
	})
}
