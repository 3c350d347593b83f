// Command gate measures what the whole of fedhttp costs against otelhttp alone
// with its one span, over a stub, in one run. It prints the table, and exits with
// 1 where a call costs more allocations, or where a plain GET takes more time.
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
	pairs = 101
	batch = 2000 // calls
	// tolerance is for the machine, which has its moments; so is the median.
	tolerance = 1.1
)

type chain struct {
	ctx context.Context
	rt  http.RoundTripper
}

func (c chain) call() {
	if err := bench.Call(c.ctx, c.rt, http.MethodGet); err != nil {
		panic(err)
	}
}

func (c chain) allocs() float64 { return testing.AllocsPerRun(batch, c.call) }

// batch makes calls and returns how long one took.
func (c chain) batch() time.Duration {
	start := time.Now()
	for range batch {
		c.call()
	}
	return time.Since(start) / batch
}

func main() {
	debug.SetGCPercent(1000)
	if failed := run(); failed {
		os.Exit(1)
	}
}

func run() (failed bool) {
	stub := chain{context.Background(), bench.Stub{}}
	ownAllocs := stub.allocs()
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "beyond the stub; GET, 200\tallocations\tmicroseconds\tratio of time\t")
	for _, t := range bench.Sampling() {
		reference := chain{context.Background(), bench.Otelhttp(t)}
		referenceAllocs := reference.allocs() - ownAllocs
		fmt.Fprintf(out, "%s: otelhttp, one span\t%.0f\t\t\t\n", t.Name, referenceAllocs)
		for _, obligations := range []bool{false, true} {
			tr, ctx := bench.Fedhttp(t, obligations)
			c := chain{ctx, tr}
			allocs := c.allocs() - ownAllocs
			ours, theirs, ratio := compare(c, reference, stub)
			name, tooSlow := "fedhttp", ratio > tolerance
			if obligations {
				// Its span says six things more; what that costs is shown.
				name, tooSlow = "fedhttp, a task with obligations", false
			}
			verdict := ""
			if allocs > referenceAllocs || tooSlow {
				verdict, failed = "TOO MUCH", true
			}
			fmt.Fprintf(out, "%s: %s\t%.0f\t%.1f of %.1f\t%.2f\t%s\n", t.Name, name, allocs, micros(ours), micros(theirs), ratio, verdict)
			_ = tr.Close()
		}
	}
	_ = out.Flush()
	return failed
}

// compare times both in turns, and returns the medians of what they take beyond
// the stub and of the ratio in each pair.
func compare(c, reference, stub chain) (ours, theirs time.Duration, ratio float64) {
	var all, others []time.Duration
	var ratios []float64
	for range pairs {
		own := stub.batch()
		b := reference.batch() - own
		a := c.batch() - own
		all, others = append(all, a), append(others, b)
		ratios = append(ratios, float64(a)/float64(b))
	}
	slices.Sort(all)
	slices.Sort(others)
	slices.Sort(ratios)
	return all[pairs/2], others[pairs/2], ratios[pairs/2]
}

func micros(d time.Duration) float64 { return d.Seconds() * 1e6 }
