package fedhttp

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// attemptClocks is AttemptTimeout at work for all attempts that have the same.
//
// So the order in which they begin is the order in which they end, and one timer
// serves all that are in a lane: it is set for the one that ends first, and left
// alone when that is done in time.
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

// clockLane has the clocks of some of the attempts. It fills a line of the cache.
type clockLane struct {
	clocks *attemptClocks

	mu          sync.Mutex
	first, last *attemptClock
	timer       *time.Timer
	set         bool // the timer will ring
	_           [15]byte

	stopped atomic.Pointer[attempt] // the first whose clock is to be taken out; clock.of is the next
}

// attemptClock is one attempt's place among them. The zero value does not run.
type attemptClock struct {
	lane       *clockLane
	at         time.Duration // when it ends, or would have ended; under lane.mu, as prev and next are
	prev, next *attemptClock
	of         *attempt
	state      atomic.Uint32
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
	k := &a.clock
	k.of, k.lane = a, s.lock()
	k.state.Store(clockRuns)
	k.lane.add(k, now)
	k.lane.unlock()
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

// unlock takes out what has stopped meanwhile.
func (l *clockLane) unlock() {
	if l.stopped.Load() != nil {
		for a := l.stopped.Swap(nil); a != nil; a = a.clock.of {
			l.remove(&a.clock)
		}
	}
	l.mu.Unlock()
}

// touch begins anew, if the clock still runs.
func (k *attemptClock) touch() {
	if k == nil || k.lane == nil {
		return
	}
	now := k.lane.clocks.now()
	k.lane.mu.Lock()
	defer k.lane.unlock()
	if k.state.Load() == clockRuns {
		k.lane.remove(k)
		k.lane.add(k, now)
	}
}

// stop reports whether the time was up: the attempt has been ended, or is about to
// be. Else it will not be.
func (k *attemptClock) stop() (up bool) {
	if !k.state.CompareAndSwap(clockRuns, clockStopped) {
		return k.state.Load() == clockUp
	}
	l := k.lane
	if l.mu.TryLock() {
		l.remove(k)
		l.unlock()
		return false
	}
	for a := k.of; ; {
		if k.of = l.stopped.Load(); l.stopped.CompareAndSwap(k.of, a) {
			return false
		}
	}
}

// left is what a clock that was stopped has left of its time.
func (k *attemptClock) left() time.Duration {
	k.lane.mu.Lock()
	defer k.lane.unlock()
	return k.at - k.lane.clocks.now()
}

// add puts k at the end. l.mu is held.
func (l *clockLane) add(k *attemptClock, now time.Duration) {
	k.at, k.prev, k.next = now+l.clocks.limit, l.last, nil
	if l.last == nil {
		l.first = k
	} else {
		l.last.next = k
	}
	l.last = k
	l.wind(now)
}

// remove takes k out, if it has not been. l.mu is held.
func (l *clockLane) remove(k *attemptClock) {
	switch {
	case k.prev != nil:
		k.prev.next = k.next
	case l.first == k:
		l.first = k.next
	default:
		return
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.prev, k.next = nil, nil
}

// wind sets the timer, unless it is set already: it then rings too early at
// worst, and looks again. l.mu is held.
func (l *clockLane) wind(now time.Duration) {
	if l.set || l.first == nil {
		return
	}
	l.set = true
	if wait := l.first.at - now; l.timer == nil {
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
	l.set = false
	l.wind(now)
	l.unlock()
	for _, a := range over {
		a.cancel()
	}
}

// over takes out the clocks whose time is up. l.mu is held.
func (l *clockLane) over(now time.Duration) (over []*attempt) {
	for l.first != nil && now >= l.first.at {
		k := l.first
		l.remove(k)
		if k.state.CompareAndSwap(clockRuns, clockUp) {
			over = append(over, k.of)
		}
	}
	return over
}
