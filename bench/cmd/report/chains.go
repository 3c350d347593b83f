package main

import (
	"strings"

	"github.com/fedhttp/fedhttp/bench"
)

// column is a telemetry, in a table.
type column struct{ name, title string }

var (
	gated = []column{{"none", "no tracer"}, {"never", "not sampled"}, {"always", "sampled"}}
	all   = []column{gated[0], gated[1], {"1in100", "1 % sampled"}, gated[2]}
)

func titles(first string, columns []column) []string {
	head := []string{first}
	for _, c := range columns {
		head = append(head, c.title)
	}
	return head
}

// own sets fedhttp's rows apart.
func own(c bench.Chain) string {
	if strings.HasPrefix(c.Name, "fedhttp") {
		return "**" + c.Title + "**"
	}
	return c.Title
}

func stub(trace, method, chain string) string {
	return "Stub/trace=" + trace + "/method=" + method + "/chain=" + chain
}

// cell is what a benchmark costs beyond another: allocations, bytes and time.
func cell(r *results, name, base string) string {
	return count(r.beyond(name, base, "allocs/op")) + ", " + bytesOf(r.beyond(name, base, "B/op")) + ", " + duration(r.beyond(name, base, "sec/op"))
}

// chainsTable is what each chain costs beyond the stub, for a GET.
func chainsTable(r *results) string {
	var rows [][]string
	for _, c := range bench.Chains()[1:] {
		row := []string{own(c)}
		for _, t := range all {
			if !c.Traced && t.name != "none" {
				row = append(row, "the same")
				continue
			}
			row = append(row, cell(r, stub(t.name, "GET", c.Name), stub("none", "GET", "bare")))
		}
		rows = append(rows, row)
	}
	return table(titles("beyond the stub", all), rows)
}

// pairedTable has the medians of ratios in pairs.
func pairedTable(r *results) string {
	var rows [][]string
	columns := append(append([]column(nil), all...), column{"none+metrics", "no tracer, SDK metrics"}, column{"always+metrics", "sampled, SDK metrics"})
	for _, t := range columns {
		for _, c := range []bench.Chain{bench.Fedhttp, bench.FedhttpAnchor, bench.FedhttpTask} {
			name := "Beyond/trace=" + t.name + "/chain=" + c.Name
			row := []string{t.title + ": " + c.Title}
			for _, unit := range []string{"allocs-of-otelhttp", "bytes-of-otelhttp", "time-of-otelhttp", "allocs-of-today", "bytes-of-today", "time-of-today"} {
				row = append(row, ratio(r.get(name, unit)))
			}
			rows = append(rows, row)
		}
	}
	return table([]string{"", "of otelhttp's allocations", "bytes", "time", "of today's allocations", "bytes", "time"}, rows)
}

// moreTable is what else was measured over the stub.
func moreTable(r *results) string {
	var rows [][]string
	for _, c := range bench.Chains()[1:] {
		row := []string{own(c), cell(r, stub("none", "POST", c.Name), stub("none", "POST", "bare"))}
		for _, trace := range []string{"none", "always"} {
			if !c.Traced && trace != "none" {
				row = append(row, "the same")
				continue
			}
			parallel := func(trace, chain string) string { return "StubParallel/trace=" + trace + "/method=GET/chain=" + chain }
			row = append(row, duration(r.beyond(parallel(trace, c.Name), parallel("none", "bare"), "sec/op")))
		}
		for _, trace := range []string{"none+metrics", "always+metrics"} {
			if !essential(c) {
				row = append(row, "")
				continue
			}
			row = append(row, cell(r, stub(trace, "GET", c.Name), stub("none", "GET", "bare")))
		}
		rows = append(rows, row)
	}
	return table([]string{"beyond the stub", "POST of 1 KiB", "parallel", "parallel, sampled", "SDK metrics", "SDK metrics, sampled"}, rows)
}

// essential chains are measured in every case.
func essential(c bench.Chain) bool {
	for _, e := range bench.Essential() {
		if e.Name == c.Name {
			return true
		}
	}
	return false
}

// loopbackTable is a call over loopback through each chain.
func loopbackTable(r *results) string {
	var rows [][]string
	for _, c := range bench.Chains() {
		row := []string{own(c)}
		for _, of := range []string{
			"Loopback/proto=h1/trace=none/method=GET", "Loopback/proto=h1/trace=none/method=POST",
			"Loopback/proto=h2/trace=none/method=GET", "Loopback/proto=h2/trace=none/method=POST",
			"LoopbackParallel/proto=h1/trace=none/method=GET", "LoopbackParallel/proto=h2/trace=none/method=GET",
		} {
			if strings.Contains(of, "POST") && !essential(c) {
				row = append(row, "")
				continue
			}
			row = append(row, duration(r.get(of+"/chain="+c.Name, "sec/op")))
		}
		rows = append(rows, row)
	}
	return table([]string{"over loopback, no tracer", "HTTP/1 GET", "HTTP/1 POST", "HTTP/2 GET", "HTTP/2 POST", "HTTP/1 GET, parallel", "HTTP/2 GET, parallel"}, rows)
}

// sampledTable is that under the tracers.
func sampledTable(r *results) string {
	var rows [][]string
	for _, c := range bench.Essential() {
		row := []string{own(c)}
		for _, of := range []string{
			"Loopback/proto=h1/trace=never", "Loopback/proto=h1/trace=1in100", "Loopback/proto=h1/trace=always",
			"LoopbackParallel/proto=h1/trace=always", "LoopbackParallel/proto=h2/trace=always",
		} {
			row = append(row, duration(r.get(of+"/method=GET/chain="+c.Name, "sec/op")))
		}
		rows = append(rows, row)
	}
	return table([]string{"over loopback, GET", "HTTP/1, not sampled", "HTTP/1, 1 % sampled", "HTTP/1, sampled", "HTTP/1, parallel, sampled", "HTTP/2, parallel, sampled"}, rows)
}

var wireChains = []bench.Chain{bench.BareAgain, bench.Busy, bench.Otelhttp, bench.Least, bench.Fedhttp, bench.FedhttpTask}

// wireTable is that in pairs: the ratio to net/http alone, and what is allocated beyond it.
func wireTable(r *results) string {
	var rows [][]string
	for _, of := range []struct{ title, name string }{
		{"HTTP/1 GET, no tracer", "trace=none/proto=h1/method=GET"},
		{"HTTP/1 GET, not sampled", "trace=never/proto=h1/method=GET"},
		{"HTTP/1 GET, sampled", "trace=always/proto=h1/method=GET"},
		{"HTTP/1 GET, each on a new goroutine, no tracer", "trace=none/proto=h1/method=GET/apart"},
		{"HTTP/1 GET, each on a new goroutine, not sampled", "trace=never/proto=h1/method=GET/apart"},
		{"HTTP/1 GET, each on a new goroutine, sampled", "trace=always/proto=h1/method=GET/apart"},
		{"HTTP/1 POST, no tracer", "trace=none/proto=h1/method=POST"},
		{"HTTP/2 GET, no tracer", "trace=none/proto=h2/method=GET"},
		{"HTTP/2 POST, no tracer", "trace=none/proto=h2/method=POST"},
	} {
		row := []string{of.title, duration(r.get("OfBare/"+of.name+"/chain=bare", "sec/op"))}
		for _, c := range wireChains {
			name := "OfBare/" + of.name + "/chain=" + c.Name
			row = append(row, ratio(r.get(name, "time-of-bare"))+"; "+count(r.get(name, "allocs-beyond-bare"))+", "+bytesOf(r.get(name, "bytes-beyond-bare")))
		}
		rows = append(rows, row)
	}
	head := []string{"", "net/http alone"}
	for _, c := range wireChains {
		head = append(head, own(c))
	}
	return table(head, rows)
}
