package fedhttp

import (
	"context"
	"math/rand/v2"
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
				all[i].clock.stop()
				all[i], ended[i] = &attempt{}, 0
				context.AfterFunc(all[i].open(context.Background()), func() { ended[i] = time.Since(began) })
				if got := s.start(all[i]); got != time.Since(began) {
					t.Fatalf("began at %v", got)
				}
				due[i] = time.Since(began) + limit
			case 2:
				all[i].clock.touch()
				if due[i] > time.Since(began) {
					due[i] = time.Since(began) + limit
				}
			case 3:
				all[i].clock.stop()
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
			if l.first != nil || l.last != nil || l.set {
				t.Errorf("clocks are left in lane %d", i)
			}
			if l.timer != nil {
				used++
			}
		}
		if used < 2 {
			t.Errorf("%d lanes were used", used)
		}
	})
}

// TestAttemptClockZero: one that was never started does nothing.
func TestAttemptClockZero(t *testing.T) {
	t.Parallel()
	var k attemptClock
	k.touch()
	k.stop()
	(*attemptClock)(nil).touch()
}

// TestAttemptClockLeft: a clock that was stopped knows what it had left.
func TestAttemptClockLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newAttemptClocks(time.Minute)
		a := &attempt{}
		s.start(a)
		k := &a.clock
		time.Sleep(20 * time.Second)
		k.touch()
		time.Sleep(15 * time.Second)
		k.stop()
		k.touch() // too late
		if left := k.left(); left != 45*time.Second {
			t.Errorf("%v left, want 45s", left)
		}
		time.Sleep(50 * time.Second)
		if left := k.left(); left != -5*time.Second {
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
	if k := &first.clock; k.lane != free || !k.runs() {
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
	for _, k := range []*attemptClock{&first.clock, &waits.clock} {
		if k.stop(); k.runs() {
			t.Error("it still runs")
		}
	}
}

// TestAttemptClockLane: lanes do not share a line of the cache.
func TestAttemptClockLane(t *testing.T) {
	t.Parallel()
	if size := unsafe.Sizeof(clockLane{}); size != 64 {
		t.Errorf("a lane has %d bytes", size)
	}
}
