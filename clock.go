package fedhttp

import (
	"math/rand/v2"
	"sync"
	"time"
)

// attemptClocks is AttemptTimeout at work for all attempts that have the same.
//
// So the order in which they begin is the order in which they end, and one timer
// serves all that are in a lane: it is set for the one that ends first, and left
// alone when that is done in time. There are several lanes, so that nobody waits
// for anybody.
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
	_           [23]byte
}

// attemptClock is one attempt's place among them. The zero value does not run.
type attemptClock struct {
	lane       *clockLane
	at         time.Duration // when it ends, or would have ended
	prev, next *attemptClock
	of         *attempt
	up         bool // its time was up; under lane.mu
}

func newAttemptClocks(limit time.Duration) *attemptClocks {
	s := &attemptClocks{limit: limit, epoch: time.Now()}
	for i := range s.lanes {
		s.lanes[i].clocks = s
	}
	return s
}

// now is the time since the epoch: half the price of the time of day.
func (s *attemptClocks) now() time.Duration { return time.Since(s.epoch) }

// start begins the attempt's time and returns when that is. It must not run yet.
func (s *attemptClocks) start(a *attempt) (now time.Duration) {
	now = s.now()
	k := &a.clock
	k.of, k.up, k.lane = a, false, s.lock()
	k.lane.add(k, now)
	k.lane.mu.Unlock()
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

// runs reports whether k is in its lane, whose mu is held.
func (k *attemptClock) runs() bool { return k.prev != nil || k.lane.first == k }

// touch begins anew, if the clock still runs.
func (k *attemptClock) touch() {
	if k == nil || k.lane == nil {
		return
	}
	now := k.lane.clocks.now()
	k.lane.mu.Lock()
	defer k.lane.mu.Unlock()
	if k.runs() {
		k.lane.remove(k)
		k.lane.add(k, now)
	}
}

// stop reports whether the time was up: the attempt has been ended, or is about to
// be. Else it will not be.
func (k *attemptClock) stop() (up bool) {
	if k.lane == nil {
		return false
	}
	k.lane.mu.Lock()
	defer k.lane.mu.Unlock()
	if k.runs() {
		k.lane.remove(k)
	}
	return k.up
}

// left is what a clock that was stopped has left of its time.
func (k *attemptClock) left() time.Duration { return k.at - k.lane.clocks.now() }

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

// remove takes k out. l.mu is held.
func (l *clockLane) remove(k *attemptClock) {
	if k.prev == nil {
		l.first = k.next
	} else {
		k.prev.next = k.next
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
	l.mu.Unlock()
	for _, a := range over {
		a.cancel()
	}
}

// over takes out the clocks whose time is up. l.mu is held.
func (l *clockLane) over(now time.Duration) (over []*attempt) {
	for l.first != nil && now >= l.first.at {
		k := l.first
		over = append(over, k.of)
		l.remove(k)
		k.up = true
	}
	return over
}
