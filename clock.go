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
// serves them all: it is set for the one that ends first, and left alone when that is
// done in time. Not one for each lane: a processor that has a timer looks at the time
// whenever it schedules.
//
// No attempt waits for another. There are several lanes, of which one takes what is
// free; and a clock whose lane is not free when it stops is taken out by who is next
// there.
type attemptClocks struct {
	limit time.Duration
	epoch time.Time // from which the clocks count
	alarm clockAlarm
	lanes [clockLanes]clockLane
}

// clockAlarm is the timer.
type clockAlarm struct {
	set   atomic.Bool // it will ring, and not later than any clock ends that runs by now
	mu    sync.Mutex
	timer *time.Timer
	at    time.Duration // when it rings, where it is set; under mu
}

const clockLanes = 16

// clockLane has the clocks of some of the attempts, in the order in which they end.
// It fills a line of the cache.
type clockLane struct {
	clocks *attemptClocks

	mu     sync.Mutex
	places []*attempt // nil: it was taken out
	first  int        // of those before it the time is up
	out    int        // how many places are empty

	stopped atomic.Pointer[attempt] // the first whose clock is to be taken out; clock.next is the next
}

// attemptClock is one attempt's place among them. The zero value does not run.
type attemptClock struct {
	lane  *clockLane
	at    time.Duration // when it ends, or would have ended; under lane.mu
	next  *attempt      // that has stopped as well, and is to be taken out
	place uint32        // in lane.places; under lane.mu
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
	l := s.lock()
	now = s.now()
	a.clock.lane = l
	a.clock.state.Store(clockRuns)
	l.add(a, now)
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

// add puts the attempt at the end. l.mu is held.
func (l *clockLane) add(a *attempt, now time.Duration) {
	a.clock.at, a.clock.place = now+l.clocks.limit, uint32(len(l.places)) //nolint:gosec // no process has that many attempts
	l.places = append(l.places, a)
	if !l.clocks.alarm.set.Load() { // else it rings before that, and then looks again
		l.clocks.wind(a.clock.at, now)
	}
}

// remove takes the attempt out. l.mu is held.
func (l *clockLane) remove(a *attempt) {
	l.places[a.clock.place] = nil
	l.out++
	l.closeRanks()
}

// closeRanks leaves no more places empty than there are others, which costs each
// attempt the same however many there are. l.mu is held.
func (l *clockLane) closeRanks() {
	if 2*l.out <= len(l.places) {
		return
	}
	kept := l.places[:0]
	for _, a := range l.places {
		if a != nil {
			a.clock.place = uint32(len(kept)) //nolint:gosec // see add
			kept = append(kept, a)
		}
	}
	clear(l.places[len(kept):])
	l.places, l.first, l.out = kept, 0, 0
}

// unlock takes out what has stopped meanwhile.
func (l *clockLane) unlock() {
	if l.stopped.Load() != nil {
		for a := l.stopped.Swap(nil); a != nil; {
			next := a.clock.next
			a.clock.next = nil // or a response that is read for long would keep it
			l.remove(a)
			a = next
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
	l.mu.Lock()
	defer l.unlock()
	if a.clock.state.Load() == clockRuns {
		l.remove(a)
		l.add(a, l.clocks.now())
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

// wind has the alarm ring at a time, if not before.
func (s *attemptClocks) wind(at, now time.Duration) {
	alarm := &s.alarm
	alarm.mu.Lock()
	defer alarm.mu.Unlock()
	if alarm.set.Load() && alarm.at <= at {
		return
	}
	alarm.at = at
	alarm.set.Store(true) // before the timer runs: it may ring at once, and says that it has
	if alarm.timer == nil {
		alarm.timer = time.AfterFunc(at-now, s.ring)
		return
	}
	alarm.timer.Reset(at - now)
}

// ring ends the attempts whose time is up, and sets the alarm for the first of the
// others.
func (s *attemptClocks) ring() {
	// Before it looks: who begins from here on may have been overlooked.
	s.alarm.set.Store(false)
	var over []*attempt
	now := s.now()
	for i := range s.lanes {
		l := &s.lanes[i]
		l.mu.Lock()
		over = l.over(over, now)
		if l.first < len(l.places) {
			s.wind(l.places[l.first].clock.at, now)
		}
		l.unlock()
	}
	for _, a := range over {
		a.cancel()
		if body, ok := a.request.Body.(*watchedBody); ok {
			body.abandon()
		}
	}
}

// over takes out the clocks whose time is up, adds them to those of other lanes, and
// leaves first at one that runs, or at the end. l.mu is held.
func (l *clockLane) over(over []*attempt, now time.Duration) []*attempt {
	for ; l.first < len(l.places); l.first++ {
		a := l.places[l.first]
		if a == nil {
			continue
		}
		if a.clock.at > now {
			break
		}
		if a.clock.state.CompareAndSwap(clockRuns, clockUp) { // else it has stopped, and is taken out as such
			l.places[l.first] = nil
			l.out++
			over = append(over, a)
		}
	}
	l.closeRanks()
	return over
}
