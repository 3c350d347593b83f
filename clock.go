package fedhttp

import (
	"sync"
	"time"
)

// attemptClocks is AttemptTimeout at work for all attempts at a peer. They have
// the same time, so the order in which they begin is the order in which they
// end, and one timer serves all: it is set for the one that ends first, and left
// alone when that is done in time.
type attemptClocks struct {
	limit time.Duration
	epoch time.Time // from which the clocks count

	mu          sync.Mutex
	first, last *attemptClock
	timer       *time.Timer
	set         bool // the timer will ring
}

// attemptClock is one attempt's place among them. The zero value does not run.
type attemptClock struct {
	clocks     *attemptClocks
	at         time.Duration // when it ends, or would have ended
	prev, next *attemptClock
	expires    interface{ cancel() }
}

// now is the time since the epoch: half the price of the time of day.
func (s *attemptClocks) now() time.Duration { return time.Since(s.epoch) }

// start begins the attempt's time, or begins it anew, and returns when that is.
func (s *attemptClocks) start(k *attemptClock, expires interface{ cancel() }) (now time.Duration) {
	now = s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	k.clocks, k.expires = s, expires
	if k.runs() {
		s.remove(k)
	}
	s.add(k, now)
	return now
}

// runs reports whether k is among its clocks, whose mu is held.
func (k *attemptClock) runs() bool { return k.prev != nil || k.clocks.first == k }

// touch begins anew, if the clock still runs.
func (k *attemptClock) touch() {
	if k == nil || k.clocks == nil {
		return
	}
	now := k.clocks.now()
	k.clocks.mu.Lock()
	defer k.clocks.mu.Unlock()
	if k.runs() {
		k.clocks.remove(k)
		k.clocks.add(k, now)
	}
}

func (k *attemptClock) stop() {
	if k.clocks == nil {
		return
	}
	k.clocks.mu.Lock()
	defer k.clocks.mu.Unlock()
	if k.runs() {
		k.clocks.remove(k)
	}
}

// left is what a clock that was stopped has left of its time.
func (k *attemptClock) left() time.Duration { return k.at - k.clocks.now() }

// add puts k at the end. s.mu is held.
func (s *attemptClocks) add(k *attemptClock, now time.Duration) {
	k.at, k.prev, k.next = now+s.limit, s.last, nil
	if s.last == nil {
		s.first = k
	} else {
		s.last.next = k
	}
	s.last = k
	s.wind(now)
}

// remove takes k out. s.mu is held.
func (s *attemptClocks) remove(k *attemptClock) {
	if k.prev == nil {
		s.first = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next == nil {
		s.last = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.prev, k.next = nil, nil
}

// wind sets the timer, unless it is set already: it then rings too early at
// worst, and looks again. s.mu is held.
func (s *attemptClocks) wind(now time.Duration) {
	if s.set || s.first == nil {
		return
	}
	s.set = true
	if wait := s.first.at - now; s.timer == nil {
		s.timer = time.AfterFunc(wait, s.ring)
	} else {
		s.timer.Reset(wait)
	}
}

// ring ends the attempts whose time is up.
func (s *attemptClocks) ring() {
	now := s.now()
	var over []interface{ cancel() }
	s.mu.Lock()
	for s.first != nil && now >= s.first.at {
		over = append(over, s.first.expires)
		s.remove(s.first)
	}
	s.set = false
	s.wind(now)
	s.mu.Unlock()
	for _, o := range over {
		o.cancel()
	}
}
