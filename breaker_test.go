package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// vtBreakerRig has a breaker that opens after three failures, for 30 s.
func vtBreakerRig(t *testing.T, more ...func(*Config, *Peer)) *vtRig {
	t.Helper()
	return newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
		p.Breaker = BreakerPolicy{Failures: 3}
		for _, change := range more {
			change(cfg, p)
		}
	})
}

// vtFail sends n calls that fail at the peer's application.
func (r *vtRig) vtFail(n int) {
	r.t.Helper()
	for range n {
		r.peer.On("fails", fedtest.Raw(500, nil, "boom"))
		if res := r.get(r.t.Context(), Task{ID: "fails"}); res.err != nil {
			r.t.Errorf("a 500 is an answer: %v", res.err)
		}
	}
}

// vtOpen checks that nothing is sent to the peer before at.
func (r *vtRig) vtOpen(at time.Time) {
	r.t.Helper()
	res := r.get(r.t.Context(), Task{ID: "refused"})
	if !errors.Is(res.err, ErrPeerUnavailable) {
		r.t.Fatalf("%v is not ErrPeerUnavailable", res.err)
	}
	vtWant(r.t, "reason", res.d.Reason, ReasonBreakerOpen)
	if !res.d.RetryAt.Equal(at) {
		r.t.Errorf("next trial at %v, want %v", res.d.RetryAt, at)
	}
	if text := at.UTC().Format(time.RFC3339Nano); !strings.Contains(res.err.Error(), text) {
		r.t.Errorf("%q does not name %s", res.err, text)
	}
	vtWant(r.t, "attempts", res.d.Attempts, 0)
	vtWant(r.t, "sends", r.peer.Sends("refused"), 0)
	vtNoTimeout(r.t, "refused", res.err)
}

func (r *vtRig) vtBreaker(want string) {
	r.t.Helper()
	vtWant(r.t, "breaker", r.status().Breaker, want)
	vtWant(r.t, "degraded", r.status().Degraded, want != "closed" && want != "off")
}

func TestBreakerOpens(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtBreakerRig(t)
		r.vtBreaker("closed")
		r.vtFail(2)
		r.vtBreaker("closed")
		time.Sleep(time.Second)
		r.vtFail(1)
		r.vtBreaker("open")
		until := time.Now().Add(30 * time.Second)
		r.vtOpen(until)
		time.Sleep(30*time.Second - 1)
		r.vtOpen(until)
		time.Sleep(2 * time.Nanosecond) // gobreaker's end is exclusive
		r.vtGoes(Task{ID: "trial"})
		r.vtBreaker("closed")
	})
}

// TestBreakerCounts: two failures, then what the row does, then a failure. It
// opens unless the row was a success, and at once where it was a failure.
func TestBreakerCounts(t *testing.T) {
	const success, failure, neutral = "success", "failure", "neutral"
	stale := func(r *vtRig) { r.peer.Rotate() }
	for name, row := range map[string]struct {
		steps  []fedtest.Step
		before func(*vtRig)
		want   string
	}{
		"200":                    {[]fedtest.Step{fedtest.Pass()}, nil, success},
		"304":                    {[]fedtest.Step{fedtest.Raw(304, nil, "")}, nil, success},
		"rejection":              {[]fedtest.Step{fedtest.Deny("NO")}, nil, success},
		"rejection by 429":       {[]fedtest.Step{fedtest.Decide(fedtest.Verdict{Deny: true, Status: 429})}, nil, success},
		"400":                    {[]fedtest.Step{fedtest.Raw(400, nil, "")}, nil, neutral},
		"404":                    {[]fedtest.Step{fedtest.Raw(404, nil, "")}, nil, neutral},
		"422":                    {[]fedtest.Step{fedtest.Raw(422, nil, "")}, nil, neutral},
		"500":                    {[]fedtest.Step{fedtest.Raw(500, nil, "")}, nil, failure},
		"503 of the application": {[]fedtest.Step{fedtest.Decide(fedtest.Verdict{Deny: true, Status: 503})}, nil, failure},
		"ambiguous":              {[]fedtest.Step{fedtest.Raw(403, nil, "")}, nil, failure},
		"no answer":              {[]fedtest.Step{fedtest.CloseConnection()}, nil, failure},
		"contradiction":          {[]fedtest.Step{fedtest.Raw(403, http.Header{fedtest.HeaderPolicyEvaluated: {"perhaps"}}, "")}, nil, failure},
		"routing":                {[]fedtest.Step{vtDrop("soon")}, nil, failure},
		"stale, repaired":        {nil, stale, success}, // the resend was one; the first attempt did not count
		"stale, not repaired":    {[]fedtest.Step{fedtest.RouteStale()}, nil, failure},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				var r *vtRig
				r = vtBreakerRig(t, func(cfg *Config, p *Peer) {
					p.Receipt = IgnoreReceipt
					cfg.Anchors = anchorFunc(func(ctx context.Context, peer string) (Anchor, error) { return r.source(ctx, peer) })
				})
				r.get(t.Context(), Task{ID: "first"})
				time.Sleep(time.Hour)
				r.vtFail(2)
				if row.before != nil {
					row.before(r)
				}
				r.peer.On("t", row.steps...)
				if res := r.get(t.Context(), Task{ID: "t"}); res.resp == nil && name != "no answer" {
					t.Errorf("no response: %v", res.err)
				}
				vtWant(t, "breaker", r.status().Breaker, map[string]string{success: "closed", neutral: "closed", failure: "open"}[row.want])
				if row.want != failure {
					r.vtFail(1)
					vtWant(t, "breaker after one more failure", r.status().Breaker, map[string]string{success: "closed", neutral: "open"}[row.want])
				}
			})
		})
	}
}

// TestBreakerCallerCancels: a caller that gives up says nothing about the peer.
func TestBreakerCallerCancels(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtBreakerRig(t)
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			r.peer.On("t", fedtest.Hang())
			time.AfterFunc(time.Second, cancel)
			vtWant(t, "outcome", r.get(ctx, Task{ID: "t"}).d.Outcome, OutcomeCanceled)
		}
		r.vtBreaker("closed")
		r.vtFail(3)
		r.vtBreaker("open")
	})
}

// TestBreakerRepairedStorm: a rotation that hits many calls at once does not
// open the breaker, since a refresh repairs them all.
func TestBreakerRepairedStorm(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var r *vtRig
		r = vtBreakerRig(t, func(cfg *Config, p *Peer) {
			p.Breaker.Failures, p.Receipt = 1, IgnoreReceipt
			cfg.Anchors = anchorFunc(func(ctx context.Context, peer string) (Anchor, error) { return r.source(ctx, peer) })
		})
		r.get(t.Context(), Task{ID: "first"})
		r.peer.Rotate()
		var tasks []Task
		for i := range 40 {
			tasks = append(tasks, Task{ID: fmt.Sprint("t", i)})
		}
		for _, res := range r.hold(t.Context(), tasks...)() {
			vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
		}
		r.vtBreaker("closed")
	})
}

// TestBreakerHalfOpen: one call at a time is tried, others are refused.
func TestBreakerHalfOpen(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtBreakerRig(t, func(_ *Config, p *Peer) { p.Breaker = BreakerPolicy{Failures: 3, Trials: 2} })
		r.vtFail(3)
		time.Sleep(31 * time.Second)
		r.peer.On("trial1", fedtest.Delay(10*time.Second, fedtest.Pass()))
		r.peer.On("trial2", fedtest.Delay(10*time.Second, fedtest.Pass()))
		done := r.hold(t.Context(), Task{ID: "trial1"}, Task{ID: "trial2"})
		r.vtBreaker("half-open")
		r.vtOpen(time.Now())
		for _, res := range done() {
			vtWant(t, "trial", res.d.Outcome, OutcomeDelivered)
		}
		r.vtBreaker("closed")
		r.vtGoes(Task{ID: "later"})
	})
}

// TestBreakerHalfOpenFailure: a routing failure of a trial is not resent, and
// opens the breaker again.
func TestBreakerHalfOpenFailure(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var r *vtRig
		r = vtBreakerRig(t, func(cfg *Config, _ *Peer) {
			cfg.Anchors = anchorFunc(func(ctx context.Context, peer string) (Anchor, error) { return r.source(ctx, peer) })
		})
		r.vtFail(3)
		time.Sleep(31 * time.Second)
		r.peer.On("trial", vtDrop())
		res := r.get(t.Context(), Task{ID: "trial"})
		vtWant(t, "sends", r.peer.Sends("trial"), 1)
		vtWant(t, "reason", res.d.Reason, ReasonPeerDegraded)
		r.vtBreaker("open")
		r.vtOpen(time.Now().Add(30 * time.Second))
	})
}

// TestBreakerNeverAdmitsResend: the breaker opens while a call waits to be
// resent, and its time is over when the wait is: a new call would be a trial,
// the resend is not.
func TestBreakerNeverAdmitsResend(t *testing.T) {
	for name, openFor := range map[string]time.Duration{"open": time.Minute, "time for a trial": time.Second} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtRetryRig(t, RetryPolicy{}, func(_ *Config, p *Peer) {
					p.Breaker = BreakerPolicy{Failures: 3, OpenFor: openFor}
				})
				r.peer.On("t", vtDrop("4"))
				waiting := r.hold(t.Context(), Task{ID: "t"})
				r.vtFail(2) // and the attempt that waits was the first
				r.vtBreaker("open")
				res := waiting()[0]
				vtWant(t, "at", res.at, 4*time.Second)
				vtWant(t, "outcome", res.d.Outcome, OutcomeRoutingFailed)
				vtWant(t, "reason", res.d.Reason, ReasonBreakerOpen)
				vtWant(t, "body", res.body, "come back later")
				vtWant(t, "sends", r.peer.Sends("t"), 1)
				if openFor < 4*time.Second {
					r.vtGoes(Task{ID: "trial"})
					r.vtBreaker("closed")
				}
			})
		})
	}
}

// TestBreakerSlots: whatever becomes of a trial, its slot is free afterwards. One
// that is never released blocks the peer for ever.
func TestBreakerSlots(t *testing.T) {
	type trial struct {
		run  func(r *vtRig)
		want string // the breaker's state afterwards
	}
	get := func(r *vtRig, ctx context.Context) {
		r.get(ctx, Task{ID: "trial"})
	}
	for name, row := range map[string]trial{
		"panic": {func(r *vtRig) {
			defer func() {
				if recover() == nil {
					r.t.Error("the base's panic is lost")
				}
			}()
			req := r.request(r.t.Context(), http.MethodGet, Task{ID: "panics"}, nil)
			resp, err := r.tr.RoundTrip(req)
			r.t.Errorf("returned %v, %v", resp, err)
		}, "open"},
		"cancel": {func(r *vtRig) {
			ctx, cancel := context.WithCancel(r.t.Context())
			r.peer.On("trial", fedtest.Hang())
			time.AfterFunc(time.Second, cancel)
			get(r, ctx)
		}, "half-open"},
		"deadline": {func(r *vtRig) {
			ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
			defer cancel()
			r.peer.On("trial", fedtest.Hang())
			get(r, ctx)
		}, "open"},
		"404": {func(r *vtRig) {
			r.peer.On("trial", fedtest.Raw(404, nil, ""))
			get(r, r.t.Context())
		}, "half-open"},
		"withheld": {func(r *vtRig) {
			r.advertise("cap", 1, "d1")
			r.accept("cap", 1, "d1") // and the peer knows of no agreement
			vtWant(r.t, "outcome", r.get(r.t.Context(), vtTask("trial")).d.Outcome, OutcomePolicyMismatch)
		}, "closed"},
		"body never closed": {func(r *vtRig) {
			resp, err := r.client.Do(r.request(r.t.Context(), http.MethodGet, Task{ID: "trial"}, nil))
			if err != nil {
				r.t.Error(err)
			}
			r.t.Cleanup(func() { resp.Body.Close() })
		}, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtBreakerRig(t, func(cfg *Config, _ *Peer) {
					base := cfg.Base
					cfg.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
						if req.Header.Get(fedtest.HeaderTask) == "panics" {
							panic("base on fire")
						}
						return base.RoundTrip(req)
					})
				})
				r.vtFail(3)
				time.Sleep(31 * time.Second)
				row.run(r)
				synctest.Wait()
				r.vtBreaker(row.want)
				vtWant(t, "in flight", r.status().InFlight, 0)
				if row.want == "open" {
					time.Sleep(31 * time.Second)
				}
				r.vtGoes(Task{ID: "next trial"})
				r.vtBreaker("closed")
			})
		})
	}
}

func TestBreakerOff(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtBreakerRig(t, func(_ *Config, p *Peer) { p.Breaker.Failures = -1 })
		r.vtFail(100)
		r.vtBreaker("off")
		r.vtGoes(Task{ID: "t"})
	})
}
