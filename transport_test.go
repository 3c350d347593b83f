package fedhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/fedhttp/fedhttp"
)

// This file holds the Transport to the contract of http.RoundTripper with
// request bodies. The bases are stubs, so that it is known what was closed by
// whom; what goes over a wire is in the other transport_*_test.go files.

const stubURL = "https://b.example"

// bodies are the request bodies of one call, the caller's and those that
// GetBody made.
type bodies struct {
	mu     sync.Mutex
	all    []*countedBody
	closed chan struct{} // gets a value for each Close
}

type countedBody struct {
	io.Reader
	owner  *bodies
	closes atomic.Int32
}

func newBodies() *bodies { return &bodies{closed: make(chan struct{}, 100)} }

func (b *bodies) add() *countedBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	body := &countedBody{Reader: strings.NewReader(rowBody), owner: b}
	b.all = append(b.all, body)
	return body
}

func (c *countedBody) Close() error {
	c.closes.Add(1)
	c.owner.closed <- struct{}{}
	return nil
}

// check wants each body closed once. again tolerates a second Close.
func (b *bodies) check(t *testing.T, again bool) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, body := range b.all {
		if n := body.closes.Load(); n != 1 && (!again || n != 2) {
			t.Errorf("body %d of %d was closed %d times, want once", i+1, len(b.all), n)
		}
	}
}

// The stub bases. Each closes the body, as the contract asks of a base.

func finish(r *http.Request) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
}

func answering(answers ...*http.Response) roundTripFunc {
	var n atomic.Int64
	return func(r *http.Request) (*http.Response, error) {
		finish(r)
		resp := *answers[min(int(n.Add(1)), len(answers))-1]
		resp.Body = io.NopCloser(strings.NewReader("answer"))
		return &resp, nil
	}
}

func response(status int, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Add(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, ProtoMajor: 1, ProtoMinor: 1}
}

func routed() *http.Response { return response(403, "X-Federation-Policy-Evaluated", "false") }
func denied() *http.Response { return response(403, "X-Federation-Policy-Evaluated", "true") }

var errBase = errors.New("the base has failed")

// refusing fails the first n sends before it has a connection, and proves it.
func refusing(n int64, then roundTripFunc) roundTripFunc {
	var sent atomic.Int64
	return func(r *http.Request) (*http.Response, error) {
		if sent.Add(1) > n {
			return then(r)
		}
		if trace := httptrace.ContextClientTrace(r.Context()); trace != nil && trace.GetConn != nil {
			trace.GetConn("b.example:443")
		}
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, errBase
	}
}

func failing(r *http.Request) (*http.Response, error) {
	finish(r)
	return nil, errBase
}

// risingAnchors gives a newer anchor with every fetch.
func risingAnchors() anchorFunc {
	var n atomic.Int64
	return func(context.Context, string) (fedhttp.Anchor, error) {
		return fedhttp.Anchor{Version: fmt.Sprint("v", n.Add(1))}, nil
	}
}

// oneAnchor gives an anchor once, and then fails.
func oneAnchor() anchorFunc {
	var n atomic.Int64
	return func(context.Context, string) (fedhttp.Anchor, error) {
		if n.Add(1) > 1 {
			return fedhttp.Anchor{}, errors.New("the anchor endpoint is down")
		}
		return fedhttp.Anchor{Version: "v1"}, nil
	}
}

// bodyCase is one way that a call can end.
type bodyCase struct {
	base    http.RoundTripper
	anchors fedhttp.AnchorSource
	peer    func(*fedhttp.Peer)
	config  func(*fedhttp.Config)
	task    *fedhttp.Task
	request func(*http.Request)
	ready   func(*testing.T, *fedhttp.Transport) // before the call
	during  func(*fedhttp.Transport)             // while it is held
	want    fedhttp.Outcome
	panics  bool
}

var (
	plainTask = &fedhttp.Task{Capability: "summarise"}
	heldTask  = &fedhttp.Task{Capability: "summarise", Obligations: fedhttp.Terms{"residency": "eu"}}
)

func refuseHold(p *fedhttp.Peer) { p.Hold.Max = -1 }

// denyOnce has the peer deny the plain task.
func denyOnce(t *testing.T, tr *fedhttp.Transport) {
	t.Helper()
	ctx := fedhttp.ContextWithTask(context.Background(), *plainTask)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, stubURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

// bodyCases returns every way that a call can end. The bases count, so that each
// call takes new ones.
func bodyCases() map[string]bodyCase {
	return map[string]bodyCase{
		"response":      {base: answering(response(200)), want: fedhttp.OutcomeDelivered},
		"rejection":     {base: answering(denied()), want: fedhttp.OutcomeRejected},
		"ambiguous":     {base: answering(response(403)), want: fedhttp.OutcomeAmbiguous},
		"base error":    {base: roundTripFunc(failing), want: fedhttp.OutcomeAmbiguous},
		"unknown peer":  {want: fedhttp.OutcomeUnknownPeer, request: func(r *http.Request) { r.URL.Host = "c.example" }},
		"bad URL":       {want: fedhttp.OutcomeUnknownPeer, request: func(r *http.Request) { r.URL = nil }},
		"no host":       {want: fedhttp.OutcomeUnknownPeer, request: func(r *http.Request) { r.URL.Host = "" }},
		"task required": {want: fedhttp.OutcomeTaskRequired, peer: func(p *fedhttp.Peer) { p.RequireTask = true }},
		"unresolved":    {want: fedhttp.OutcomePolicyUnresolved, peer: refuseHold, task: heldTask},
		"held too long": {want: fedhttp.OutcomePolicyUnresolved, peer: func(p *fedhttp.Peer) { p.Hold.MaxWait = time.Millisecond }, task: heldTask},
		"hold closed":   {want: fedhttp.OutcomePolicyUnresolved, task: heldTask, during: func(tr *fedhttp.Transport) { _ = tr.Close() }},
		"scope denied":  {base: answering(denied()), want: fedhttp.OutcomeScopeDenied, task: plainTask, ready: denyOnce},
		"denial budget": {
			base: answering(denied()), want: fedhttp.OutcomeScopeDenied, task: &fedhttp.Task{Capability: "another"}, ready: denyOnce,
			peer: func(p *fedhttp.Peer) { p.Denial.Budget = 1 },
		},
		"breaker open": {
			base: answering(response(502)), want: fedhttp.OutcomePeerUnavailable, ready: denyOnce,
			peer: func(p *fedhttp.Peer) { p.Breaker.Failures = 1 },
		},
		"anchor required": {
			want: fedhttp.OutcomePeerUnavailable, peer: func(p *fedhttp.Peer) { p.RequireAnchor = true },
			anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) { return fedhttp.Anchor{}, errBase }),
		},
		"closed transport": {want: fedhttp.OutcomeCanceled, ready: func(_ *testing.T, tr *fedhttp.Transport) { _ = tr.Close() }},
		"context ended": {want: fedhttp.OutcomeCanceled, request: func(r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			cancel()
			*r = *r.WithContext(ctx)
		}},
		"base without response and error": {want: fedhttp.OutcomeAmbiguous, base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			finish(r)
			return nil, nil
		})},
		"base with response and error": {want: fedhttp.OutcomeAmbiguous, base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			finish(r)
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("x"))}, errBase
		})},
		"base panic": {panics: true, base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			finish(r)
			panic("the base is broken")
		})},
		"base panic in a resend": {panics: true, anchors: risingAnchors(), base: refusing(1, func(r *http.Request) (*http.Response, error) {
			finish(r)
			panic("the base is broken")
		})},
		"resend of an unread body":       {want: fedhttp.OutcomeDelivered, anchors: risingAnchors(), base: refusing(2, answering(response(200)))},
		"attempts exhausted":             {want: fedhttp.OutcomeRoutingFailed, anchors: risingAnchors(), base: refusing(9, nil)},
		"refused, nothing to refresh":    {want: fedhttp.OutcomeRoutingFailed, base: refusing(9, nil)},
		"refused, refresh fails":         {want: fedhttp.OutcomeRoutingFailed, anchors: oneAnchor(), base: refusing(9, nil)},
		"routed, refresh fails":          {want: fedhttp.OutcomeRoutingFailed, anchors: oneAnchor(), base: answering(routed())},
		"routed, Retry-After is too far": {want: fedhttp.OutcomeRoutingFailed, anchors: risingAnchors(), base: answering(response(503, "X-Federation-Policy-Evaluated", "false", "Retry-After", "3600"))},
		"GetBody fails": {want: fedhttp.OutcomeRoutingFailed, anchors: risingAnchors(), base: answering(routed()), request: func(r *http.Request) {
			if r.GetBody != nil {
				r.GetBody = func() (io.ReadCloser, error) { return nil, errors.New("the file is gone") }
			}
		}},
		"policy mismatch": {
			want: fedhttp.OutcomePolicyMismatch, task: heldTask, base: answering(response(200)),
			peer: func(p *fedhttp.Peer) {
				p.DefaultTerms, p.Receipt = heldTask.Obligations, fedhttp.RequireReceipt
			},
		},
		"propagator panic": {
			panics: true,
			peer:   func(p *fedhttp.Peer) { p.Propagation = fedhttp.PropagateAll },
			config: func(c *fedhttp.Config) { c.Propagator = panickingPropagator{} },
		},
		"ledger panic": {
			want: fedhttp.OutcomeScopeDenied, task: plainTask,
			config: func(c *fedhttp.Config) { c.Denials = &panickingLedger{denied: true} },
		},
	}
}

type panickingPropagator struct{ propagation.TraceContext }

func (panickingPropagator) Inject(context.Context, propagation.TextMapCarrier) {
	panic("the propagator is broken")
}

// TestBodyClosedOnce: whatever becomes of a call, the caller's body and every
// body of GetBody's is closed, and no one twice.
func TestBodyClosedOnce(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for name := range bodyCases() {
		for _, replayable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/replayable=%v", name, replayable), func(t *testing.T) {
				t.Parallel()
				playBodyCase(t, bodyCases()[name], replayable)
			})
		}
	}
}

func playBodyCase(t *testing.T, c bodyCase, replayable bool) {
	t.Helper()
	all := newBodies()
	peer := testPeer("b", stubURL)
	if c.peer != nil {
		c.peer(&peer)
	}
	cfg := fedhttp.Config{Base: c.base, Anchors: c.anchors, Logger: quietLogger}
	if c.base == nil {
		cfg.Base = roundTripFunc(func(*http.Request) (*http.Response, error) { panic("nothing may be sent") })
	}
	cfg.Peers = []fedhttp.Peer{peer}
	if c.during != nil {
		cfg.Coordinator = coordinatorFunc(func(context.Context, fedhttp.Unresolved) {})
	}
	if c.config != nil {
		c.config(&cfg)
	}
	tr := newTestTransport(t, cfg)
	if c.ready != nil {
		c.ready(t, tr)
	}
	ctx := context.Background()
	if c.task != nil {
		ctx = fedhttp.ContextWithTask(ctx, *c.task)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, stubURL+"/v1/tasks", all.add())
	if err != nil {
		t.Fatal(err)
	}
	if req.ContentLength = int64(len(rowBody)); replayable {
		req.GetBody = func() (io.ReadCloser, error) { return all.add(), nil }
	}
	if c.request != nil {
		c.request(req)
	}
	if c.during != nil {
		go func() {
			for tr.Status()[0].Held == 0 && t.Context().Err() == nil {
				time.Sleep(time.Millisecond) // between looks
			}
			c.during(tr)
		}()
	}
	// What a base that panics has done with an in-memory body, which it gets as it
	// is, cannot be known; there closing it twice is better than not at all.
	defer all.check(t, c.panics && c.base != nil && replayable)
	defer func() {
		if fault := recover(); (fault != nil) != c.panics {
			t.Errorf("RoundTrip panicked: %v", fault)
		}
	}()
	resp, err := tr.RoundTrip(req)
	d, _ := decisionOf(t, resp, err)
	if d.Outcome != c.want {
		t.Errorf("outcome %v (%v), want %v", d.Outcome, d.Reason, c.want)
	}
	if resp != nil {
		resp.Body.Close()
	}
}

// TestBodyOfAZeroTransport is apart, since such a Transport decides nothing.
func TestBodyOfAZeroTransport(t *testing.T) {
	t.Parallel()
	all := newBodies()
	req, err := http.NewRequest(http.MethodPost, stubURL, all.add())
	if err != nil {
		t.Fatal(err)
	}
	var zero fedhttp.Transport
	if resp, err := zero.RoundTrip(req); err == nil || resp != nil {
		t.Errorf("RoundTrip = %v, %v; want an error", resp, err)
	}
	all.check(t, false)
	if err := errors.Join(zero.Close(), zero.Close()); err != nil {
		t.Error(err)
	}
	zero.CloseIdleConnections()
	zero.SetDegraded("b", true)
	if zero.Status() != nil || zero.SetPeers(nil) == nil || zero.MaintainAnchors(context.Background()) == nil {
		t.Error("a zero Transport does something")
	}
}

// TestBodyClosedLate: a base may close a body after it has returned.
func TestBodyClosedLate(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for _, replayable := range []bool{false, true} {
		all := newBodies()
		release := make(chan struct{})
		late := roundTripFunc(func(r *http.Request) (*http.Response, error) {
			go func() {
				<-release
				finish(r)
			}()
			return nil, errBase
		})
		tr := newTestTransport(t, fedhttp.Config{Base: late, Peers: []fedhttp.Peer{testPeer("b", stubURL)}, Logger: quietLogger})
		req, err := http.NewRequest(http.MethodPost, stubURL, all.add())
		if err != nil {
			t.Fatal(err)
		}
		if replayable {
			req.GetBody = func() (io.ReadCloser, error) { return all.add(), nil }
		}
		if _, err := tr.RoundTrip(req); !errors.Is(err, fedhttp.ErrBoundary) || !errors.Is(err, errBase) {
			t.Errorf("RoundTrip: %v, want ErrBoundary and the base's error", err)
		}
		close(release)
		<-all.closed
		all.check(t, false)
	}
}

// TestBodyOfAPanic: a base that panics before it has closed the body has
// broken its contract, and the caller's body is closed all the same.
func TestBodyOfAPanic(t *testing.T) {
	t.Parallel()
	for _, replayable := range []bool{false, true} {
		all := newBodies()
		tr := newTestTransport(t, fedhttp.Config{
			Base:  roundTripFunc(func(*http.Request) (*http.Response, error) { panic("the base is broken") }),
			Peers: []fedhttp.Peer{testPeer("b", stubURL)},
		})
		req, err := http.NewRequest(http.MethodPost, stubURL, all.add())
		if err != nil {
			t.Fatal(err)
		}
		if replayable {
			req.GetBody = func() (io.ReadCloser, error) { return all.add(), nil }
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, _ = tr.RoundTrip(req)
		}()
		if all.all[0].closes.Load() == 0 {
			t.Errorf("the body was not closed (GetBody: %v)", replayable)
		}
		if s := tr.Status()[0]; s.InFlight != 0 {
			t.Errorf("%d calls are in flight after the panic", s.InFlight)
		}
	}
}
