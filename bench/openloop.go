package bench

import (
	"sync"
	"sync/atomic"
	"time"
)

// maxWaiting is when an open loop gives up, as a share of its calls (and of a hundred
// at least): whatever it measures cannot keep pace.
const maxWaiting = 0.2

// Latencies are those of calls, from the time that each was meant to be sent at.
type Latencies struct {
	Whole []float64 // seconds until the answer was read
	Start []float64 // seconds until the call began, which is the generator's and the scheduler's part
	// Behind is whether the calls waiting became too many.
	Behind bool
}

// OpenLoop sends GETs at an even rate a second, whether or not those before have
// been answered, each on a goroutine of its own. A call that is late because of
// others counts as late: nothing is omitted.
func OpenLoop(s *Sender, rate int, length time.Duration) Latencies {
	n := int(length.Seconds() * float64(rate))
	l := Latencies{make([]float64, n), make([]float64, n), false}
	interval := time.Second / time.Duration(rate)
	var calls sync.WaitGroup
	var waiting atomic.Int64

	alarm, err := newAlarm()
	if err != nil {
		panic(err)
	}
	defer alarm.close()
	begin := time.Now().Add(10 * time.Millisecond)
	for i := range n {
		at := begin.Add(time.Duration(i) * interval)
		if err := alarm.sleep(time.Until(at)); err != nil {
			panic(err)
		}
		if float64(waiting.Add(1)) > max(100, maxWaiting*float64(n)) {
			l.Behind = true
			l.Whole, l.Start = l.Whole[:i], l.Start[:i]
			break
		}
		calls.Go(func() {
			defer waiting.Add(-1)
			start := time.Since(at)
			if err := s.Send("GET"); err != nil {
				panic(err)
			}
			l.Start[i], l.Whole[i] = start.Seconds(), time.Since(at).Seconds()
		})
	}
	calls.Wait()
	return l
}
