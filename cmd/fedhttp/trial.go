package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fedhttp/fedhttp"
)

// circumstances are what explain assumes about the call that got a response.
type circumstances struct {
	method, target string // "GET", "/v1/tasks?x=1"
	task           fedhttp.Task
	digest         string    // that it was sent under; "": the receipt's own
	issuedAt       time.Time // of the anchor that it was sent under; zero: not known
	degraded       bool
}

// trial is one call through a real Transport whose peer answers as it was
// captured. Nothing here judges: that is the Transport's business.
type trial struct {
	peer   fedhttp.Peer
	at     circumstances
	answer *captured
	change func(http.Header) // of the captured header; nil: none
	// anchors is how many anchors there are to fetch, each newer than the one
	// before; the last is then confirmed for ever. 0: one, and nothing is resent.
	anchors int
	limit   time.Duration // of the call; zero: none
}

// found is what a trial came to.
type found struct {
	decision fedhttp.Decision
	verdict  string // of the first attempt; "" where nothing was sent
	degraded bool
	holdOff  time.Duration // of the denial that it left; negative: it left none
	returned bool          // the caller gets the response
}

var errEnded = errors.New("the connection ended without a response")

func (t *trial) run(ctx context.Context) (found, error) {
	spans := &recorder{}
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithResource(resource.Empty()))
	cfg := fedhttp.Config{
		Peers: []fedhttp.Peer{t.ready()}, Base: &answering{trial: t}, Book: t.book(),
		Anchors:        &anchorStub{issuedAt: t.at.issuedAt, versions: max(t.anchors, 1)},
		TracerProvider: tracer, MeterProvider: noop.NewMeterProvider(), Logger: slog.New(slog.DiscardHandler),
	}
	transport, err := fedhttp.NewTransport(cfg)
	if err != nil {
		return found{}, err
	}
	defer transport.Close()
	transport.SetDegraded(t.peer.ID, t.at.degraded)
	if t.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t.limit)
		defer cancel()
	}
	req, err := t.request(ctx)
	if err != nil {
		return found{}, err
	}
	f := found{holdOff: -1}
	resp, err := transport.RoundTrip(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		f.decision, f.returned = fedhttp.DecisionFromResponse(resp)
	} else {
		var e *fedhttp.Error
		if !errors.As(err, &e) {
			return found{}, err
		}
		f.decision = e.Decision
	}
	for _, d := range transport.RecentDenials() {
		f.holdOff = d.Until.Sub(d.At)
	}
	for _, call := range spans.trees() {
		f.degraded = call.text("federation.peer.degraded") == "true"
		for _, attempt := range call.children {
			if v := attempt.text("federation.verdict"); v != "" && f.verdict == "" {
				f.verdict = v
			}
		}
	}
	return f, nil
}

// ready is the peer, without what would keep the call from being sent: the
// response shows that it was.
func (t *trial) ready() fedhttp.Peer {
	p := t.peer
	p.RequireTask, p.RequireAnchor, p.AllowPlaintext = false, false, true
	p.Breaker, p.Hold = fedhttp.BreakerPolicy{Failures: -1}, fedhttp.HoldPolicy{Max: -1}
	p.Retry.MinRefreshInterval = 1
	if p.Retry.MinBackoff = 1; p.Retry.MaxBackoff == 0 {
		p.Retry.MaxBackoff = 5 * time.Second // which MinBackoff does not raise
	}
	if t.anchors == 0 {
		p.Retry.MaxAttempts = 1
	}
	return p
}

// book agrees to whatever the task may run under, since it was sent.
func (t *trial) book() *fedhttp.PolicyBook {
	digest := t.at.digest
	if digest == "" && t.answer.response != nil {
		name := t.peer.Signals.Receipt
		if name == "" {
			name = defaults["receipt"]
		}
		digest = t.answer.response.Header.Get(name)
	}
	if digest == "" {
		digest = "not known"
	}
	book := &fedhttp.PolicyBook{}
	agree := func(capability string) {
		if capability == "" {
			return
		}
		key := fedhttp.PolicyKey{Peer: t.peer.ID, Capability: capability}
		if book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: digest}) == nil {
			book.Accept(fedhttp.Policy{PolicyKey: key, Digest: digest})
		}
	}
	agree(t.at.task.Capability)
	for _, r := range t.peer.Routes {
		agree(r.Task.Capability)
	}
	return book
}

func (t *trial) request(ctx context.Context) (*http.Request, error) {
	u, err := url.Parse(t.peer.Origins[0])
	if err != nil {
		return nil, err
	}
	target, err := url.ParseRequestURI(t.at.target)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawPath, u.RawQuery = target.Path, target.RawPath, target.RawQuery
	ctx = fedhttp.ContextWithTask(ctx, t.at.task)
	return http.NewRequestWithContext(ctx, t.at.method, u.String(), nil)
}

// answering is a base that answers as it was captured, and 204 to a resend.
type answering struct {
	trial *trial
	mu    sync.Mutex
	sends int
}

func (a *answering) RoundTrip(req *http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.sends++
	again := a.sends > 1
	a.mu.Unlock()
	captured := a.trial.answer
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil {
		if trace.GetConn != nil {
			trace.GetConn(req.URL.Host)
		}
		if trace.GotConn != nil {
			trace.GotConn(httptrace.GotConnInfo{Reused: captured.reused})
		}
	}
	switch {
	case again:
		return &http.Response{StatusCode: http.StatusNoContent, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	case captured.response == nil:
		return nil, errEnded
	}
	resp := *captured.response
	resp.Request = req
	resp.Header = resp.Header.Clone()
	if a.trial.change != nil {
		a.trial.change(resp.Header)
	}
	var body io.Reader = bytes.NewReader(captured.body)
	if captured.broken {
		body = io.MultiReader(body, brokenOff{})
	}
	resp.Body = io.NopCloser(body)
	return &resp, nil
}

// brokenOff is where a body breaks off.
type brokenOff struct{}

func (brokenOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// anchorStub gives one newer anchor after the other, and then the last again.
type anchorStub struct {
	issuedAt time.Time
	versions int

	mu      sync.Mutex
	fetched int
}

func (s *anchorStub) FetchAnchor(context.Context, string) (fedhttp.Anchor, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fetched < s.versions {
		s.fetched++
	}
	if s.fetched == 1 {
		return fedhttp.Anchor{Version: "1", IssuedAt: s.issuedAt}, nil
	}
	return fedhttp.Anchor{Version: "2", IssuedAt: time.Now()}, nil
}
