package main

import (
	"fmt"
	"strings"

	"github.com/fedhttp/fedhttp/bench"
)

var (
	rates    = []int{100, 1_000, 5_000}
	accesses = []string{"hot", "uniform"}
)

func latencyOf(gogc, rate int, trace, chain string) string {
	return fmt.Sprintf("Latency/gogc=%d/rate=%d/trace=%s/chain=%s", gogc, rate, trace, chain)
}

func latencyTable(r *results, gogc int) string {
	var rows [][]string
	for _, rate := range rates {
		for _, c := range []bench.Chain{bench.Bare, bench.BareAgain, bench.Least, bench.Fedhttp, bench.FedhttpTask} {
			trace, title := "none", own(c)
			if c.Name == bench.FedhttpTask.Name {
				trace, title = "always", title+", sampled"
			}
			name := latencyOf(gogc, rate, trace, c.Name)
			row := []string{thousands(float64(rate)) + "/s: " + title}
			for _, unit := range []string{"p50-sec", "p99-sec", "p99-turn-sec", "p99.9-sec", "p99-start-sec"} {
				row = append(row, duration(r.get(name, unit)))
			}
			rows = append(rows, append(row, digits(r.get(name, "collections/s"))))
		}
	}
	return table([]string{"requests", "p50", "p99", "p99 in the median turn", "p99.9", "before the call, p99", "collections a second"}, rows)
}

// curve is what calls cost beyond those of the stub, as something grows.
type curve struct {
	title, name, access string
	sizes               []int
}

var curves = []curve{
	{"peers, one called", "peers", "hot", []int{1, 10, 100, 1_000, 10_000}},
	{"peers, all called", "peers", "uniform", []int{1, 10, 100, 1_000, 10_000}},
	{"policy keys, one used", "keys", "hot", []int{1_000, 10_000, 100_000, 1_000_000}},
	{"policy keys, all used", "keys", "uniform", []int{1_000, 10_000, 100_000, 1_000_000}},
}

// at is the cost of a call at a size.
func (c curve) at(r *results, size int, unit string) float64 {
	of := func(chain string) string {
		return fmt.Sprintf("%s/chain=%s/%s=%d/access=%s", strings.ToUpper(c.name[:1])+c.name[1:], chain, c.name, size, c.access)
	}
	return r.beyond(of("fedhttp"), of("bare"), unit)
}

func curvesTable(r *results, curves ...curve) string {
	head := []string{"beyond the stub"}
	for _, size := range curves[0].sizes {
		head = append(head, thousands(float64(size)))
	}
	var rows [][]string
	for _, c := range curves {
		row := []string{c.title}
		for _, size := range c.sizes {
			row = append(row, duration(c.at(r, size, "sec/op")))
		}
		rows = append(rows, row)
	}
	return table(head, rows)
}

func peersTable(r *results) string {
	text := curvesTable(r, curves[0], curves[1])
	var rows [][]string
	for _, n := range []int{100, 1_000, 10_000} {
		name := fmt.Sprintf("SetPeers/peers=%d", n)
		rows = append(rows, []string{
			thousands(float64(n)), bytesOf(r.get(name, "B/peer")), bytesOf(r.get(name, "B/called-peer")), bytesOf(r.get(name, "B/metered-peer")),
			duration(r.get(name, "first-sec")), duration(r.get(name, "sec/op")),
		})
	}
	return text + "\n\n" + table([]string{"peers", "memory each, not called yet", "called once", "called once, with metrics", "NewTransport", "SetPeers of all"}, rows)
}

func keysTable(r *results) string { return curvesTable(r, curves[2], curves[3]) }

func denialsTable(r *results) string {
	var rows [][]string
	for _, n := range []int{1_000, 10_000, 100_000} {
		row := []string{thousands(float64(n)), bytesOf(r.get(fmt.Sprintf("Denials/call=sent/denials=%d/access=hot", n), "B/denial"))}
		for _, call := range []string{"refused", "sent"} {
			for _, access := range accesses {
				row = append(row, duration(r.get(fmt.Sprintf("Denials/call=%s/denials=%d/access=%s", call, n, access), "sec/op")))
			}
		}
		rows = append(rows, row)
	}
	return table([]string{"denials", "memory each", "refused, hot", "refused, uniform", "sent, hot", "sent, uniform"}, rows)
}

func heldTable(r *results) string {
	var rows [][]string
	for _, n := range []int{1_000, 10_000, 100_000} {
		name := fmt.Sprintf("Held/tasks=%d", n)
		rows = append(rows, []string{
			thousands(float64(n)), bytesOf(r.get(name, "B/task")),
			duration(r.get(name, "awake-sec")), duration(r.get(name, "returned-sec")),
		})
	}
	return table([]string{"held calls", "memory each", "until all were awake and sent", "until all had returned"}, rows)
}

func bookTable(r *results) string {
	var rows [][]string
	for _, keys := range []string{"1k", "100k", "1M"} {
		for _, of := range []struct{ title, name string }{{"PolicyBook", "book"}, {"map with an RWMutex", "rwmutex-map"}} {
			row := []string{keys + " keys: " + of.title}
			for _, access := range accesses {
				for _, mode := range []string{"serial", "parallel"} {
					row = append(row, duration(r.get(fmt.Sprintf("Authorize/keys=%s/access=%s/mode=%s/of=%s", keys, access, mode, of.name), "sec/op")))
				}
			}
			rows = append(rows, row)
		}
	}
	return table([]string{"Authorize alone", "hot", "hot, parallel", "uniform", "uniform, parallel"}, rows)
}

func writesTable(r *results) string {
	var rows [][]string
	for _, writes := range []int{0, 2_000, 100_000} {
		row := []string{thousands(float64(writes))}
		for _, of := range []string{"book", "rwmutex-map"} {
			name := fmt.Sprintf("AuthorizeDuringWrites/writes=%d/of=%s", writes, of)
			row = append(row, duration(r.get(name, "sec/op")), thousands(r.get(name, "writes/s")))
		}
		rows = append(rows, row)
	}
	rows = append(rows, []string{"a write, all else quiet", duration(r.get("BookWrite/keys=1M", "sec/op")), "", "", ""})
	rows = append(rows, []string{"a write that wakes 100,000 waiters", duration(r.get("Wake", "worst-write-sec")), "", "", ""})
	return table([]string{"writes/s meant", "a read of the PolicyBook", "writes/s", "a read of the map", "writes/s"}, rows)
}

func streamTable(r *results) string {
	var rows [][]string
	for _, direction := range []string{"up", "down"} {
		for _, c := range []bench.Chain{bench.Bare, bench.BareAgain, bench.Fedhttp} {
			name := "Stream/direction=" + direction + "/chain=" + c.Name
			rows = append(rows, []string{
				"1 GiB " + direction + ": " + own(c), digits(r.get(name, "B/s")/(1<<20)) + " MiB/s", ratio(r.get(name, "of-bare")),
				thousands(r.get(name, "B-peak")/1024) + " KiB",
			})
		}
	}
	return table([]string{"", "throughput", "of bare's, in pairs", "alive at the peak"}, rows)
}

// contentionTable is whose locks goroutines wait for.
func contentionTable(r *results) string {
	var rows [][]string
	for _, name := range r.named("Contention/") {
		run, owner, _ := strings.Cut(name, "/owner=")
		if owner == "other" {
			continue
		}
		full := "Contention/" + name
		var found []string
		for _, lock := range r.named("Lock/" + run + "/owner=" + owner + "/func=") {
			found = append(found, fmt.Sprintf("`%s` %s %%", lock, digits(r.get("Lock/"+run+"/owner="+owner+"/func="+lock, "%-of-delay"))))
		}
		rows = append(rows, []string{
			strings.ReplaceAll(strings.ReplaceAll(run, "/", ", "), "=", " "), owner,
			digits(r.get(full, "%-of-delay")) + " %", digits(r.get(full, "%-of-time")) + " %", duration(r.get(full, "sec/op")), strings.Join(found, ", "),
		})
	}
	return table([]string{"run", "locks of", "of the delay", "of the callers' time", "a call", "above 1 % of the delay"}, rows)
}

func machineTable(r *results) string {
	c := r.config
	rows := [][]string{
		{"processor", c["model"] + ", " + c["cores"] + " cores"},
		{"memory", c["memory"]},
		{"system", c["system"]},
		{"Go", c["toolchain"]},
		{"fedhttp", c["commit"]},
		{"date", c["date"]},
		{"load when it began", c["load"]},
	}
	for _, m := range []string{"otelhttp", "otel-sdk", "retryablehttp", "gobreaker", "failsafe-go"} {
		rows = append(rows, []string{m, c["version-"+m]})
	}
	return table([]string{"", ""}, rows)
}
