package fedhttp

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sony/gobreaker/v2"
)

// TestBreakerAsGobreaker: a breaker that keeps most of the traffic from gobreaker
// decides as one that asks it each time. Several attempts are under way at once, end in
// any order, and some outlast the state that they began in.
func TestBreakerAsGobreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered, late := map[gobreaker.State]int{}, 0
		for seed := range uint64(1000) {
			random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same each time
			policy := BreakerPolicy{Failures: 1 + random.IntN(3), OpenFor: 10 * time.Second, Trials: 1 + random.IntN(3)}
			b := newBreaker("b", policy)
			asked := gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
				MaxRequests: uint32(policy.Trials), Timeout: policy.OpenFor, //nolint:gosec // 3 at most
				ReadyToTrip: func(c gobreaker.Counts) bool { return int(c.ConsecutiveFailures) >= policy.Failures },
				IsExcluded:  func(err error) bool { return errors.Is(err, errTallyNeutral) },
			})
			type sent struct {
				slot slot
				done func(error)
			}
			var under []sent
			for step := range 200 {
				switch n := random.IntN(10); {
				case n < 4 && len(under) < 12:
					s, ok := b.admit(false)
					done, err := asked.Allow()
					if ok != (err == nil) {
						t.Fatalf("seed %d, step %d: admitted is %v, gobreaker says %v", seed, step, ok, err)
					}
					if ok {
						under = append(under, sent{s, done})
					}
				case n < 8 && len(under) > 3:
					at := random.IntN(len(under))
					tally := tally(random.IntN(3)) //nolint:gosec // one of three
					if e := under[at].slot.era; e.trial == nil && b.era.Load() != e && b.closed() {
						late++
					}
					under[at].slot.release(tally)
					under[at].slot.release(tally) // counts once
					under[at].done(tally.err())
					under = append(under[:at], under[at+1:]...)
				default:
					time.Sleep(time.Duration(random.IntN(6)) * time.Second)
				}
				// gobreaker's State moves an open breaker whose time is up, ours waits for a call.
				if want := asked.State(); b.state() != want && (b.state() != gobreaker.StateOpen || want != gobreaker.StateHalfOpen) {
					t.Fatalf("seed %d, step %d: %v, gobreaker is %v", seed, step, b.state(), want)
				}
				entered[b.state()]++
			}
		}
		for _, state := range []gobreaker.State{gobreaker.StateClosed, gobreaker.StateHalfOpen, gobreaker.StateOpen} {
			if entered[state] < 1000 {
				t.Errorf("%v only %d times: %v", state, entered[state], entered)
			}
		}
		if late < 100 {
			t.Errorf("only %d attempts of one closed state ended in another", late)
		}
	})
}

// TestBreakerClosedMeanwhile: a breaker is closed by one trial while other calls ask for
// another. What those meet counts as in any closed breaker.
func TestBreakerClosedMeanwhile(t *testing.T) {
	t.Parallel()
	for i := range 3000 {
		b := newBreaker("b", BreakerPolicy{Failures: 2, OpenFor: time.Nanosecond, Trials: 1})
		for range 2 {
			s, _ := b.admit(false)
			s.release(tallyFailure)
		}
		trial, ok := b.admit(false)
		for !ok {
			trial, ok = b.admit(false)
		}
		var all sync.WaitGroup
		all.Go(func() { trial.release(tallySuccess) })
		for range 2 {
			all.Go(func() {
				for range 50 {
					if s, ok := b.admit(false); ok {
						s.release(tallyFailure)
						return
					}
				}
			})
		}
		all.Wait()
		if e := b.era.Load(); e.state == gobreaker.StateClosed && e.calm.Load() != (b.inARow() == 0) {
			t.Fatalf("round %d: calm is %v after %d failures in a row", i, e.calm.Load(), b.inARow())
		}
	}
}

// TestBreakerCountsAtOnce: attempts that end at the same time leave neither a failure
// that no success ends, nor a success that hides one.
func TestBreakerCountsAtOnce(t *testing.T) {
	t.Parallel()
	const failures = 100_000
	b := newBreaker("b", BreakerPolicy{Failures: failures, OpenFor: time.Hour, Trials: 1})
	for range 20_000 {
		var both sync.WaitGroup
		for _, tally := range []tally{tallyFailure, tallySuccess, tallySuccess, tallyFailure} {
			both.Go(func() {
				s, _ := b.admit(false)
				s.release(tally)
			})
		}
		both.Wait()
		// In whatever order they came: what is not calm has had a failure as the last.
		if inARow := b.inARow(); b.era.Load().calm.Load() != (inARow == 0) {
			t.Fatalf("calm is %v after %d failures in a row", b.era.Load().calm.Load(), inARow)
		}
	}
}

// inARow is how many failures gobreaker has counted since the last success.
func (b *breaker) inARow() uint32 { return b.cb.Counts().ConsecutiveFailures }
