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

// underEach has a cell for each of the tracers. Chains that make no spans were measured
// without one.
func underEach(c bench.Chain, cell func(trace string) string) (cells []string) {
	for _, t := range all {
		if !c.Traced && t.name != "none" {
			cells = append(cells, "the same")
			continue
		}
		cells = append(cells, cell(t.name))
	}
	return cells
}

// chainsTable is what each chain costs beyond the stub.
func chainsTable(r *results, method string) string {
	var rows [][]string
	for _, c := range bench.Chains()[1:] {
		rows = append(rows, append([]string{own(c)}, underEach(c, func(trace string) string {
			return cell(r, stub(trace, method, c.Name), stub("none", method, "bare"))
		})...))
	}
	return table(titles("beyond the stub, "+method, all), rows)
}

var methods = []string{"GET", "POST"}

// timesTable is how long a call takes with each method and under each tracer.
func timesTable(head string, chains []bench.Chain, took func(trace, method, chain string) float64) string {
	columns := []string{head}
	for _, method := range methods {
		for _, t := range all {
			columns = append(columns, method+", "+t.title)
		}
	}
	var rows [][]string
	for _, c := range chains {
		row := []string{own(c)}
		for _, method := range methods {
			row = append(row, underEach(c, func(trace string) string { return duration(took(trace, method, c.Name)) })...)
		}
		rows = append(rows, row)
	}
	return table(columns, rows)
}

func parallelTable(r *results) string {
	return timesTable("beyond the stub, parallel", bench.Chains()[1:], func(trace, method, chain string) float64 {
		name := func(trace, chain string) string {
			return "Parallel" + "/trace=" + trace + "/method=" + method + "/chain=" + chain
		}
		return r.beyond("Stub"+name(trace, chain), "Stub"+name("none", "bare"), "sec/op")
	})
}

// meteredTable is a GET with the metrics of the SDK.
func meteredTable(r *results) string {
	var rows [][]string
	for _, c := range bench.Essential()[1:] {
		row := []string{own(c)}
		for _, t := range gated {
			row = append(row, cell(r, stub(t.name+"+metrics", "GET", c.Name), stub("none", "GET", "bare")))
		}
		rows = append(rows, row)
	}
	return table(titles("beyond the stub, GET, SDK metrics", gated), rows)
}

// pairedTable has the medians of ratios in pairs. Goals are those of the columns,
// whatever the metrics: 1 % sampled has that of nothing sampled.
func pairedTable(r *results) string {
	var rows [][]string
	columns := append([]column(nil), all...)
	for _, t := range gated {
		columns = append(columns, column{t.name + "+metrics", t.title + ", SDK metrics"})
	}
	for _, t := range columns {
		plain, _, _ := strings.Cut(t.name, "+")
		if plain == "1in100" {
			plain = "never"
		}
		for _, c := range []bench.Chain{bench.Fedhttp, bench.FedhttpAnchor, bench.FedhttpTask} {
			name := "Beyond/trace=" + t.name + "/chain=" + c.Name
			row := []string{t.title + ": " + c.Title}
			for _, than := range []string{"otelhttp", "today"} {
				for _, what := range []string{"allocations", "bytes", "time"} {
					goal := r.get("Gate/"+what+"-of-"+than+"/trace="+plain+"/chain=fedhttp", "goal")
					of := r.get(name, strings.Replace(what, "allocations", "allocs", 1)+"-of-"+than)
					row = append(row, met(ratio(of), within(of, goal)))
				}
			}
			rows = append(rows, row)
		}
	}
	return table([]string{"", "of otelhttp's allocations", "bytes", "time", "of today's allocations", "bytes", "time"}, rows)
}

// loopbackTables are a call over loopback through each chain.
func loopbackTables(r *results) string {
	var tables []string
	for _, proto := range []struct{ name, title string }{{"h1", "HTTP/1"}, {"h2", "HTTP/2"}} {
		for _, mode := range []struct{ name, title string }{{"Loopback", ""}, {"LoopbackParallel", ", parallel"}} {
			tables = append(tables, timesTable(proto.title+mode.title, bench.Chains(), func(trace, method, chain string) float64 {
				return r.get(mode.name+"/proto="+proto.name+"/trace="+trace+"/method="+method+"/chain="+chain, "sec/op")
			}))
		}
	}
	return strings.Join(tables, "\n\n")
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
