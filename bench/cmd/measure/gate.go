package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/fedhttp/fedhttp/bench"
)

// goals are those of a column: what a plain GET may cost at most.
type goals struct {
	allocs float64 // beyond the stub
	today  float64 // of what a user would build today
	bare   float64 // of bare net/http, over loopback
}

var goalsOf = map[string]goals{
	"none": {8, 0.2, 1.03}, "never": {14, 0.3, 1.08}, "always": {24, 0.5, 1.20},
}

const (
	// tolerance of times is for the machine, which has its moments; so is the median.
	tolerance = 1.1
	// exact is for counts: what the runtime may have allocated meanwhile.
	exact = 1.001
	// aFew is for counts of what a server allocates as well.
	aFew = 1.02
)

// known is what a call allocates beyond the stub, or over loopback beyond net/http: far
// less than it may, so that one more would pass for long. Who means it to be more says
// so here.
var known = map[string]float64{
	"fedhttp/none": 4, "fedhttp/never": 12, "fedhttp/always": 17,
	"fedhttp-anchor/none": 7, "fedhttp-anchor/never": 12, "fedhttp-anchor/always": 17,
	"fedhttp-task/none": 7, "fedhttp-task/never": 12, "fedhttp-task/always": 20,
	"fedhttp/none/h1": 10, "fedhttp/never/h1": 20, "fedhttp/always/h1": 25,
	"fedhttp/none/h2": 11, // 4 of them, of 8 B, are what an http.ClientConn takes to tell of its state
}

// missed are goals that are known not to be met, or only just, as patterns: they are
// shown, and hold nothing.
var missed = []string{
	"time-of-bare-over-loopback/*/*/*",
	// An anchor's version needs a header of our own, and a task has more to say.
	"bytes-of-today/trace=none*/chain=fedhttp-*", "bytes-of-today/trace=always*/chain=fedhttp-task",
	"bytes-of-otelhttp/trace=always*/chain=fedhttp-task", "time-of-otelhttp/trace=always*/chain=fedhttp-task",
	"time-of-today/*/chain=fedhttp-*",
	// We have three metrics of a call where otelhttp has two of a span; their times are the SDK's.
	"time-of-today/trace=*+metrics/*", "time-of-otelhttp/trace=always+metrics/chain=fedhttp-*",
}

func isMissed(name string) bool {
	return slices.ContainsFunc(missed, func(pattern string) bool {
		matched, err := path.Match(pattern, name)
		return matched && err == nil
	})
}

// gates are what was measured beside its goal.
type gates struct {
	bench  bool // print Go's benchmark format
	failed []string
}

// hold notes a figure and its goal, and fails where it is not within slack times the
// goal, unless that is known.
func (g *gates) hold(name string, of, goal, slack float64) {
	if g.bench {
		fmt.Println(line("Gate/"+name, 1, value{of, "measured"}, value{goal, "goal"}))
	}
	if !isMissed(name) && !(of <= goal*slack) { // not a number is no figure
		g.failed = append(g.failed, fmt.Sprintf("%s is %.4g, the gate %.4g", name, of, goal*slack))
	}
}

func gate(args []string) error {
	var all, inBench bool
	var pairs, calls int
	flags("gate", args, func(f *flag.FlagSet) {
		f.BoolVar(&all, "all", false, "measure what has no limit too: 1 % sampled")
		f.BoolVar(&inBench, "bench", false, "print Go's benchmark format, and fail at no gate: a report shows them")
		f.IntVar(&pairs, "pairs", 101, "how often each is timed")
		f.IntVar(&calls, "calls", 2000, "in how many calls, over the stub")
	})
	debug.SetGCPercent(1000)
	g := &gates{bench: inBench}
	columns := bench.Gated()
	for _, t := range columns[:3] {
		columns = append(columns, t.Metered())
	}
	if all {
		columns = append(columns, bench.OneInHundred())
	}
	g.text("%-62s%30s%24s%25s\n%-62s%8s%11s%11s%8s%8s%8s%8s%8s%8s\n", "over a stub, GET, 200", "beyond the stub", " of otelhttp's", " of what one builds today",
		"", "allocs", "bytes", "ns", "allocs", "bytes", "time", "allocs", "bytes", "time")
	for _, t := range columns {
		g.overStub(t, pairs, calls)
	}
	g.text("\n%-62s%30s%24s\n%-62s%8s%11s%11s%8s\n", "over loopback", "beyond bare net/http", "of bare's", "", "allocs", "bytes", "ns, all", "time")
	for _, t := range columns[:3] {
		for _, apart := range []bool{false, true} {
			g.overLoopback("h1", http.MethodGet, apart, t, pairs, calls/10)
		}
	}
	for _, c := range [][2]string{{"h1", http.MethodPost}, {"h2", http.MethodGet}, {"h2", http.MethodPost}} {
		g.overLoopback(c[0], c[1], false, columns[0], pairs, calls/10)
	}
	for _, f := range g.failed {
		fmt.Fprintln(os.Stderr, "TOO MUCH:", f)
	}
	if len(g.failed) > 0 && !inBench {
		return fmt.Errorf("%d gates are passed", len(g.failed))
	}
	return nil
}

// text prints for people.
func (g *gates) text(format string, args ...any) {
	if !g.bench {
		fmt.Printf(format, args...)
	}
}

// cost is what a call through a chain takes beyond the stub.
type cost struct {
	allocs, bytes float64
	times         []float64 // ns, round by round
}

// overStub measures the chains beyond the stub, under one telemetry.
func (g *gates) overStub(t bench.Telemetry, pairs, calls int) {
	chains := []bench.Chain{bench.Bare, bench.Otelhttp, bench.NaiveAttempts, bench.Fedhttp, bench.FedhttpAnchor, bench.FedhttpTask}
	var senders []*bench.Sender
	for _, c := range chains {
		s := c.Over(bench.Stub{}, t, bench.Origin)
		defer s.Close()
		senders = append(senders, s)
	}
	times := bench.Compare(senders, http.MethodGet, pairs, calls)
	costs := map[string]cost{}
	for i, s := range senders {
		allocs, bytes := memory(s, senders[0], http.MethodGet, calls)
		costs[s.Name] = cost{allocs, bytes, bench.Beyond(times[i], times[0])}
	}
	otelhttp, today := costs[bench.Otelhttp.Name], costs[bench.NaiveAttempts.Name]
	for i, c := range chains[1:] {
		of := costs[c.Name]
		overOtelhttp := [3]float64{of.allocs / otelhttp.allocs, of.bytes / otelhttp.bytes, bench.Ratio(of.times, otelhttp.times)}
		overToday := [3]float64{of.allocs / today.allocs, of.bytes / today.bytes, bench.Ratio(of.times, today.times)}
		g.text("%-62s%8.1f%11.0f%11.0f%8.2f%8.2f%8.2f%8.2f%8.2f%8.2f\n", t.Title+": "+c.Title, of.allocs, of.bytes, bench.Median(of.times),
			overOtelhttp[0], overOtelhttp[1], overOtelhttp[2], overToday[0], overToday[1], overToday[2])
		if g.bench {
			fmt.Println(line("Beyond/trace="+t.Name+"/chain="+c.Name, pairs,
				value{bench.Median(of.times), "ns/op"}, value{of.bytes, "B/op"}, value{of.allocs, "allocs/op"},
				value{overOtelhttp[0], "allocs-of-otelhttp"}, value{overOtelhttp[1], "bytes-of-otelhttp"}, value{overOtelhttp[2], "time-of-otelhttp"},
				value{overToday[0], "allocs-of-today"}, value{overToday[1], "bytes-of-today"}, value{overToday[2], "time-of-today"}))
		}
		trace := strings.TrimSuffix(t.Name, "+metrics") // which add no allocation
		if goals, ok := goalsOf[trace]; ok && strings.HasPrefix(c.Name, bench.Fedhttp.Name) {
			post, _ := memory(senders[i+1], senders[0], http.MethodPost, calls)
			g.hold("allocations-known/trace="+t.Name+"/chain="+c.Name, of.allocs, known[c.Name+"/"+trace], exact)
			g.overStubGoals("/trace="+t.Name+"/chain="+c.Name, goals, of, post, overOtelhttp, overToday)
		}
	}
}

func (g *gates) overStubGoals(in string, goals goals, of cost, post float64, overOtelhttp, overToday [3]float64) {
	g.hold("allocations"+in, of.allocs, goals.allocs, exact)
	g.hold("allocations-of-POST"+in, post, of.allocs, exact)
	for i, what := range []string{"allocations", "bytes", "time"} {
		slack := [3]float64{exact, exact, tolerance}[i]
		g.hold(what+"-of-otelhttp"+in, overOtelhttp[i], 1, slack)
		g.hold(what+"-of-today"+in, overToday[i], goals.today, slack)
	}
}

// memory is what a call allocates beyond one through base.
func memory(s, base *bench.Sender, method string, calls int) (allocs, bytes float64) {
	send := func(s *bench.Sender) func() {
		return func() {
			if err := s.Send(method); err != nil {
				panic(err)
			}
		}
	}
	allocs, bytes = bench.Memory(calls, send(s))
	ownAllocs, ownBytes := bench.Memory(calls, send(base))
	return allocs - ownAllocs, bytes - ownBytes
}

// overLoopback measures calls to a server beside those of net/http alone; where they
// are apart, each on a new goroutine.
func (g *gates) overLoopback(proto, method string, apart bool, t bench.Telemetry, pairs, calls int) {
	server := bench.Serve(proto)
	defer server.Close()
	chains := []bench.Chain{bench.Bare, bench.BareAgain, bench.Busy, bench.Otelhttp, bench.Least, bench.Fedhttp, bench.FedhttpTask}
	var senders []*bench.Sender
	for _, c := range chains {
		s := c.Over(server.Base(), t, server.URL)
		defer s.Close()
		s.Apart = apart
		senders = append(senders, s)
	}
	bench.Compare(senders, method, 1, calls) // what is made once
	times := bench.Compare(senders, method, pairs, calls)
	name, title := "trace="+t.Name+"/proto="+proto+"/method="+method, t.Title+", "+proto+" "+method
	if apart {
		name, title = name+"/apart", title+", apart"
	}
	var otelhttp cost
	for i, c := range chains {
		allocs, bytes := memory(senders[i], senders[0], method, calls)
		ratio := bench.Ratio(times[i], times[0])
		g.text("%-62s%8.1f%11.0f%11.0f%8.3f\n", title+": "+c.Title, allocs, bytes, bench.Median(times[i]), ratio)
		if g.bench {
			fmt.Println(line("OfBare/"+name+"/chain="+c.Name, pairs, value{bench.Median(times[i]), "ns/op"}, value{ratio, "time-of-bare"},
				value{allocs, "allocs-beyond-bare"}, value{bytes, "bytes-beyond-bare"}))
		}
		switch c.Name {
		case bench.Otelhttp.Name:
			otelhttp = cost{allocs, bytes, times[i]}
		case bench.Fedhttp.Name:
			g.hold("allocations-known-over-loopback/"+name, allocs, known[c.Name+"/"+t.Name+"/"+proto], aFew)
			g.hold("allocations-of-otelhttp-over-loopback/"+name, allocs/otelhttp.allocs, 1, exact)
			g.hold("bytes-of-otelhttp-over-loopback/"+name, bytes/otelhttp.bytes, 1, exact)
			if proto == "h1" && !apart && method == http.MethodGet {
				g.hold("time-of-bare-over-loopback/"+name, ratio, goalsOf[t.Name].bare, tolerance)
			}
			if method == http.MethodPost {
				get, _ := memory(senders[i], senders[0], http.MethodGet, calls)
				g.hold("allocations-of-POST-over-loopback/"+name, allocs, get, aFew)
			}
		}
	}
}
