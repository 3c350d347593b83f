package main

import (
	"flag"
	"fmt"
	"time"

	"github.com/fedhttp/fedhttp/bench"
)

func stream(args []string) error {
	var mib int64
	var pairs int
	flags("stream", args, func(f *flag.FlagSet) {
		f.Int64Var(&mib, "mib", 1024, "how much is sent")
		f.IntVar(&pairs, "pairs", 121, "how often, through each chain")
	})
	server := bench.Serve("h1")
	defer server.Close()
	t := bench.Gated()[0]
	chains := []bench.Chain{bench.Bare, bench.Fedhttp, bench.BareAgain}
	size := mib << 20
	for _, direction := range []struct {
		name string
		send func(*bench.Sender, int64, *bench.Sampler) error
	}{
		{"up", (*bench.Sender).Upload},
		{"down", (*bench.Sender).Download},
	} {
		took := make([][]float64, len(chains))
		peaks := make([]int64, len(chains))
		// once sends through a chain over a connection of its own: one connection is
		// faster than another, whoever uses it.
		once := func(i int, sampler *bench.Sampler) (time.Duration, error) {
			s := chains[i].Over(server.Base(), t, server.URL)
			defer s.Close()
			if err := direction.send(s, size/4, nil); err != nil { // finds out how large the socket's buffers are
				return 0, err
			}
			begin := time.Now()
			err := direction.send(s, size, sampler)
			return time.Since(begin), err
		}
		for round := range pairs {
			for turn := range chains {
				i := (round + turn) % len(chains)
				d, err := once(i, nil)
				if err != nil {
					return err
				}
				took[i] = append(took[i], d.Seconds())
			}
		}
		for range 3 {
			for i := range chains {
				sampler := &bench.Sampler{Every: max(size/16, 1)}
				if _, err := once(i, sampler); err != nil {
					return err
				}
				peaks[i] = max(peaks[i], sampler.Peak)
			}
		}
		// net/http alone goes beside fedhttp twice in each round, and the mean of both is
		// nearer to what it takes than one. Throughput is the inverse of time.
		ofBare := []float64{1, bench.Ratio(bench.Mean(took[0], took[2]), took[1]), bench.Ratio(took[0], took[2])}
		for i, c := range chains {
			fmt.Println(line("Stream/direction="+direction.name+"/chain="+c.Name, pairs,
				value{float64(size) / bench.Median(took[i]) / 1e6, "MB/s"},
				value{ofBare[i], "of-bare"},
				value{float64(peaks[i]), "B-peak"},
				value{float64(peaks[i] - peaks[0]), "B-beyond-bare"}))
		}
	}
	return nil
}
