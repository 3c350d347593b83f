package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// vtBusy is a ledger that does something before it answers.
type vtBusy struct {
	DenialLedger
	before func()
}

func (l vtBusy) Denied(peer string, task Task, auth Authorization) (Denial, bool) {
	l.before()
	return l.DenialLedger.Denied(peer, task, auth)
}

// TestContextEndsInPreflight: a call whose context ends before it is sent is not
// sent, and is no failure of the peer, whether it was held or not.
func TestContextEndsInPreflight(t *testing.T) {
	for _, held := range []bool{true, false} {
		for _, deadline := range []bool{true, false} {
			t.Run(fmt.Sprint("held ", held, ", deadline ", deadline), func(t *testing.T) {
				vtBubble(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					if deadline {
						ctx, cancel = context.WithTimeout(ctx, time.Minute)
					}
					defer cancel()
					calls := 0
					r := vtHoldRig(t, HoldPolicy{}, func(cfg *Config, p *Peer) {
						p.Breaker.Failures = 1
						cfg.Denials = vtBusy{NewDenialLedger(), func() {
							switch calls++; {
							case held && calls < 3: // it is asked before it is held, and then once more
							case deadline:
								time.Sleep(2 * time.Minute)
							default:
								cancel()
							}
						}}
					})
					r.advertise("cap", 1, "d1")
					if held {
						time.AfterFunc(time.Second, func() { r.accept("cap", 1, "d1") })
					} else {
						r.accept("cap", 1, "d1")
					}
					res := r.get(ctx, vtTask("t"))
					want := context.Canceled
					if deadline {
						want = context.DeadlineExceeded
					}
					if !errors.Is(res.err, want) {
						t.Errorf("%v is not %v", res.err, want)
					}
					if res.d.Outcome != OutcomePolicyUnresolved && res.d.Outcome != OutcomeCanceled {
						t.Errorf("outcome %v", res.d.Outcome)
					}
					vtWant(t, "reason", res.d.Reason, ReasonContextEnded)
					vtWant(t, "attempts", res.d.Attempts, 0)
					synctest.Wait()
					vtWant(t, "sends", r.peer.Sends("t"), 0)
					vtWant(t, "escalations", len(r.raised.snapshot()), 0)
					vtWant(t, "breaker", r.status().Breaker, "closed")
				})
			})
		}
	}
}

// TestHoldCountsForNothing: tasks that time out, are canceled or find no room
// leave the breaker and the retry budget as they were.
func TestHoldCountsForNothing(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{Max: 20, MaxWait: time.Minute}, func(_ *Config, p *Peer) { p.Breaker.Failures = 1 })
		r.state().budget.spent.Store(5 * budgetToken)
		ctx, cancel := context.WithCancel(t.Context())
		var left, stay []Task
		for i := range 10 {
			left, stay = append(left, vtTask(fmt.Sprint("left", i))), append(stay, vtTask(fmt.Sprint("stay", i)))
		}
		canceled, late := r.hold(ctx, left...), r.hold(t.Context(), stay...)
		r.vtUnsent(r.get(t.Context(), vtTask("full")), "full", ReasonHoldFull)
		cancel()
		for i, res := range canceled() {
			r.vtUnsent(res, left[i].ID, ReasonContextEnded)
		}
		for i, res := range late() {
			r.vtUnsent(res, stay[i].ID, ReasonHoldTimeout)
		}
		synctest.Wait()
		vtWant(t, "breaker", r.status().Breaker, "closed")
		vtWant(t, "budget", r.state().budget.spent.Load(), 5*budgetToken)
		vtWant(t, "in flight", r.status().InFlight, 0)
		vtWant(t, "escalations", len(r.raised.snapshot()), 0)
		vtWant(t, "requests", r.peer.Routing.Ledger().Requests, 0)
	})
}

// TestBudget: ten resends are in reserve, and then calls earn them, one for ten.
func TestBudget(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtRetryRig(t, RetryPolicy{MaxAttempts: 2}, func(_ *Config, p *Peer) { p.Breaker.Failures = -1 })
		resends := 0
		fail := func(i int) {
			id := fmt.Sprint("t", i)
			r.peer.On(id, vtDrop())
			res := r.get(t.Context(), Task{ID: id})
			resends += r.peer.Sends(id) - 1
			if r.peer.Sends(id) == 1 {
				vtWant(t, "reason", res.d.Reason, ReasonBudgetExhausted)
				vtWant(t, "body", res.body, "come back later")
			}
		}
		for i := range 11 {
			time.Sleep(time.Minute)
			fail(i)
		}
		// Ten of the eleven took a token, and the calls have earned one together.
		vtWithin(t, "resends of 11 calls", time.Duration(resends), 10, 11)
		for i := 11; i < 1011; i++ {
			time.Sleep(time.Minute)
			fail(i)
		}
		vtWithin(t, "resends of 1,011 calls", time.Duration(resends), 110, 111)
	})
}

// TestBudgetEarned: with the reserve spent, the tenth call from then on may be
// resent.
func TestBudgetEarned(t *testing.T) {
	t.Parallel()
	var b retryBudget
	for range budgetReserve {
		vtWant(t, "reserve", b.take(), true)
	}
	for call := 1; call <= 500; call++ {
		b.earn(0.1)
		if got, want := b.take(), call%10 == 0; got != want {
			t.Fatalf("after %d calls: resend %v, want %v", call, got, want)
		}
	}
	for range 1_000_000 {
		b.earn(0.1)
	}
	for i := range 20 {
		vtWant(t, "saved up", b.take(), i < budgetReserve)
	}
}

// TestBudgetFree: a resend after a newer anchor costs nothing, so that one
// refresh may repair all of the traffic.
func TestBudgetFree(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtRetryRig(t, RetryPolicy{})
		r.state().budget.spent.Store(budgetReserve * budgetToken)
		for i := range 20 {
			r.peer.Rotate()
			time.Sleep(time.Minute)
			id := fmt.Sprint("t", i)
			vtWant(t, "outcome", r.get(t.Context(), Task{ID: id}).d.Outcome, OutcomeDelivered)
			vtWant(t, "sends", r.peer.Sends(id), 2)
		}
	})
}

// spent is what the retry budget has spent, in hundredths of a resend.
func (r *vtRig) spent() time.Duration {
	return time.Duration(r.state().budget.spent.Load() / (budgetToken / 100))
}

// TestBudgetGivenBack: a resend that does not happen in the end costs nothing.
func TestBudgetGivenBack(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtRetryRig(t, RetryPolicy{})
		r.state().budget.spent.Store(5 * budgetToken)
		for _, change := range []func(cancel context.CancelFunc){
			func(cancel context.CancelFunc) { cancel() },
			func(context.CancelFunc) { r.tr.SetDegraded("b", true) },
		} {
			time.Sleep(time.Minute)
			ctx, cancel := context.WithCancel(t.Context())
			r.peer.On("t", vtDrop("4"))
			waiting := r.hold(ctx, Task{ID: "t"})
			vtWithin(t, "spent, in hundredths", r.spent(), 575, 600)
			change(cancel)
			waiting()
			vtWithin(t, "spent, in hundredths", r.spent(), 475, 500)
			cancel()
		}
		vtWant(t, "sends", r.peer.Sends("t"), 2)
	})
}
