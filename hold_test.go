package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// vtAsks is a ledger that counts how often each capability is asked about,
// which is how often its tasks were awake.
type vtAsks struct {
	DenialLedger
	mu   sync.Mutex
	asks map[string]int
}

func (l *vtAsks) Denied(peer string, task Task, auth Authorization) (Denial, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asks == nil {
		l.asks = map[string]int{}
	}
	l.asks[task.Capability]++
	return l.DenialLedger.Denied(peer, task, auth)
}

func (l *vtAsks) of(capability string) int {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asks[capability]
}

// hold sends the tasks, each from a goroutine of its own, and waits until they
// are held. The results come when done is called.
func (r *vtRig) hold(ctx context.Context, tasks ...Task) (done func() []vtResult) {
	r.t.Helper()
	results := make([]vtResult, len(tasks))
	var calls sync.WaitGroup
	for i, task := range tasks {
		calls.Go(func() { results[i] = r.get(ctx, task) })
	}
	synctest.Wait()
	return func() []vtResult { calls.Wait(); return results }
}

// vtHoldRig has a peer that ignores receipts, as its engine knows of no agreement.
func vtHoldRig(t *testing.T, h HoldPolicy, more ...func(*Config, *Peer)) *vtRig {
	t.Helper()
	return newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
		p.Hold, p.Receipt = h, IgnoreReceipt
		for _, change := range more {
			change(cfg, p)
		}
	})
}

func TestHoldWakesOnItsOwnKeyOnly(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		ledger := &vtAsks{DenialLedger: NewDenialLedger()}
		r := vtHoldRig(t, HoldPolicy{}, func(cfg *Config, _ *Peer) { cfg.Denials = ledger })
		r.advertise("cap", 1, "d1")
		done := r.hold(t.Context(), vtTask("t"))
		vtWant(t, "held", r.status().Held, 1)
		asleep := ledger.of("cap")

		for i := range 50 {
			other := fmt.Sprint("other", i)
			r.advertise(other, 1, "d1")
			r.accept(other, 1, "d1")
			r.book.Withdraw("b", other)
		}
		r.book.Accept(Policy{PolicyKey: PolicyKey{Peer: "c", Capability: "cap", Epoch: 1}, Digest: "d1"})
		vtWant(t, "asks after changes of other keys", ledger.of("cap"), asleep)

		time.Sleep(time.Minute)
		r.accept("cap", 1, "d1")
		res := done()[0]
		vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
		vtWant(t, "at", res.at, time.Minute)
		vtWant(t, "held for", res.d.HeldFor, time.Minute)
		vtWant(t, "sends", r.peer.Sends("t"), 1)
		vtWant(t, "sent at", r.peer.Routing.Log()[0].Time.Sub(r.begin), time.Minute)
		vtWant(t, "held", r.status().Held, 0)
	})
}

func TestHoldWakesBy(t *testing.T) {
	for name, resolve := range map[string]func(*vtRig){
		"accept": func(r *vtRig) { r.accept("cap", 1, "d1") },
		"negotiate": func(r *vtRig) {
			r.book.CacheNegotiation(Negotiation{PolicyKey: vtKey("cap", 1), Digest: "d1", ExpiresAt: time.Now().Add(time.Hour)})
		},
		"advertise": func(r *vtRig) { r.accept("cap", 2, "d2"); r.advertise("cap", 2, "d2") },
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtHoldRig(t, HoldPolicy{})
				r.advertise("cap", 1, "d1")
				done := r.hold(t.Context(), vtTask("t"))
				time.Sleep(time.Second)
				resolve(r)
				vtWant(t, "outcome", done()[0].d.Outcome, OutcomeDelivered)
				vtWant(t, "at", r.elapsed(), time.Second)
			})
		})
	}
}

func TestHoldEnds(t *testing.T) {
	rows := []struct {
		name   string
		hold   HoldPolicy
		policy time.Duration // of the task, from its start; zero: none
		reason Reason
		at     time.Duration
	}{
		{"MaxWait by default", HoldPolicy{}, 0, ReasonHoldTimeout, 20 * time.Minute},
		{"MaxWait", HoldPolicy{MaxWait: 90 * time.Second}, 0, ReasonHoldTimeout, 90 * time.Second},
		{"policy deadline", HoldPolicy{}, time.Minute, ReasonPolicyDeadline, time.Minute},
		{"policy deadline beyond MaxWait", HoldPolicy{}, time.Hour, ReasonHoldTimeout, 20 * time.Minute},
		{"policy deadline with MaxWait", HoldPolicy{}, 20 * time.Minute, ReasonPolicyDeadline, 20 * time.Minute},
		{"policy deadline in the past", HoldPolicy{}, -time.Second, ReasonPolicyDeadline, 0},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtHoldRig(t, row.hold)
				r.advertise("cap", 1, "d1")
				task := vtTask("t")
				if row.policy != 0 {
					task.PolicyDeadline = time.Now().Add(row.policy)
				}
				res := r.get(t.Context(), task)
				r.vtUnsent(res, "t", row.reason)
				vtWant(t, "at", res.at, row.at)
				vtWant(t, "held for", res.d.HeldFor, row.at)
				vtWant(t, "held", r.status().Held, 0)
			})
		})
	}
}

// TestHoldDeadlineFirst lets the policy and the deadline come in the same
// instant, in either order of their timers: the deadline wins.
func TestHoldDeadlineFirst(t *testing.T) {
	for name, task := range map[string]func(*Task){
		"policy deadline": func(task *Task) { task.PolicyDeadline = time.Now().Add(time.Minute) },
		"MaxWait":         func(*Task) {},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtHoldRig(t, HoldPolicy{MaxWait: time.Minute})
				var tasks []Task
				for i := range 200 {
					capability := fmt.Sprint("cap", i)
					r.advertise(capability, 1, "d1")
					tasks = append(tasks, Task{ID: capability, Capability: capability, Obligations: Terms{"residency": "eu"}})
					task(&tasks[i])
					if i%2 == 0 {
						time.AfterFunc(time.Minute, func() { r.accept(capability, 1, "d1") })
					}
				}
				done := r.hold(t.Context(), tasks...)
				for i := 1; i < len(tasks); i += 2 {
					time.AfterFunc(time.Minute, func() { r.accept(tasks[i].Capability, 1, "d1") })
				}
				for i, res := range done() {
					vtWant(t, tasks[i].ID, res.d.Outcome, OutcomePolicyUnresolved)
					vtWant(t, tasks[i].ID+" at", res.at, time.Minute)
				}
				vtWant(t, "requests", r.peer.Routing.Ledger().Requests, 0)
			})
		})
	}
}

func TestHoldFull(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{Max: 3})
		r.advertise("cap", 1, "d1")
		leaves := vtTask("leaves")
		leaves.PolicyDeadline = time.Now().Add(time.Second)
		first := r.hold(t.Context(), vtTask("1"), vtTask("2"), leaves)
		vtWant(t, "held", r.status().Held, 3)
		r.vtUnsent(r.get(t.Context(), vtTask("4")), "4", ReasonHoldFull)
		vtWant(t, "refused at", r.elapsed(), 0)

		time.Sleep(time.Second)
		synctest.Wait() // it has left
		second := r.hold(t.Context(), vtTask("5"))
		vtWant(t, "held", r.status().Held, 3)
		r.vtUnsent(r.get(t.Context(), vtTask("6")), "6", ReasonHoldFull)
		r.accept("cap", 1, "d1")
		for _, res := range append(first()[:2], second()...) {
			vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
		}
		vtWant(t, "held", r.status().Held, 0)
		vtWant(t, "requests", r.peer.Routing.Ledger().Requests, 3)
	})
}

func TestHoldNegativeMax(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{Max: -1})
		r.advertise("cap", 1, "d1")
		for range 5 {
			res := r.get(t.Context(), vtTask("t"))
			r.vtUnsent(res, "t", ReasonNotAccepted)
			vtWant(t, "held for", res.d.HeldFor, 0)
		}
		vtWant(t, "elapsed", r.elapsed(), 0)
		synctest.Wait()
		vtWant(t, "signals", len(r.told.snapshot()), 1)
	})
}

func TestHoldContextEnds(t *testing.T) {
	cause := errors.New("the user went home")
	for name, row := range map[string]struct {
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		want []error
	}{
		"cancel with cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Minute, func() { cancel(cause) })
			return ctx, func() { cancel(nil) }
		}, []error{context.Canceled, cause}},
		"cancel": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Minute, cancel)
			return ctx, cancel
		}, []error{context.Canceled}},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		}, []error{context.DeadlineExceeded}},
		"deadline with cause": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Minute, cause)
		}, []error{context.DeadlineExceeded, cause}},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtHoldRig(t, HoldPolicy{})
				r.advertise("cap", 1, "d1")
				ctx, cancel := row.ctx(t.Context())
				defer cancel()
				res := r.get(ctx, vtTask("t"))
				r.vtUnsent(res, "t", ReasonContextEnded)
				for _, want := range row.want {
					if !errors.Is(res.err, want) {
						t.Errorf("%v is not %v", res.err, want)
					}
				}
				vtWant(t, "at", res.at, time.Minute)
				vtWant(t, "held for", res.d.HeldFor, time.Minute)
			})
		})
	}
}

func TestHoldClose(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{})
		done := r.hold(t.Context(), vtTask("0"), vtTask("1"), vtTask("2"))
		time.Sleep(time.Minute)
		if err := r.tr.Close(); err != nil {
			t.Error(err)
		}
		for i, res := range done() {
			r.vtUnsent(res, fmt.Sprint(i), ReasonClosed)
			if !errors.Is(res.err, ErrClosed) {
				t.Errorf("%v is not ErrClosed", res.err)
			}
			vtWant(t, "at", res.at, time.Minute)
		}
		if res := r.get(t.Context(), Task{ID: "later"}); !errors.Is(res.err, ErrClosed) {
			t.Errorf("after Close: %v", res.err)
		}
		vtWant(t, "sends", r.peer.Sends("later"), 0)
	})
}

func TestHoldNotWithoutObligations(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{}, func(_ *Config, p *Peer) { p.DefaultTerms = Terms{"residency": "eu"} })
		r.advertise("cap", 1, "d1")
		done := r.hold(t.Context(), Task{ID: "held", Capability: "cap", Obligations: Terms{"output-licensing": "any"}})
		vtWant(t, "held", r.status().Held, 1)
		for id, task := range map[string]Task{
			"none":    {Capability: "cap"},
			"unknown": {Capability: "never advertised"},
			"granted": {Capability: "cap", Obligations: Terms{"residency": "eu"}},
			"no task": {},
		} {
			task.ID = id
			task.Capability = strings.ReplaceAll(task.Capability, " ", "-")
			res := r.get(t.Context(), task)
			vtWant(t, id, res.d.Outcome, OutcomeDelivered)
			vtWant(t, id+": held for", res.d.HeldFor, 0)
			vtWant(t, id+": sends", r.peer.Sends(id), 1)
		}
		vtWant(t, "elapsed", r.elapsed(), 0)
		vtWant(t, "the held task's sends", r.peer.Sends("held"), 0)
		r.accept("cap", 1, "d1")
		vtWant(t, "outcome", done()[0].d.Outcome, OutcomeDelivered)
	})
}

// TestHoldDenialMeanwhile: a denial that appears while a task is held refuses
// it when its policy resolves.
func TestHoldDenialMeanwhile(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		ledger := NewDenialLedger()
		r := vtHoldRig(t, HoldPolicy{}, func(cfg *Config, _ *Peer) { cfg.Denials = ledger })
		r.advertise("cap", 1, "d1")
		narrow, wide := vtTask("narrow"), vtTask("wide")
		narrow.Scope = "s1"
		done := r.hold(t.Context(), narrow, wide)
		time.Sleep(time.Minute)
		err := ledger.Record(t.Context(), Denial{
			Peer: "b", Capability: "cap", Scope: "s1", Epoch: 1, Digest: "d1", PolicyReason: "NARROWED", CorrelationID: "pe-1",
			At: time.Now(), Until: time.Now().Add(time.Hour),
		})
		if err != nil {
			t.Fatal(err)
		}
		r.accept("cap", 1, "d1")
		results := done()
		if !errors.Is(results[0].err, ErrScopeDenied) {
			t.Errorf("%v is not ErrScopeDenied", results[0].err)
		}
		vtWant(t, "reason", results[0].d.Reason, ReasonDeniedBefore)
		vtWant(t, "policy reason", results[0].d.PolicyReason, "NARROWED")
		vtWant(t, "correlation id", results[0].d.CorrelationID, "pe-1")
		vtWant(t, "held for", results[0].d.HeldFor, time.Minute)
		vtWant(t, "sends", r.peer.Sends("narrow"), 0)
		vtWant(t, "other scope", results[1].d.Outcome, OutcomeDelivered)
		vtWant(t, "other scope's sends", r.peer.Sends("wide"), 1)
	})
}
