package main

import (
	"fmt"
	"time"
)

type options struct {
	out                string
	benchtime, latency time.Duration
	rounds             int
	quick              bool
}

// stage is a part of the run. Its rounds are processes of their own, so that what
// is compared is measured at several times and not only once each.
type stage struct {
	name    string
	seconds int // about, with the usual options
	rounds  int
	env     []string
	command []string // the first is a program of the output folder
}

// seldom collects garbage ten times more seldom than usual, so that a benchmark of
// nothing but short-lived garbage is not one of the collector.
var seldom = []string{"GOGC=1000"}

func stagesOf(o options) []stage {
	benchtime, once, pairs, mib, contention := o.benchtime.String(), "5x", "101", "1024", "3s"
	if o.quick {
		benchtime, once, pairs, mib, contention = "1x", "1x", "3", "16", "100ms"
		o.rounds, o.latency = 1, 10*time.Millisecond
	}
	longer, longest := 5*o.benchtime, 50*o.benchtime // in which garbage is collected some times
	if o.quick {
		longest = longer
	}
	some := max(1, o.rounds*4/5) // of less than four rounds benchstat tells no difference
	bench := func(program, pattern, benchtime string) []string {
		return []string{program, "-test.run=^$", "-test.timeout=30m", "-test.bench=" + pattern, "-test.benchtime=" + benchtime}
	}
	latency := []string{"measure", "latency", fmt.Sprint("-turn=", o.latency)}
	return []stage{
		{"the gates, in pairs", 105, 1, nil, []string{"measure", "gate", "-all", "-bench", "-pairs=" + pairs}},
		{"chains over a stub", 110, o.rounds, seldom, bench("bench.test", "^BenchmarkStub(Parallel)?$", benchtime)},
		{"chains over loopback", 175, some, nil, bench("bench.test", "^BenchmarkLoopback(Parallel)?$", benchtime)},
		{"growth: peers, keys, denials", 85, some, seldom, bench("bench.test", "^Benchmark(Peers|Keys|Denials)$", benchtime)},
		{"growth: all peers replaced", 10, 1, nil, bench("bench.test", "^BenchmarkSetPeers$", once)},
		{"the policy book", 60, 1, nil, bench("root.test",
			"^Benchmark(Authorize|BookWrite|BookFill)$/^keys=(1k|100k|1M)$", longer.String())},
		{"the policy book while it is written to", 45, 1, nil, bench("root.test", "^BenchmarkAuthorizeDuringWrites$", longest.String())},
		// Apart: where there have been goroutines before, new ones take less.
		{"held calls", 20, 1, nil, bench("root.test", "^BenchmarkHeld$", "1x")},
		{"held calls, waking", 10, 1, nil, bench("root.test", "^BenchmarkWake$", "1x")},
		{"latency at fixed rates", int(225 * o.latency.Seconds()), 1, seldom, latency},
		{"latency at fixed rates, with garbage collected often", int(225 * o.latency.Seconds()), 1, nil, latency},
		{"streaming", 420, 1, nil, []string{"measure", "stream", "-mib=" + mib}},
		{"contention", 25, 1, nil, []string{"measure", "contention", "-for=" + contention}},
	}
}
