package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/fedhttp/fedhttp/bench"
)

// rates are in requests a second. Each chain is measured in turns, of which there are more
// at the highest, where two turns of the same chain differ most, and that are longer at
// the lowest: the 99th percentile is of few calls where there are few.
var rates = []struct {
	rate, turns int
	longer      time.Duration
}{{100, 10, 2}, {1_000, 10, 1}, {5_000, 15, 1}}

func latency(args []string) error {
	var length time.Duration
	flags("latency", args, func(f *flag.FlagSet) {
		f.DurationVar(&length, "turn", 2*time.Second, "how long calls are made in each turn; at the lowest rate twice as long")
	})
	server := bench.Serve("h1")
	defer server.Close()
	none, always := bench.Gated()[0], bench.Gated()[2]
	var senders []*bench.Sender
	var traces []string
	for _, over := range []struct {
		chain     bench.Chain
		telemetry bench.Telemetry
	}{{bench.Bare, none}, {bench.Least, none}, {bench.Fedhttp, none}, {bench.BareAgain, none}, {bench.FedhttpTask, always}} {
		s := over.chain.Over(server.Base(), over.telemetry, server.URL)
		defer s.Close()
		senders, traces = append(senders, s), append(traces, over.telemetry.Name)
	}
	bench.Compare(senders, http.MethodGet, 1, 500) // connections, and all that is made once
	percent := gogc()
	var late error
	for _, r := range rates {
		rate, long := r.rate, r.longer*length
		all := make([]bench.Latencies, len(senders))
		turns := make([][]float64, len(senders)) // the 99th percentile of each
		collections := make([]uint32, len(senders))
		for round := range r.turns {
			for turn := range senders {
				i := (round + turn) % len(senders)
				s := senders[i]
				runtime.GC() // or it pays for what the chain before has left
				before := collected()
				l := bench.OpenLoop(s, rate, long)
				collections[i] += collected() - before
				turns[i] = append(turns[i], bench.Quantile(l.Whole, 0.99))
				all[i].Whole, all[i].Start = append(all[i].Whole, l.Whole...), append(all[i].Start, l.Start...)
				if l.Behind {
					late = errors.Join(late, fmt.Errorf("%s cannot keep up with %d requests a second", s.Name, rate))
				}
			}
		}
		for i, s := range senders {
			fmt.Println(line(fmt.Sprintf("Latency/gogc=%d/rate=%d/trace=%s/chain=%s", percent, rate, traces[i], s.Name), len(all[i].Whole),
				value{bench.Quantile(all[i].Whole, 0.5) * 1e9, "p50-ns"},
				value{bench.Quantile(all[i].Whole, 0.99) * 1e9, "p99-ns"},
				value{bench.Quantile(all[i].Whole, 0.999) * 1e9, "p99.9-ns"},
				value{bench.Median(turns[i]) * 1e9, "p99-turn-ns"},
				value{bench.Quantile(all[i].Start, 0.99) * 1e9, "p99-start-ns"},
				value{float64(collections[i]) / (float64(r.turns) * long.Seconds()), "collections/s"}))
		}
	}
	return late
}

// gogc is how much garbage there may be, in percent of what is alive, before it is
// collected.
func gogc() int {
	percent := debug.SetGCPercent(100)
	debug.SetGCPercent(percent)
	return percent
}

// collected is how often garbage has been collected.
func collected() uint32 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NumGC
}
