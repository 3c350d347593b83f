package fedhttp_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
)

// A half-open breaker gives out trials, and has each of them back whatever
// becomes of it. Time is virtual.

// trial opens the breaker with a failure, waits until it lets trials through,
// and runs the test with a base that does as the request's X-Do says.
func trial(t *testing.T, trials int, test func(t *testing.T, tr *fedhttp.Transport, release chan struct{})) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := testPeer("b", stubURL)
		p.Breaker = fedhttp.BreakerPolicy{Failures: 1, OpenFor: time.Minute, Trials: trials}
		tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{p}, Logger: quietLogger, Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			switch r.Header.Get("X-Do") {
			case "fail":
				return answering(response(403))(r)
			case "panic":
				panic("the base is broken")
			case "wait":
				select {
				case <-release:
				case <-r.Context().Done():
					return nil, r.Context().Err()
				}
			case "not found":
				return answering(response(404))(r)
			case "no status":
				return answering(response(99))(r)
			}
			return answering(response(200))(r)
		})})
		if _, err := do(t.Context(), t, tr, "fail"); err != nil {
			t.Fatal(err)
		}
		d, _ := do(t.Context(), t, tr, "")
		if want := time.Now().Add(time.Minute); d.Outcome != fedhttp.OutcomePeerUnavailable || !d.RetryAt.Equal(want) {
			t.Fatalf("%v with the next trial at %v, want peer_unavailable and %v", d.Outcome, d.RetryAt, want)
		}
		time.Sleep(time.Minute + time.Nanosecond)
		test(t, tr, release)
	})
}

// do makes a GET, and leaves the body of its response as it is.
func do(ctx context.Context, t *testing.T, tr *fedhttp.Transport, what string) (fedhttp.Decision, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, stubURL, nil)
	if err != nil {
		t.Error(err)
		return fedhttp.Decision{}, err
	}
	req.Header.Set("X-Do", what)
	resp, err := tr.RoundTrip(req)
	if resp != nil {
		d, _ := fedhttp.DecisionFromResponse(resp)
		return d, nil
	}
	var e *fedhttp.Error
	if !errors.As(err, &e) {
		t.Error(err)
		return fedhttp.Decision{}, err
	}
	return e.Decision, err
}

func TestTrialsAreGivenBack(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do   func(t *testing.T, tr *fedhttp.Transport)
		want string // the breaker, after a success that follows
	}{
		"body never closed": {func(t *testing.T, tr *fedhttp.Transport) { _, _ = do(t.Context(), t, tr, "") }, "closed"},
		"no status": {func(t *testing.T, tr *fedhttp.Transport) {
			if d, _ := do(t.Context(), t, tr, "no status"); d.Outcome != fedhttp.OutcomeDelivered {
				t.Errorf("%v, want delivered", d.Outcome)
			}
		}, "open"},
		"application's 404": {func(t *testing.T, tr *fedhttp.Transport) { _, _ = do(t.Context(), t, tr, "not found") }, "closed"},
		"canceled": {func(t *testing.T, tr *fedhttp.Transport) {
			ctx, cancel := context.WithCancel(t.Context())
			var group sync.WaitGroup
			group.Go(func() {
				if d, _ := do(ctx, t, tr, "wait"); d.Outcome != fedhttp.OutcomeCanceled {
					t.Errorf("%v, want canceled", d.Outcome)
				}
			})
			synctest.Wait()
			cancel()
			group.Wait()
		}, "closed"},
		"failure": {func(t *testing.T, tr *fedhttp.Transport) { _, _ = do(t.Context(), t, tr, "fail") }, "open"},
		"panic": {func(t *testing.T, tr *fedhttp.Transport) {
			defer func() {
				if recover() == nil {
					t.Error("the panic was swallowed")
				}
			}()
			_, _ = do(t.Context(), t, tr, "panic")
		}, "open"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			trial(t, 1, func(t *testing.T, tr *fedhttp.Transport, _ chan struct{}) {
				test.do(t, tr)
				d, _ := do(t.Context(), t, tr, "")
				if sent := d.Outcome == fedhttp.OutcomeDelivered; sent != (test.want == "closed") {
					t.Errorf("the call after the trial: %v (%v)", d.Outcome, d.Reason)
				}
				if got := tr.Status()[0].Breaker; got != test.want {
					t.Errorf("the breaker is %s, want %s", got, test.want)
				}
				// However the first ended, there is a trial again a minute later.
				time.Sleep(time.Minute + time.Nanosecond)
				if d, err := do(t.Context(), t, tr, ""); d.Outcome != fedhttp.OutcomeDelivered {
					t.Errorf("a minute later: %v, %v", d.Outcome, err)
				}
			})
		})
	}
}

// TestTrialsAtOnce: no more calls than Trials are let through at once.
func TestTrialsAtOnce(t *testing.T) {
	t.Parallel()
	trial(t, 3, func(t *testing.T, tr *fedhttp.Transport, release chan struct{}) {
		var sent, refused atomic.Int64
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				switch d, err := do(t.Context(), t, tr, "wait"); {
				case d.Outcome == fedhttp.OutcomeDelivered:
					sent.Add(1)
				case errors.Is(err, fedhttp.ErrPeerUnavailable) && d.Attempts == 0:
					refused.Add(1)
				default:
					t.Errorf("%v, %v", d.Outcome, err)
				}
			})
		}
		synctest.Wait()
		if s := tr.Status()[0]; s.Breaker != "half-open" || !s.Degraded || s.InFlight != 3 {
			t.Errorf("during the trials the status is %+v", s)
		}
		close(release)
		group.Wait()
		if s, r := sent.Load(), refused.Load(); s != 3 || r != 7 {
			t.Errorf("%d were sent and %d refused, want 3 and 7", s, r)
		}
		if s := tr.Status()[0]; s.Breaker != "closed" {
			t.Errorf("after three successes the breaker is %s", s.Breaker)
		}
	})
}

// TestRetryAt is not in virtual time: it is told to others, so this process's own
// clock is not in it.
func TestRetryAt(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	peer := testPeer("b", stubURL)
	peer.Breaker = fedhttp.BreakerPolicy{Failures: 1, OpenFor: time.Nanosecond}
	tr := newTestTransport(t, fedhttp.Config{
		Base: roundTripFunc(func(*http.Request) (*http.Response, error) {
			if calls.Add(1) == 1 {
				return response(500), nil
			}
			close(begun)
			<-release
			return response(200), nil
		}),
		Peers: []fedhttp.Peer{peer}, Logger: quietLogger,
	})
	_, _ = do(t.Context(), t, tr, "fails")
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = do(t.Context(), t, tr, "trial")
	}()
	<-begun
	d, _ := do(t.Context(), t, tr, "refused")
	close(release)
	<-done
	if d.Reason != fedhttp.ReasonBreakerOpen || d.RetryAt.IsZero() || d.RetryAt != d.RetryAt.Round(0) { // == sees that clock
		t.Errorf("%v, next trial at %v", d.Reason, d.RetryAt)
	}
}

// TestWaitBeforeAResend: what ends the wait ends the call, and the last
// response is handed over whole where there is one.
func TestWaitBeforeAResend(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		end     func(tr *fedhttp.Transport, cancel context.CancelCauseFunc)
		outcome fedhttp.Outcome
		reason  fedhttp.Reason
		sends   int64
		took    time.Duration
	}{
		"it passes":              {nil, fedhttp.OutcomeDelivered, fedhttp.ReasonNone, 2, 4 * time.Second},
		"the caller cancels":     {func(_ *fedhttp.Transport, cancel context.CancelCauseFunc) { cancel(errCallersCause) }, fedhttp.OutcomeCanceled, fedhttp.ReasonContextEnded, 1, time.Second},
		"the transport closes":   {func(tr *fedhttp.Transport, _ context.CancelCauseFunc) { _ = tr.Close() }, fedhttp.OutcomeCanceled, fedhttp.ReasonClosed, 1, time.Second},
		"the peer gets degraded": {func(tr *fedhttp.Transport, _ context.CancelCauseFunc) { tr.SetDegraded("b", true) }, fedhttp.OutcomeRoutingFailed, fedhttp.ReasonPeerDegraded, 1, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var sends atomic.Int64
				tr := newTestTransport(t, fedhttp.Config{
					Peers: []fedhttp.Peer{testPeer("b", stubURL)}, Anchors: risingAnchors(), Logger: quietLogger,
					Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
						if sends.Add(1) > 1 {
							return answering(response(200))(r)
						}
						return answering(response(503, evaluated, "false", "Retry-After", "4"))(r)
					}),
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if test.end != nil {
					time.AfterFunc(time.Second, func() { test.end(tr, cancel) })
				}
				start := time.Now()
				d, err := do(ctx, t, tr, "")
				if d.Outcome != test.outcome || d.Reason != test.reason || sends.Load() != test.sends {
					t.Errorf("%v (%v) after %d sends, %v; want %v (%v) after %d", d.Outcome, d.Reason, sends.Load(), err, test.outcome, test.reason, test.sends)
				}
				if took := time.Since(start).Truncate(time.Second); took != test.took {
					t.Errorf("it took %v, want %v", took, test.took)
				}
			})
		})
	}
}

// TestBackoff: the wait is jittered between the bounds, and grows.
func TestBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var sent recorder[time.Time]
		p := fedhttp.Peer{ID: "b", Origins: []string{stubURL}, Breaker: fedhttp.BreakerPolicy{Failures: -1}, Retry: fedhttp.RetryPolicy{
			MaxAttempts: 8, MinBackoff: 10 * time.Second, MaxBackoff: 40 * time.Second,
		}}
		tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{p}, Anchors: risingAnchors(), Logger: quietLogger, Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			sent.add(time.Now())
			return answering(routed())(r)
		})})
		waits := map[time.Duration]bool{}
		for range 20 {
			before := len(sent.snapshot())
			if d, _ := do(t.Context(), t, tr, ""); d.Reason != fedhttp.ReasonAttemptsExhausted {
				t.Fatalf("%v (%v)", d.Outcome, d.Reason)
			}
			all := sent.snapshot()[before:]
			if len(all) != 8 {
				t.Fatalf("%d sends, want 8", len(all))
			}
			for i := range all[1:] {
				wait := all[i+1].Sub(all[i])
				if most := min(10*time.Second<<(i+1), 40*time.Second) + time.Second; wait < 10*time.Second || wait > most {
					t.Errorf("wait %d is %v, want 10s to %v", i+1, wait, most)
				}
				waits[wait] = true
			}
		}
		if len(waits) < 100 {
			t.Errorf("140 waits have only %d different lengths", len(waits))
		}
	})
}

// TestAttemptTimeout: it is a timeout, says so, and is not the caller's.
func TestAttemptTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTestTransport(t, fedhttp.Config{
			Peers: []fedhttp.Peer{{ID: "b", Origins: []string{stubURL}}}, Logger: quietLogger,
			Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}),
		})
		start := time.Now()
		d, err := do(t.Context(), t, tr, "")
		var e *fedhttp.Error
		if !errors.As(err, &e) || !e.Timeout() || !strings.Contains(err.Error(), "attempt timeout") || d.Outcome != fedhttp.OutcomeAmbiguous {
			t.Errorf("%v, %v; want ambiguous and a timeout", d.Outcome, err)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("it took %v, want the default of 1m", took)
		}
	})
}
