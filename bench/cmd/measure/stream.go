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
		f.IntVar(&pairs, "pairs", 41, "how often, through each chain")
	})
	server := bench.Serve("h1")
	defer server.Close()
	t := bench.Gated()[0]
	bare := bench.Bare.Over(server.Base(), t, server.URL)
	federated := bench.Fedhttp.Over(server.Base(), t, server.URL)
	defer bare.Close()
	defer federated.Close()
	size := mib << 20
	for _, direction := range []struct {
		name string
		send func(*bench.Sender, *bench.Sampler) error
	}{
		{"up", func(s *bench.Sender, sampler *bench.Sampler) error { return s.Upload(size, sampler) }},
		{"down", func(s *bench.Sender, sampler *bench.Sampler) error { return s.Download(size, sampler) }},
	} {
		senders := []*bench.Sender{bare, federated}
		took := make([][]float64, len(senders))
		var peaks [2]int64
		for round := range pairs + 1 {
			for turn := range senders {
				i := (round + turn) % len(senders)
				begin := time.Now()
				if err := direction.send(senders[i], nil); err != nil {
					return err
				}
				if round > 0 { // the first finds out how large the socket's buffers are
					took[i] = append(took[i], time.Since(begin).Seconds())
				}
			}
		}
		for range 3 {
			for i, s := range senders {
				sampler := &bench.Sampler{Every: max(size/16, 1)}
				if err := direction.send(s, sampler); err != nil {
					return err
				}
				peaks[i] = max(peaks[i], sampler.Peak)
			}
		}
		for i, s := range senders {
			fmt.Println(line("Stream/direction="+direction.name+"/chain="+s.Name, pairs,
				value{float64(size) / bench.Median(took[i]) / 1e6, "MB/s"},
				value{bench.Ratio(took[0], took[i]), "of-bare"}, // throughput: the inverse of time
				value{float64(peaks[i]), "B-peak"},
				value{float64(peaks[i] - peaks[0]), "B-beyond-bare"}))
		}
	}
	return nil
}
