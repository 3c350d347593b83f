package fedhttp

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// attemptClocks is AttemptTimeout at work for all attempts that have the same.
//
// So the order in which they begin is the order in which they end, and one timer
// serves all that are in a lane: it is set for the one that ends first, left alone
// when that is done in time, and looks through the lane when it rings.
//
// No attempt waits for another. There are several lanes, of which one takes what is
// free; and a clock whose lane is not free when it stops is taken out by who is next
// there.
type attemptClocks struct {
	limit time.Duration
	epoch time.Time // from which the clocks count
	lanes [clockLanes]clockLane
}

const clockLanes = 16

// clockLane has the clocks of some of the attempts. It fills two lines of the cache.
type clockLane struct {
	clocks *attemptClocks

	mu     sync.Mutex
	set    bool // the timer will ring
	timer  *time.Timer
	places []*attempt
	free   []uint32 // the places that nobody has

	stopped atomic.Pointer[attempt] // the first whose clock is to be taken out; clock.next is the next
	_       [40]byte
}

// attemptClock is one attempt's place among them. The zero value does not run.
type attemptClock struct {
	lane  *clockLane
	at    time.Duration // when it ends, or would have ended; under lane.mu
	next  *attempt      // that has stopped as well, and is to be taken out
	place uint32
	state atomic.Uint32
}

const (
	clockUnused uint32 = iota
	clockRuns
	clockStopped
	clockUp // its time is up
)

func newAttemptClocks(limit time.Duration) *attemptClocks {
	s := &attemptClocks{limit: limit, epoch: time.Now()}
	for i := range s.lanes {
		s.lanes[i].clocks = s
	}
	return s
}

// now is the time since the epoch: half the price of the time of day.
func (s *attemptClocks) now() time.Duration { return time.Since(s.epoch) }

// start begins the attempt's time, once, and returns when that is.
func (s *attemptClocks) start(a *attempt) (now time.Duration) {
	now = s.now()
	l := s.lock()
	k := &a.clock
	k.lane, k.at = l, now+s.limit
	k.state.Store(clockRuns)
	l.add(a)
	if !l.set { // else it rings before that at the latest, and then looks again
		l.wind(s.limit)
	}
	l.unlock()
	return now
}

// lock locks a lane at which nobody is, as far as there is one.
func (s *attemptClocks) lock() *clockLane {
	at := rand.Uint32() //nolint:gosec // to spread them
	for i := range uint32(clockLanes) {
		if l := &s.lanes[(at+i)%clockLanes]; l.mu.TryLock() {
			return l
		}
	}
	l := &s.lanes[at%clockLanes]
	l.mu.Lock()
	return l
}

// add gives the attempt a place. l.mu is held.
func (l *clockLane) add(a *attempt) {
	if last := len(l.free) - 1; last >= 0 {
		a.clock.place, l.free = l.free[last], l.free[:last]
		l.places[a.clock.place] = a
		return
	}
	a.clock.place = uint32(len(l.places)) //nolint:gosec // no process has that many attempts
	l.places = append(l.places, a)
}

// remove frees the attempt's place. l.mu is held.
func (l *clockLane) remove(a *attempt) {
	l.places[a.clock.place] = nil
	l.free = append(l.free, a.clock.place)
}

// unlock takes out what has stopped meanwhile.
func (l *clockLane) unlock() {
	if l.stopped.Load() != nil {
		for a := l.stopped.Swap(nil); a != nil; a = a.clock.next {
			l.remove(a)
		}
	}
	l.mu.Unlock()
}

// touch begins the attempt's time anew, if it still runs.
func (a *attempt) touch() {
	if a == nil || a.clock.lane == nil {
		return
	}
	l := a.clock.lane
	now := l.clocks.now()
	l.mu.Lock()
	defer l.unlock()
	if a.clock.state.Load() == clockRuns {
		a.clock.at = now + l.clocks.limit
	}
}

// stopClock reports whether the time was up: the attempt has been ended, or is about
// to be. Else it will not be.
func (a *attempt) stopClock() (up bool) {
	k := &a.clock
	if !k.state.CompareAndSwap(clockRuns, clockStopped) {
		return k.state.Load() == clockUp
	}
	l := k.lane
	if l.mu.TryLock() {
		l.remove(a)
		l.unlock()
		return false
	}
	for {
		if k.next = l.stopped.Load(); l.stopped.CompareAndSwap(k.next, a) {
			return false
		}
	}
}

// timeLeft is what a clock that was stopped has left of its time.
func (a *attempt) timeLeft() time.Duration {
	l := a.clock.lane
	l.mu.Lock()
	defer l.unlock()
	return a.clock.at - l.clocks.now()
}

// wind sets the timer. l.mu is held.
func (l *clockLane) wind(wait time.Duration) {
	l.set = true
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.ring)
	} else {
		l.timer.Reset(wait)
	}
}

// ring ends the attempts whose time is up.
func (l *clockLane) ring() {
	now := l.clocks.now()
	l.mu.Lock()
	over := l.over(now)
	l.unlock()
	for _, a := range over {
		a.cancel()
	}
}

// over takes out the clocks whose time is up, and sets the timer for the first of
// the others. l.mu is held.
func (l *clockLane) over(now time.Duration) (over []*attempt) {
	const never = time.Duration(math.MaxInt64)
	first := never
	for _, a := range l.places {
		switch {
		case a == nil:
		case a.clock.at > now:
			first = min(first, a.clock.at)
		case a.clock.state.CompareAndSwap(clockRuns, clockUp): // else whoever stopped it has it taken out
			over = append(over, a)
			l.remove(a)
		}
	}
	if l.set = first != never; l.set {
		l.wind(first - now)
	}
	return over
}
