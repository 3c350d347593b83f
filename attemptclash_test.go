package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// What bases and callers may do with an attempt's context and its clock.

const clashURL = "http://127.0.0.1:1"

func clashTransport(t *testing.T, cfg Config, peer func(*Peer)) *Transport {
	t.Helper()
	p := testPeer("b", clashURL)
	if peer != nil {
		peer(&p)
	}
	cfg.Peers = []Peer{p}
	return newTestTransport(t, cfg)
}

func clashRequest(ctx context.Context, t *testing.T) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, clashURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// answered is what a base answers with.
func answered(r *http.Request, status int, body io.ReadCloser) *http.Response {
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: body, Request: r, ContentLength: -1,
	}
}

// handEnded is a context that somebody ends by hand, with any error: a deadline
// needs no time to pass.
type handEnded struct {
	context.Context
	done chan struct{}

	mu  sync.Mutex
	err error
}

func newHandEnded(parent context.Context) *handEnded {
	return &handEnded{Context: parent, done: make(chan struct{})}
}

func (c *handEnded) Done() <-chan struct{} { return c.done }

func (c *handEnded) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *handEnded) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	close(c.done)
}

// TestAttemptDeadlineIsDeadline: a base that derives a context and reports why it
// ended says that the caller's deadline has passed, and not that anybody canceled.
func TestAttemptDeadlineIsDeadline(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	var call *handEnded
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		call.end(context.DeadlineExceeded)
		<-ctx.Done()
		if !errors.Is(context.Cause(r.Context()), context.DeadlineExceeded) {
			t.Errorf("the cause is %v", context.Cause(r.Context()))
		}
		return nil, ctx.Err()
	})
	tr := clashTransport(t, Config{Base: base}, nil)
	call = newHandEnded(t.Context())
	_, err := tr.RoundTrip(clashRequest(call, t))
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v; canceled: %v", err, errors.Is(err, context.Canceled))
	}
}

// stuckBody hangs in Read until its context ends, and in Close for as long as a
// Read does, as net/http's does on HTTP/1.
type stuckBody struct {
	ctx context.Context
	mu  sync.Mutex
}

func (b *stuckBody) Read([]byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (b *stuckBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return nil
}

// TestResponseContextAfterPeek: a caller that closes a body which is still being
// read ahead can go on with the response's context.
func TestResponseContextAfterPeek(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	synctest.Test(t, closeWhilePeeked) // so that it waits for the body in no time
}

func closeWhilePeeked(t *testing.T) {
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithCancel(r.Context())
		context.AfterFunc(ctx, cancel)
		resp := answered(r, http.StatusForbidden, &stuckBody{ctx: ctx})
		resp.ProtoMajor, resp.ProtoMinor = 2, 0
		resp.Header.Set("Content-Type", "application/problem+json")
		return resp, nil
	})
	tr := clashTransport(t, Config{Base: base}, func(p *Peer) {
		p.Signals.Dialects = []Dialect{{Kind: DialectProblem, Hops: []Hop{{Name: "b"}}}}
	})
	resp, err := tr.RoundTrip(clashRequest(t.Context(), t))
	if err != nil {
		t.Fatal(err)
	}
	if _, ahead := resp.Body.(*responseBody).body.(*readAhead); !ahead {
		t.Fatalf("the body is a %T, and nothing is read ahead", resp.Body.(*responseBody).body)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := resp.Request.Context()
	select {
	case <-ctx.Done():
		t.Error("it is done")
	default:
	}
	if ctx.Err() != nil || context.Cause(ctx) != nil {
		t.Errorf("it has ended with %v, %v", ctx.Err(), context.Cause(ctx))
	}
	if d, ok := DecisionFromResponse(resp); !ok || d.Peer != "b" {
		t.Errorf("its decision is %+v, %v", d, ok)
	}
}

// TestAttemptTimeoutOrResponse: where both come at once, it is one of the two: no
// response is handed over whose body is about to be cut off.
func TestAttemptTimeoutOrResponse(t *testing.T) {
	t.Parallel()
	var ring func()
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		ctx := r.Context()
		ctx.Done()
		ring()
		return answered(r, http.StatusOK, &readerBody{strings.NewReader("fine")}), nil
	})
	tr := clashTransport(t, Config{Base: base}, func(p *Peer) { p.Retry.AttemptTimeout = time.Hour })
	// The lane finds the attempt over, and has not ended it yet when the response comes.
	clocks := tr.peers.Load().peers[0].clocks
	var late []*attempt
	ring = func() {
		for i := range clocks.lanes {
			l := &clocks.lanes[i]
			l.mu.Lock()
			late = l.over(late, math.MaxInt64)
			l.mu.Unlock()
		}
	}
	resp, err := tr.RoundTrip(clashRequest(t.Context(), t))
	if len(late) != 1 {
		t.Fatalf("%d attempts were over", len(late))
	}
	for _, l := range late {
		l.cancel()
	}
	if err == nil {
		resp.Body.Close()
		t.Fatalf("a response was handed over; its context: %v", resp.Request.Context().Err())
	}
	var timeout interface{ Timeout() bool }
	if !errors.As(err, &timeout) || !timeout.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
	var own *Error
	if !errors.As(err, &own) || own.Decision.Outcome != OutcomeAmbiguous {
		t.Errorf("it ended with %+v", own)
	}
}

type readerBody struct{ io.Reader }

func (readerBody) Close() error { return nil }

// TestResendLeavesHeadersAlone: what one attempt says of us is not written over
// while its base may still be writing it.
func TestResendLeavesHeadersAlone(t *testing.T) {
	t.Parallel()
	versions := 0
	anchors := anchorFunc(func(context.Context, string) (Anchor, error) {
		versions++
		return Anchor{Version: fmt.Sprint("v", versions)}, nil
	})
	var headers []http.Header
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		headers = append(headers, r.Header)
		resp := answered(r, http.StatusServiceUnavailable, http.NoBody)
		resp.Header.Set("X-Federation-Policy-Evaluated", "false")
		return resp, nil
	})
	tr := clashTransport(t, Config{Base: base, Anchors: anchors}, nil)
	resp, err := tr.RoundTrip(clashRequest(t.Context(), t))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	var said []string
	for _, h := range headers {
		said = append(said, h.Get("X-Federation-Anchor-Version"))
	}
	if fmt.Sprint(said) != "[v1 v2 v3]" {
		t.Errorf("the attempts' headers now say %v", said)
	}
}

// TestResponseContextChain: a caller that makes each request with the response
// before keeps only the last.
func TestResponseContextChain(t *testing.T) {
	t.Parallel()
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		return answered(r, http.StatusOK, http.NoBody), nil
	})
	for name, next := range map[string]func(*http.Response) *http.Request{
		"its context": func(resp *http.Response) *http.Request { return clashRequest(resp.Request.Context(), t) },
		"itself":      func(resp *http.Response) *http.Request { return resp.Request },
	} {
		tr := clashTransport(t, Config{Base: base}, nil)
		ctx := ContextWithTask(t.Context(), Task{ID: "t"})
		req, sent := clashRequest(ctx, t), []weak.Pointer[http.Request]{}
		var resp *http.Response
		for range 10 {
			var err error
			if resp, err = tr.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			sent = append(sent, weak.Make(resp.Request))
			req = next(resp)
		}
		if d, _ := DecisionFromResponse(resp); d.TaskID != "t" {
			t.Errorf("%s: the task is lost: %+v", name, d)
		}
		alive := func() (n int) {
			runtime.GC()
			for _, s := range sent {
				if s.Value() != nil {
					n++
				}
			}
			return n
		}
		for deadline := time.Now().Add(5 * time.Second); alive() > 1 && time.Now().Before(deadline); {
			runtime.Gosched()
		}
		if n := alive(); n != 1 {
			t.Errorf("%s: %d of %d requests are kept", name, n, len(sent))
		}
		runtime.KeepAlive(resp)
	}
}

// strayTracer gives back a context that does not derive from the one it is given.
type strayTracer struct{ noop.Tracer }

func (strayTracer) Start(context.Context, string, ...trace.SpanStartOption) (context.Context, trace.Span) {
	return context.Background(), noop.Span{}
}

// TestResponseContextStrayTracer: one that loses the context is not the end of the
// caller.
func TestResponseContextStrayTracer(t *testing.T) {
	t.Parallel()
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) { return answered(r, 200, http.NoBody), nil })
	tr := clashTransport(t, Config{Base: base, TracerProvider: strayProvider{}}, nil)
	resp, err := tr.RoundTrip(clashRequest(t.Context(), t))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	again, err := tr.RoundTrip(clashRequest(resp.Request.Context(), t))
	if err != nil {
		t.Fatal(err)
	}
	again.Body.Close()
	if _, ok := DecisionFromResponse(resp); !ok {
		t.Error("the decision is lost")
	}
}

type strayProvider struct{ noop.TracerProvider }

func (strayProvider) Tracer(string, ...trace.TracerOption) trace.Tracer { return strayTracer{} }

// TestAttemptContextPrinted: a context in a log does not bring the request's secrets
// with it.
func TestAttemptContextPrinted(t *testing.T) {
	t.Parallel()
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		if s := fmt.Sprintf("%v %+v %s", r.Context(), r.Context(), r.Context()); strings.Contains(s, "secret") {
			t.Errorf("it prints as %q", s)
		}
		return answered(r, 200, http.NoBody), nil
	})
	tr := clashTransport(t, Config{Base: base}, nil)
	req := clashRequest(t.Context(), t)
	req.Header.Set("Authorization", "secret")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if s := fmt.Sprintf("%v %+v", resp.Request.Context(), resp.Request.Context()); strings.Contains(s, "secret") {
		t.Errorf("it prints as %q", s)
	}
}

// TestRetryBudgetThirds: three thirds are one.
func TestRetryBudgetThirds(t *testing.T) {
	t.Parallel()
	for _, parts := range []int{3, 6, 7, 9, 10, 11, 30} {
		var b retryBudget
		for b.take() {
		}
		for range parts {
			b.earn(1 / float64(parts))
		}
		if !b.take() || b.take() {
			t.Errorf("%d calls that earn a %dth each have not earned one resend", parts, parts)
		}
	}
}
