// Command gate holds what the whole of fedhttp costs against otelhttp alone with
// its one span, over a stub, in one run: no more allocations, and no more time in
// the median of pairs. It prints the table, and exits with 1 where a gate is passed.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/fedhttp/fedhttp/bench"
)

const (
	pairs     = 101
	batch     = 2000 // calls
	tolerance = 1.1  // of time: a machine has its moments
)

type chain struct {
	ctx context.Context
	rt  http.RoundTripper
}

// batch makes calls and returns how long one took.
func (c chain) batch() time.Duration {
	start := time.Now()
	for range batch {
		c.call()
	}
	return time.Since(start) / batch
}

func (c chain) call() {
	if err := bench.Call(c.ctx, c.rt, http.MethodGet); err != nil {
		panic(err)
	}
}

func (c chain) allocs() float64 { return testing.AllocsPerRun(batch, c.call) }

func main() {
	debug.SetGCPercent(1000)
	if failed := run(); failed {
		os.Exit(1)
	}
}

func run() (failed bool) {
	stub := chain{context.Background(), bench.Stub{}}
	ownAllocs := stub.allocs()
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "beyond the stub, GET, 200\tallocations\tof otelhttp\tmicroseconds\tof otelhttp")
	for _, t := range bench.Sampling() {
		reference := chain{context.Background(), bench.Otelhttp(t)}
		referenceAllocs := reference.allocs() - ownAllocs
		fmt.Fprintf(out, "%s: otelhttp, one span\t%.0f\t\t%.1f\t\n", t.Name, referenceAllocs, micros(min(reference.batch(), reference.batch())-stub.batch()))
		for _, obligations := range []bool{false, true} {
			tr, ctx := bench.Fedhttp(t, obligations)
			c := chain{ctx, tr}
			name := "fedhttp"
			if obligations {
				name = "fedhttp, a task with obligations and an anchor"
			}
			allocs := c.allocs() - ownAllocs
			took, ratio := compare(c, reference, stub)
			verdict := ""
			if allocs > referenceAllocs || ratio > tolerance {
				verdict, failed = "\tTOO MUCH", true
			}
			fmt.Fprintf(out, "%s: %s\t%.0f\t%.2f\t%.1f\t%.2f%s\n", t.Name, name, allocs, allocs/referenceAllocs, micros(took), ratio, verdict)
			_ = tr.Close()
		}
	}
	_ = out.Flush()
	return failed
}

// compare times pairs of both, and returns the median of what c takes beyond the
// stub, and of its ratio to what the reference takes.
func compare(c, reference, stub chain) (took time.Duration, ratio float64) {
	var times []time.Duration
	var ratios []float64
	for range pairs {
		own := stub.batch()
		theirs := reference.batch() - own
		ours := c.batch() - own
		times = append(times, ours)
		ratios = append(ratios, float64(ours)/float64(theirs))
	}
	slices.Sort(times)
	slices.Sort(ratios)
	return times[pairs/2], ratios[pairs/2]
}

func micros(d time.Duration) float64 { return d.Seconds() * 1e6 }
