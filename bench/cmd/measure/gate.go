package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"

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
	// onlyShown is the slack of a goal that nothing is held to.
	onlyShown = 0
)

// gates are what was measured beside its goal.
type gates struct {
	bench  bool // print Go's benchmark format
	failed []string
}

// hold notes a figure and its goal, and fails where it is more than slack times the
// goal.
func (g *gates) hold(name string, of, goal, slack float64) {
	if g.bench {
		fmt.Println(line("Gate/"+name, 1, value{of, "measured"}, value{goal, "goal"}, value{goal * slack, "gate"}))
	}
	if slack != onlyShown && of > goal*slack {
		g.failed = append(g.failed, fmt.Sprintf("%s is %.4g, the gate %.4g", name, of, goal*slack))
	}
}

func gate(args []string) error {
	var all, inBench bool
	var pairs, calls int
	flags("gate", args, func(f *flag.FlagSet) {
		f.BoolVar(&all, "all", false, "measure what has no limit too: 1 % sampled, and with the SDK's metrics")
		f.BoolVar(&inBench, "bench", false, "print Go's benchmark format, and fail at no gate: a report shows them")
		f.IntVar(&pairs, "pairs", 101, "how often each is timed")
		f.IntVar(&calls, "calls", 2000, "in how many calls, over the stub")
	})
	debug.SetGCPercent(1000)
	g := &gates{bench: inBench}
	columns := bench.Gated()
	if all {
		columns = append(columns, bench.OneInHundred(), columns[0].Metered(), columns[2].Metered())
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
		if goals, ok := goalsOf[t.Name]; ok && c.Name == bench.Fedhttp.Name { // the others are shown
			post, _ := memory(senders[i+1], senders[0], http.MethodPost, calls)
			g.overStubGoals("/trace="+t.Name, goals, of, post, overOtelhttp, overToday)
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
	for i, c := range chains {
		allocs, bytes := memory(senders[i], senders[0], method, calls)
		ratio := bench.Ratio(times[i], times[0])
		name, title := "trace="+t.Name+"/proto="+proto+"/method="+method, t.Title+", "+proto+" "+method
		if apart {
			name, title = name+"/apart", title+", apart"
		}
		g.text("%-62s%8.1f%11.0f%11.0f%8.3f\n", title+": "+c.Title, allocs, bytes, bench.Median(times[i]), ratio)
		if g.bench {
			fmt.Println(line("OfBare/"+name+"/chain="+c.Name, pairs, value{bench.Median(times[i]), "ns/op"}, value{ratio, "time-of-bare"},
				value{allocs, "allocs-beyond-bare"}, value{bytes, "bytes-beyond-bare"}))
		}
		if c.Name == bench.Fedhttp.Name && proto == "h1" && !apart && method == http.MethodGet {
			g.hold("time-of-bare-over-loopback/"+name, ratio, goalsOf[t.Name].bare, onlyShown)
		}
	}
}
