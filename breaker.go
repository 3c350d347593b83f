package fedhttp

import (
	"errors"
	"sync"
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
		fault("Breaker.Trials", "%d is negative; want at least 1, or none for the default, 1", p.Trials)
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
// A closed one admits everybody, and a success after a success changes nothing. So as
// long as there is no failure nobody asks gobreaker, whose lock each call would take
// twice; it hears of the failures, and of the success that ends a row of them.
type breaker struct {
	cb        *gobreaker.TwoStepCircuitBreaker[struct{}] // nil: off
	policy    BreakerPolicy
	era       atomic.Pointer[era]
	openUntil atomic.Int64 // Unix nanoseconds
	telling   sync.Mutex   // of those who have not asked gobreaker, and tell it what they met
}

// era is the time that a breaker is in one state. A trial has one for itself.
type era struct {
	of    *breaker
	state gobreaker.State
	calm  atomic.Bool // closed, and no failure since the last success
	trial func(error) // tells gobreaker of the trial
}

func newBreaker(peer string, policy BreakerPolicy) *breaker {
	b := &breaker{policy: policy}
	b.enter(gobreaker.StateClosed)
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
			b.enter(to)
		},
	})
	return b
}

func (b *breaker) enter(state gobreaker.State) {
	e := &era{of: b, state: state}
	e.calm.Store(state == gobreaker.StateClosed)
	b.era.Store(e)
}

// state is kept here too: gobreaker's own takes its lock, and moves an open breaker
// to half-open.
func (b *breaker) state() gobreaker.State { return b.era.Load().state }

func (b *breaker) closed() bool { return b.state() == gobreaker.StateClosed }

// The names of a breaker's states.
const breakerOff = "off"

var breakerStates = []string{gobreaker.StateClosed.String(), gobreaker.StateHalfOpen.String(), gobreaker.StateOpen.String()}

func (b *breaker) open() bool { return b.state() == gobreaker.StateOpen }

// String returns "closed", "half-open", "open", or "off".
func (b *breaker) String() string {
	if b.cb == nil {
		return breakerOff
	}
	return b.state().String()
}

// retryAt is when the next trial may be sent: for an open breaker the end of
// that state, else now.
func (b *breaker) retryAt(now time.Time) time.Time {
	if at := time.Unix(0, b.openUntil.Load()); at.After(now) {
		return at
	}
	return now.Round(0) // wall clock only: it is told to others
}

// slot is the right to send one attempt. It must be released exactly once;
// release after the first does nothing, so it can be deferred as well.
type slot struct{ era *era }

func (s *slot) release(t tally) {
	e := s.era
	if e == nil {
		return
	}
	s.era = nil
	if e.trial != nil {
		e.trial(t.err())
	} else {
		e.tell(t)
	}
}

// err is how gobreaker knows the tally.
func (t tally) err() error {
	switch t {
	case tallySuccess:
		return nil
	case tallyFailure:
		return errTallyFailure
	}
	return errTallyNeutral
}

// tell counts what an attempt of this closed era met. Once the era is over it says
// nothing any more.
func (e *era) tell(t tally) {
	if t == tallyNeutral || t == tallySuccess && e.calm.Load() {
		return
	}
	b := e.of
	b.telling.Lock()
	defer b.telling.Unlock()
	if b.era.Load() != e { // a closed era ends with a failure that is told here, and not otherwise
		return
	}
	e.calm.Store(t == tallySuccess)
	if done, err := b.cb.Allow(); err == nil { // always: it is closed
		done(t.err())
	}
}

// admit asks for a slot. A resend is not admitted to a half-open breaker: its
// slots are for new calls.
func (b *breaker) admit(resend bool) (slot, bool) {
	if b.cb == nil {
		return slot{}, true
	}
	if e := b.era.Load(); e.state == gobreaker.StateClosed {
		return slot{e}, true
	}
	if resend {
		return slot{}, false
	}
	// It moves an open breaker to half-open once its time is up.
	done, err := b.cb.Allow()
	if err != nil {
		return slot{}, false
	}
	if e := b.era.Load(); e.state == gobreaker.StateClosed { // a trial has closed it meanwhile
		done(errTallyNeutral)
		return slot{e}, true
	}
	return slot{&era{trial: done}}, true
}
