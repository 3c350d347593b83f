package fedhttp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// TestAttemptClocks: each clock ends its attempt at its own time, whatever the
// others do, and one that was stopped ends nothing.
func TestAttemptClocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const clocks, limit = 300, time.Minute
		s := newAttemptClocks(limit)
		random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
		began := time.Now()
		all := make([]*attempt, clocks)
		for i := range all {
			all[i] = &attempt{}
		}
		due := make([]time.Duration, clocks)   // when each is to end; 0: never
		ended := make([]time.Duration, clocks) // when it did
		for range 4 * clocks {
			i := random.IntN(clocks)
			switch random.IntN(4) {
			case 0, 1:
				all[i].stopClock()
				all[i], ended[i] = &attempt{}, 0
				context.AfterFunc(all[i].open(context.Background()), func() { ended[i] = time.Since(began) })
				if got := s.start(all[i]); got != time.Since(began) {
					t.Fatalf("began at %v", got)
				}
				due[i] = time.Since(began) + limit
			case 2:
				all[i].touch()
				if due[i] > time.Since(began) {
					due[i] = time.Since(began) + limit
				}
			case 3:
				all[i].stopClock()
				if due[i] > time.Since(began) {
					due[i] = 0
				}
			}
			time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
			synctest.Wait()
		}
		time.Sleep(limit)
		synctest.Wait()
		for i := range all {
			if ended[i] != due[i] {
				t.Errorf("clock %d ended at %v, want %v", i, ended[i], due[i])
			}
		}
		used := 0
		for i := range s.lanes {
			l := &s.lanes[i]
			if n := l.running(t); n != 0 {
				t.Errorf("%d clocks are left in lane %d", n, i)
			}
			if cap(l.places) > 0 {
				used++
			}
		}
		if s.alarm.set.Load() {
			t.Error("the alarm is still set")
		}
		if used < 2 {
			t.Errorf("%d lanes were used", used)
		}
	})
}

// TestAttemptClocksRingAtOnce: the timer that is set for what ends in a moment rings
// while it is being set. What rang is then not taken for set: nothing would ever end
// again.
func TestAttemptClocksRingAtOnce(t *testing.T) {
	t.Parallel()
	s := newAttemptClocks(time.Nanosecond)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 5000 {
				a := &attempt{}
				over := a.open(context.Background())
				s.start(a)
				select {
				case <-over.Done():
				case <-ctx.Done():
					t.Error("its time is up, and nothing has ended it")
					return
				}
			}
		})
	}
	callers.Wait()
}

// TestAttemptClockZero: one that was never started does nothing.
func TestAttemptClockZero(t *testing.T) {
	t.Parallel()
	var a attempt
	a.touch()
	if a.stopClock() {
		t.Error("its time is up")
	}
	(*attempt)(nil).touch()
}

// TestAttemptClockLeft: a clock that was stopped knows what it had left.
func TestAttemptClockLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newAttemptClocks(time.Minute)
		a := &attempt{}
		s.start(a)
		time.Sleep(20 * time.Second)
		a.touch()
		time.Sleep(15 * time.Second)
		a.stopClock()
		a.touch() // too late
		if left := a.timeLeft(); left != 45*time.Second {
			t.Errorf("%v left, want 45s", left)
		}
		time.Sleep(50 * time.Second)
		if left := a.timeLeft(); left != -5*time.Second {
			t.Errorf("%v left, want -5s", left)
		}
	})
}

// TestAttemptClocksBusy: whoever begins while others are at a lane takes another
// one, and waits only where all are busy.
func TestAttemptClocksBusy(t *testing.T) {
	t.Parallel()
	s := newAttemptClocks(time.Minute)
	free := &s.lanes[5]
	for i := range s.lanes {
		if l := &s.lanes[i]; l != free {
			l.mu.Lock()
		}
	}
	var first, waits attempt
	s.start(&first)
	if first.clock.lane != free || free.running(t) != 1 {
		t.Error("it is not in the lane that was free")
	}
	free.mu.Lock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.start(&waits)
	}()
	for i := range s.lanes {
		s.lanes[i].mu.Unlock()
	}
	<-done
	if first.stopClock() || waits.stopClock() {
		t.Error("their time is up")
	}
	if free.running(t) != 0 || waits.clock.lane.running(t) != 0 {
		t.Error("they still run")
	}
}

// TestAttemptClockStopsBusy: a clock whose lane is busy stops all the same, without
// waiting, and is taken out by who is next there.
func TestAttemptClockStopsBusy(t *testing.T) {
	t.Parallel()
	s := newAttemptClocks(time.Minute)
	lane := &s.lanes[3]
	for i := range s.lanes {
		if l := &s.lanes[i]; l != lane {
			l.mu.Lock()
			defer l.mu.Unlock()
		}
	}
	var all [5]attempt
	for i := range all {
		s.start(&all[i])
	}
	lane.mu.Lock()
	for _, i := range []int{1, 0, 4} {
		for range 2 {
			if all[i].stopClock() {
				t.Errorf("the time of %d is up", i)
			}
		}
	}
	// One of them is the first when the time is up.
	if over := lane.over(nil, all[0].clock.at); len(over) != 0 {
		t.Errorf("%d have ended", len(over))
	}
	lane.unlock()
	for i := range all {
		if all[i].clock.next != nil {
			t.Errorf("%d keeps another", i)
		}
	}
	if lane.running(t) != 2 || lane.stopped.Load() != nil {
		t.Error("others are left")
	}
	if left := all[4].timeLeft(); left <= 0 || left > time.Minute {
		t.Errorf("%v left", left)
	}
	all[2].stopClock()
	all[3].stopClock()
	if lane.running(t) != 0 {
		t.Error("clocks are left")
	}
	for i := range all {
		s.start(&all[i])
	}
	for range 100 {
		for i := range all {
			all[i].touch()
		}
	}
	if n := len(lane.places); n > 2*len(all) {
		t.Errorf("%d places for %d clocks", n, len(all))
	}
}

// TestAttemptClockPlaces: however attempts end, they leave no places behind.
func TestAttemptClockPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newAttemptClocks(time.Minute)
		for i := range 10_000 {
			a := &attempt{}
			s.start(a)
			if i%3 == 0 {
				a.stopClock()
			}
			time.Sleep(time.Second)
		}
		for i := range s.lanes {
			l := &s.lanes[i]
			n := l.running(t)
			l.mu.Lock()
			if places := len(l.places); places > 2*n+2 {
				t.Errorf("lane %d has %d places for %d clocks", i, places, n)
			}
			l.mu.Unlock()
		}
		time.Sleep(time.Minute)
	})
}

// TestAttemptClocksRace: each attempt either is stopped or ends, and says so.
func TestAttemptClocksRace(t *testing.T) {
	t.Parallel()
	s := newAttemptClocks(20 * time.Microsecond)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 2000 {
				a := &attempt{}
				ctx := a.open(context.Background())
				s.start(a)
				a.touch()
				if up := a.stopClock(); up {
					<-ctx.Done() // or the test does not end
				} else if ctx.Err() != nil {
					t.Error("it has ended, and does not say so")
				}
			}
		})
	}
	all.Wait()
	for i := range s.lanes {
		l := &s.lanes[i]
		l.mu.Lock()
		l.unlock()
		if n := l.running(t); n != 0 {
			t.Errorf("%d clocks are left in lane %d", n, i)
		}
	}
}

// TestAttemptClockLane: lanes do not share a line of the cache.
func TestAttemptClockLane(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(clockLane{}); size%64 != 0 {
		t.Errorf("a lane has %d bytes", size)
	}
}

// running is how many clocks have a place in the lane, and each has its own.
func (l *clockLane) running(t *testing.T) int {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for place, a := range l.places {
		if a == nil {
			continue
		}
		if n++; a.clock.place != uint32(place) {
			t.Errorf("place %d is that of %d", place, a.clock.place)
		}
	}
	for _, a := range l.places[len(l.places):cap(l.places)] {
		if a != nil {
			t.Error("an attempt is kept that has no place")
		}
	}
	if n+l.out != len(l.places) || l.first > len(l.places) {
		t.Errorf("%d of %d places are empty, not %d; the first is %d", len(l.places)-n, len(l.places), l.out, l.first)
	}
	return n
}

// BenchmarkAttemptTimeout is what a timeout costs with n attempts under way.
func BenchmarkAttemptTimeout(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("attempts=%d", n), func(b *testing.B) {
			s := newAttemptClocks(time.Hour)
			l := &s.lanes[0]
			l.mu.Lock()
			defer l.mu.Unlock()
			for i := range n {
				l.add(&attempt{}, time.Duration(i))
				l.places[i].clock.state.Store(clockRuns)
			}
			for now := time.Duration(0); b.Loop(); now++ {
				over := l.over(nil, now+s.limit)
				if len(over) != 1 {
					b.Fatalf("%d have ended", len(over))
				}
				over[0].clock.state.Store(clockRuns)
				l.add(over[0], now+time.Duration(n))
			}
		})
	}
}
