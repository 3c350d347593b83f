package fedhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fedhttp/fedhttp"
)

// A caller that closes Request.Cancel, which net/http still heeds, has walked away as
// one that cancels its context, wherever the call is. One that does so when its time is
// up has not: that is how http.Client has its Timeout.
func TestRequestCancel(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	routing := func(req *http.Request) (*http.Response, error) {
		resp, err := chainStub(req)
		resp.StatusCode = http.StatusServiceUnavailable
		resp.Header.Set("X-Federation-Policy-Evaluated", "false")
		return resp, err
	}
	const never = time.Duration(-1) // but by the base
	hang := func(req *http.Request) (*http.Response, error) {
		select {
		case <-req.Cancel: //nolint:staticcheck // as net/http does
			return nil, errors.New("net/http: request canceled")
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	for name, test := range map[string]struct {
		after time.Duration // when it is closed
		ctx   time.Duration // the context's time limit; zero: none
		base  roundTripFunc
		want  fedhttp.Outcome
		sends int32
	}{
		"before it is sent": {base: hang, want: fedhttp.OutcomeCanceled},
		"while it is sent":  {after: time.Second, base: hang, want: fedhttp.OutcomeCanceled, sends: 1},
		"before a resend":   {after: time.Second, base: routing, want: fedhttp.OutcomeCanceled, sends: 1},
		"as it is answered": {after: never, base: routing, want: fedhttp.OutcomeCanceled, sends: 1},
		"with the deadline": {after: time.Second, ctx: time.Second, base: hang, want: fedhttp.OutcomeAmbiguous, sends: 1},
		"long before it":    {after: time.Second, ctx: time.Minute, base: hang, want: fedhttp.OutcomeCanceled, sends: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sends, escalated atomic.Int32
				answered := func() {}
				cfg := testPeer("b", stubURL)
				cfg.Breaker.Failures = 1
				cfg.Retry.MinBackoff, cfg.Retry.MaxBackoff = time.Hour, time.Hour
				tr := newTestTransport(t, fedhttp.Config{
					Peers: []fedhttp.Peer{cfg}, Anchors: risingAnchors(),
					Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
						sends.Add(1)
						defer answered()
						return test.base(req)
					}),
					Escalator: escalatorFunc(func(context.Context, fedhttp.Escalation) { escalated.Add(1) }),
				})
				ctx := t.Context()
				if test.ctx != 0 {
					limited, stop := context.WithTimeout(ctx, test.ctx)
					defer stop()
					ctx = limited
				}
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, stubURL, strings.NewReader("a task"))
				if err != nil {
					t.Fatal(err)
				}
				cancel := make(chan struct{})
				req.Cancel = cancel //nolint:staticcheck // deprecated, and heeded
				switch test.after {
				case 0:
					close(cancel)
				case never:
					answered = func() { close(cancel) }
				default:
					time.AfterFunc(test.after, func() { close(cancel) })
				}
				begun := time.Now()
				resp, err := tr.RoundTrip(req)
				d := fedhttp.Decision{}
				var fault *fedhttp.Error
				if errors.As(err, &fault) {
					d = fault.Decision
				} else if err == nil {
					d, _ = fedhttp.DecisionFromResponse(resp)
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if took := time.Since(begun); took != max(0, test.after) || d.Refreshes > 1 && test.after == never {
					t.Errorf("it took %v, with %d refreshes", took, d.Refreshes)
				}
				synctest.Wait()
				if d.Outcome != test.want || d.Attempts != int(test.sends) || sends.Load() != test.sends {
					t.Errorf("%v after %d sends: %v", d.Outcome, sends.Load(), err)
				}
				canceled := test.want == fedhttp.OutcomeCanceled
				if canceled && err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("%v is no cancellation", err)
				}
				if canceled != (escalated.Load() == 0) || test.after != never && canceled != (tr.Status()[0].Breaker == "closed") {
					t.Errorf("%d escalations, the breaker is %s", escalated.Load(), tr.Status()[0].Breaker)
				}
			})
		})
	}
}

// TestRequestCancelRightBeforeTheDeadline: who has walked away has, whatever time it is
// when the call is concluded.
func TestRequestCancelRightBeforeTheDeadline(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := testPeer("b", stubURL)
		cfg.Breaker.Failures = 1
		tr := newTestTransport(t, fedhttp.Config{
			Peers:          []fedhttp.Peer{cfg},
			TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(slowProcessor{})),
			Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				<-req.Cancel //nolint:staticcheck // as net/http does
				return nil, errors.New("net/http: request canceled")
			}),
		})
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, stubURL, nil)
		if err != nil {
			t.Fatal(err)
		}
		cancel := make(chan struct{})
		req.Cancel = cancel //nolint:staticcheck // deprecated, and heeded
		time.AfterFunc(time.Second, func() { close(cancel) })
		resp, err := tr.RoundTrip(req)
		if d, _ := decisionOf(t, resp, err); d.Outcome != fedhttp.OutcomeCanceled || d.Reason != fedhttp.ReasonContextEnded {
			t.Errorf("%v (%v): %v", d.Outcome, d.Reason, err)
		}
		if s := tr.Status()[0]; s.Breaker != "closed" {
			t.Errorf("the breaker is %s", s.Breaker)
		}
	})
}

// slowProcessor takes its time whenever a span ends.
type slowProcessor struct{}

func (slowProcessor) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (slowProcessor) OnEnd(sdktrace.ReadOnlySpan)                     { time.Sleep(5 * time.Second) }
func (slowProcessor) Shutdown(context.Context) error                  { return nil }
func (slowProcessor) ForceFlush(context.Context) error                { return nil }
