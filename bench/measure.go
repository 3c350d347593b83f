package bench

import (
	"math"
	"runtime"
	"slices"
	"time"
)

// Memory returns what a call allocates, in allocations and in bytes: the mean of n
// calls, the least of three such means, as what else the process does only adds.
func Memory(n int, call func()) (allocs, bytes float64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // others would be counted
	call()
	var before, after runtime.MemStats
	allocs, bytes = math.Inf(1), math.Inf(1)
	for range 3 {
		runtime.ReadMemStats(&before)
		for range n {
			call()
		}
		runtime.ReadMemStats(&after)
		allocs = min(allocs, float64(after.Mallocs-before.Mallocs)/float64(n))
		bytes = min(bytes, float64(after.TotalAlloc-before.TotalAlloc)/float64(n))
	}
	return allocs, bytes
}

// Compare has the senders make calls in turns, and returns the nanoseconds that a
// call of each took, for each round. Nobody is always first, and what the machine
// does otherwise meets all of them. Each turn begins with a [Sender.Renew], which does
// not count.
func Compare(senders []*Sender, method string, rounds, calls int) [][]float64 {
	took := make([][]float64, len(senders))
	for i := range took {
		took[i] = make([]float64, rounds)
	}
	for round := range rounds {
		for turn := range senders {
			i := (round + turn) % len(senders)
			if err := senders[i].Renew(method); err != nil {
				panic(err)
			}
			begin := time.Now()
			for range calls {
				if err := senders[i].Send(method); err != nil {
					panic(err)
				}
			}
			took[i][round] = float64(time.Since(begin).Nanoseconds()) / float64(calls)
		}
	}
	return took
}

// Median is the middle of the values, the upper one of two.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile is the value that a share of q of the values does not exceed.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// Beyond is what values are beyond those of a base, round by round.
func Beyond(values, base []float64) []float64 {
	return each(values, base, func(v, b float64) float64 { return v - b })
}

// Ratio is the median of the rounds' ratios of values to those of a reference.
func Ratio(values, reference []float64) float64 {
	return Median(each(values, reference, func(v, r float64) float64 { return v / r }))
}

// Mean is round by round that of two chains.
func Mean(a, b []float64) []float64 {
	return each(a, b, func(a, b float64) float64 { return (a + b) / 2 })
}

func each(a, b []float64, f func(a, b float64) float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = f(a[i], b[i])
	}
	return out
}

// Alive is what the process has alive after a collection: heap and stacks.
func Alive() int64 {
	runtime.GC()
	runtime.GC() // and what the first one's finalizers kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse) //nolint:gosec // no process has that much
}
