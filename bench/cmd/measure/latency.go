package main

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"time"

	"github.com/fedhttp/fedhttp/bench"
)

// slices is in how many turns the time of each chain is measured.
const slices = 20

// rates are in requests a second, and for how much longer than the others each is
// measured: the 99th percentile is of few calls where there are few.
var rates = []struct{ rate, longer int }{{100, 2}, {1_000, 1}, {5_000, 1}}

func latency(args []string) error {
	var length time.Duration
	flags("latency", args, func(f *flag.FlagSet) {
		f.DurationVar(&length, "for", 20*time.Second, "how long calls are made, at each rate and through each chain; at the lowest twice as long")
	})
	server := bench.Serve("h1")
	defer server.Close()
	gated := bench.Gated()
	senders := []*bench.Sender{
		bench.Bare.Over(server.Base(), gated[0], server.URL),
		bench.Least.Over(server.Base(), gated[0], server.URL),
		bench.Fedhttp.Over(server.Base(), gated[0], server.URL),
		bench.FedhttpTask.Over(server.Base(), gated[2], server.URL),
	}
	traces := []string{gated[0].Name, gated[0].Name, gated[0].Name, gated[2].Name}
	for _, s := range senders {
		defer s.Close()
	}
	bench.Compare(senders, http.MethodGet, 1, 500) // connections, and all that is made once
	var late error
	for _, r := range rates {
		rate, long := r.rate, time.Duration(r.longer)*length/slices
		all := make([]bench.Latencies, len(senders))
		turns := make([][]float64, len(senders)) // the 99th percentile of each
		collections := make([]uint32, len(senders))
		for round := range slices {
			for turn := range senders {
				i := (round + turn) % len(senders)
				s := senders[i]
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
			fmt.Println(line(fmt.Sprintf("Latency/rate=%d/trace=%s/chain=%s", rate, traces[i], s.Name), len(all[i].Whole),
				value{bench.Quantile(all[i].Whole, 0.5) * 1e9, "p50-ns"},
				value{bench.Quantile(all[i].Whole, 0.99) * 1e9, "p99-ns"},
				value{bench.Quantile(all[i].Whole, 0.999) * 1e9, "p99.9-ns"},
				value{bench.Median(turns[i]) * 1e9, "p99-turn-ns"},
				value{bench.Quantile(all[i].Start, 0.99) * 1e9, "p99-start-ns"},
				value{float64(collections[i]) / (slices * long.Seconds()), "collections/s"}))
		}
	}
	return late
}

// collected is how often garbage has been collected.
func collected() uint32 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NumGC
}
