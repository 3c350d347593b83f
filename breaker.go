package fedhttp

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
)

// BreakerPolicy says when calls to a peer stop being sent, and when one is
// tried again. The breaker judges attempts: routing and ambiguous failures and
// 5xx answers are failures, answers below 400 and rejections are successes (the
// peer works, whatever it says), and other 4xx answers, the caller's own
// cancellation and a stale anchor that a refresh repaired do not count.
type BreakerPolicy struct {
	// Failures in a row open the breaker. Zero: 10. Negative: the breaker is off.
	Failures int
	// OpenFor is how long an open breaker refuses calls before it lets trials
	// through. Zero: 30 s.
	OpenFor time.Duration
	// Trials is how many calls a half-open breaker admits at once, and how many
	// must succeed in a row to close it. Zero: 1.
	Trials int
}

func (p BreakerPolicy) withDefaults(fault func(field, format string, args ...any)) BreakerPolicy {
	if p.Failures == 0 {
		p.Failures = 10
	}
	p.OpenFor = orDefault(p.OpenFor, 30*time.Second, "Breaker.OpenFor", fault)
	if p.Trials < 0 {
		fault("Breaker.Trials", "%d is negative", p.Trials)
	}
	if p.Trials == 0 {
		p.Trials = 1
	}
	return p
}

// tally is how an attempt counts for the breaker.
type tally uint8

const (
	tallySuccess tally = iota
	tallyFailure
	tallyNeutral // counts as nothing, and frees a trial's slot
)

var (
	errTallyFailure = errors.New("failure")
	errTallyNeutral = errors.New("neutral")
)

// breaker is one peer's circuit breaker.
//
// gobreaker's State moves an open breaker to half-open and takes its lock, so
// the state is kept here as well, for those who only want to look.
type breaker struct {
	cb        *gobreaker.TwoStepCircuitBreaker[struct{}] // nil: off
	policy    BreakerPolicy
	state     atomic.Int32 // a gobreaker.State
	openUntil atomic.Int64 // Unix nanoseconds
}

func newBreaker(peer string, policy BreakerPolicy) *breaker {
	b := &breaker{policy: policy}
	if policy.Failures < 0 {
		return b
	}
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        peer,
		MaxRequests: uint32(min(policy.Trials, 1<<30)),
		Timeout:     policy.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			return int64(c.ConsecutiveFailures) >= int64(policy.Failures)
		},
		IsExcluded: func(err error) bool { return err == errTallyNeutral }, //nolint:errorlint // our own sentinel, never wrapped
		// Runs under gobreaker's lock: it may only store.
		OnStateChange: func(_ string, _, to gobreaker.State) {
			if to == gobreaker.StateOpen {
				b.openUntil.Store(time.Now().Add(policy.OpenFor).UnixNano())
			}
			b.state.Store(int32(to))
		},
	})
	return b
}

func (b *breaker) closed() bool { return gobreaker.State(b.state.Load()) == gobreaker.StateClosed }

// The names of a breaker's states.
const breakerOff = "off"

var breakerStates = []string{gobreaker.StateClosed.String(), gobreaker.StateHalfOpen.String(), gobreaker.StateOpen.String()}

func (b *breaker) open() bool { return gobreaker.State(b.state.Load()) == gobreaker.StateOpen }

// String returns "closed", "half-open", "open", or "off".
func (b *breaker) String() string {
	if b.cb == nil {
		return breakerOff
	}
	return gobreaker.State(b.state.Load()).String()
}

// retryAt is when the next trial may be sent: for an open breaker the end of
// that state, else now.
func (b *breaker) retryAt(now time.Time) time.Time {
	if at := time.Unix(0, b.openUntil.Load()); at.After(now) {
		return at
	}
	return now
}

// slot is the right to send one attempt. It must be released exactly once;
// release after the first does nothing, so it can be deferred as well.
type slot struct {
	done func(error)
}

func (s *slot) release(t tally) {
	done := s.done
	if done == nil {
		return
	}
	s.done = nil
	switch t {
	case tallySuccess:
		done(nil)
	case tallyFailure:
		done(errTallyFailure)
	default:
		done(errTallyNeutral)
	}
}

// admit asks for a slot. A resend is not admitted to a half-open breaker: its
// slots are for new calls.
func (b *breaker) admit(resend bool) (slot, bool) {
	if b.cb == nil {
		return slot{}, true
	}
	if resend && !b.closed() {
		return slot{}, false
	}
	done, err := b.cb.Allow()
	if err != nil {
		return slot{}, false
	}
	s := slot{done}
	// Allow itself moves an open breaker to half-open once its time is up, so
	// the state that counts is the one after it.
	if resend && !b.closed() {
		s.release(tallyNeutral)
		return slot{}, false
	}
	return s, true
}
