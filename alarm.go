package fedhttp

import (
	"sync"
	"time"
)

// alarms wakes held tasks when their time is up. Tasks with the same end share
// one timer and one channel: most of what a held task would cost beside its
// goroutine.
type alarms struct {
	mu     sync.Mutex
	byTime map[int64]*alarm // by Unix nanoseconds
}

// alarm is one end of waiting.
type alarm struct {
	at      time.Time
	rung    chan struct{} // closed at that time, or when the Transport is closed
	timer   *time.Timer
	waiters int // under alarms.mu
	over    bool
}

// past reports whether the time has come. The channel decides as well: it is
// rung by a timer, and at may be of a clock that was set meanwhile.
func (a *alarm) past(now time.Time) bool {
	select {
	case <-a.rung:
		return true
	default:
		return !now.Before(a.at)
	}
}

// join returns the alarm for a time. Each join needs its leave.
func (s *alarms) join(at time.Time) *alarm {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := at.UnixNano()
	a := s.byTime[key]
	if a == nil {
		if s.byTime == nil {
			s.byTime = make(map[int64]*alarm)
		}
		a = &alarm{at: at, rung: make(chan struct{})}
		a.timer = time.AfterFunc(time.Until(at), func() { s.ring(a) })
		s.byTime[key] = a
	}
	a.waiters++
	return a
}

func (s *alarms) leave(a *alarm) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.waiters--; a.waiters == 0 {
		a.timer.Stop()
		s.forget(a)
	}
}

// forget lets the next task of the same time have an alarm of its own. s.mu is held.
func (s *alarms) forget(a *alarm) {
	if key := a.at.UnixNano(); s.byTime[key] == a {
		delete(s.byTime, key)
	}
}

// ring wakes the waiters. The channel is closed without the lock, as that takes
// its time with many of them.
func (s *alarms) ring(a *alarm) {
	s.mu.Lock()
	first := !a.over
	a.over = true
	s.forget(a)
	s.mu.Unlock()
	if first {
		close(a.rung)
	}
}

// ringAll wakes everybody.
func (s *alarms) ringAll() {
	s.mu.Lock()
	all := make([]*alarm, 0, len(s.byTime))
	for _, a := range s.byTime {
		all = append(all, a)
	}
	s.mu.Unlock()
	for _, a := range all {
		a.timer.Stop()
		s.ring(a)
	}
}
