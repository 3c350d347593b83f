package main

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fedhttp/fedhttp/bench"
)

const (
	// shown is the share of all delay from which a lock is named.
	shown = 0.01
	// callers is how many goroutines call at once.
	callers = 16
)

func contention(args []string) error {
	var length time.Duration
	flags("contention", args, func(f *flag.FlagSet) {
		f.DurationVar(&length, "for", 3*time.Second, "how long each case runs")
	})
	gated := bench.Gated()
	server := bench.Serve("h1")
	defer server.Close()
	for _, c := range []struct {
		name   string
		sender *bench.Sender
	}{
		{"over=stub/trace=none/chain=fedhttp", bench.Fedhttp.Over(bench.Stub{}, gated[0], bench.Origin)},
		{"over=stub/trace=none/chain=fedhttp-task", bench.FedhttpTask.Over(bench.Stub{}, gated[0], bench.Origin)},
		{"over=stub/trace=always+metrics/chain=fedhttp-task", bench.FedhttpTask.Over(bench.Stub{}, gated[2].Metered(), bench.Origin)},
		{"over=stub/trace=none/chain=gobreaker", bench.Gobreaker.Over(bench.Stub{}, gated[0], bench.Origin)},
		{"over=h1/trace=none/chain=fedhttp-task", bench.FedhttpTask.Over(server.Base(), gated[0], server.URL)},
	} {
		if err := c.sender.Send(http.MethodGet); err != nil { // what is waited for once
			return err
		}
		var calls int64
		mutex, block := bench.Contention(func() { calls = atOnce(c.sender, length) })
		c.sender.Close()
		report(c.name+"/profile=mutex", mutex, calls, length)
		report(c.name+"/profile=block", block, calls, length)
	}
	return nil
}

// atOnce has many goroutines make calls for a while, and returns how many.
func atOnce(s *bench.Sender, length time.Duration) int64 {
	var calls atomic.Int64
	var all sync.WaitGroup
	end := time.Now().Add(length)
	for range callers {
		all.Go(func() {
			n := int64(0)
			for ; time.Now().Before(end); n++ {
				if err := s.Send(http.MethodGet); err != nil {
					panic(err)
				}
			}
			calls.Add(n)
		})
	}
	all.Wait()
	return calls.Load()
}

// report prints what each owner's locks come to, and the locks of fedhttp and
// gobreaker that are worth it. Waits of this program itself are no part of the whole.
func report(name string, locks []bench.Lock, calls int64, length time.Duration) {
	var whole time.Duration
	owners := map[string]time.Duration{"fedhttp": 0, "gobreaker": 0, "other": 0}
	for _, l := range locks {
		if l.Owner != "harness" {
			whole += l.Delay
			owners[l.Owner] += l.Delay
		}
	}
	show := func(name string, delay time.Duration) {
		share := 0.0
		if whole > 0 {
			share = 100 * delay.Seconds() / whole.Seconds()
		}
		fmt.Println(line(name, int(calls),
			value{share, "%-of-delay"},
			value{100 * delay.Seconds() / (callers * length.Seconds()), "%-of-time"},
			value{float64(delay.Nanoseconds()) / float64(calls), "ns/op"}))
	}
	for _, owner := range []string{"fedhttp", "gobreaker", "other"} {
		show("Contention/"+name+"/owner="+owner, owners[owner])
	}
	for _, l := range locks {
		if (l.Owner == "fedhttp" || l.Owner == "gobreaker") && l.Delay.Seconds() > shown*whole.Seconds() {
			show("Lock/"+name+"/owner="+l.Owner+"/func="+short(l.Func), l.Delay)
		}
	}
}

// short is a function's name without the path of its package, and without what
// has a meaning in the name of a benchmark.
func short(name string) string {
	name = name[strings.LastIndex(name, "/")+1:]
	return strings.NewReplacer("[...]", "", " ", "_", "-", "_").Replace(name)
}
