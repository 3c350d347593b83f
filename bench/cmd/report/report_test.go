package main

import (
	"maps"
	"math"
	"regexp"
	"strings"
	"testing"
)

// complete returns results that have every figure which a report asks for, all of
// them 1 but those that are given.
func complete(t *testing.T, given map[string]map[string]float64) *results {
	t.Helper()
	r := &results{config: map[string]string{}, values: map[string]map[string][]float64{}}
	set := func(name, unit string, value float64) {
		if r.values[name] == nil {
			r.values[name] = map[string][]float64{}
		}
		r.values[name][unit] = []float64{value}
	}
	for name, values := range given {
		for unit, value := range values {
			set(name, unit, value)
		}
	}
	for range 10_000 {
		_, err := render(r)
		if err == nil {
			return r
		}
		name, unit, ok := strings.Cut(err.Error(), " has no ")
		if !ok {
			t.Fatal(err)
		}
		set(name, unit, 1)
	}
	t.Fatal("it never has enough")
	return nil
}

func TestRender(t *testing.T) {
	t.Parallel()
	const trace, plain = "/trace=none", "/chain=fedhttp"
	r := complete(t, map[string]map[string]float64{
		"Stub/trace=none/method=GET/chain=bare":                  {"allocs/op": 6, "B/op": 1000, "sec/op": 1e-6},
		"Stub/trace=none/method=GET/chain=fedhttp":               {"allocs/op": 10, "B/op": 2488, "sec/op": 1.65e-6},
		"Gate/allocations" + trace + plain:                       {"measured": 4, "goal": 8},
		"Gate/bytes-of-today" + trace + plain:                    {"measured": 0.23, "goal": 0.2},
		"Gate/bytes-of-today/trace=never" + plain:                {"measured": 0.3, "goal": 0.3},
		"Beyond/trace=none/chain=fedhttp-task":                   {"allocs-of-today": 0.17, "bytes-of-today": 0.26},
		"Beyond/trace=1in100/chain=fedhttp-task":                 {"allocs-of-today": 0.17, "bytes-of-today": 0.26},
		"SetPeers/peers=10000":                                   {"B/peer": 3000, "B/metered-peer": 5000},
		"Held/tasks=100000":                                      {"B/task": 7000, "awake-sec": 0.2},
		"Latency/gogc=1000/rate=100/trace=none/chain=bare":       {"p99-turn-sec": 1e-3},
		"Latency/gogc=1000/rate=100/trace=none/chain=bare-again": {"p99-turn-sec": 1.2e-3},
		"Latency/gogc=1000/rate=100/trace=none/chain=fedhttp":    {"p99-turn-sec": 1.25e-3},
		"Latency/gogc=100/rate=1000/trace=none/chain=bare":       {"p99-turn-sec": 1e-3},
		"Latency/gogc=100/rate=1000/trace=none/chain=bare-again": {"p99-turn-sec": 1.2e-3},
		"Latency/gogc=100/rate=1000/trace=none/chain=fedhttp":    {"p99-turn-sec": 1.27e-3},
		"Contention/over=stub/owner=fedhttp":                     {"%-of-delay": 12},
		"Lock/over=stub/owner=fedhttp/func=fedhttp.lock":         {"%-of-delay": 12},
	})
	files, err := render(r)
	if err != nil {
		t.Fatal(err)
	}
	page := string(files["benchmarks.md"])
	for _, want := range []string{
		"| **fedhttp** | 4, 1,488 B, 650 ns |",
		"| 4 of 8 |",
		"| **0.23 of 0.20** |",
		"| no tracer: fedhttp, a task with obligations | 1.00 | 1.00 | 1.00 | 0.17 | **0.26** | 1.00 |",
		"| 1 % sampled: fedhttp, a task with obligations | 1.00 | 1.00 | 1.00 | 0.17 | 0.26 | 1.00 |",
		"| an idle peer takes under 4 KiB, not called yet | 3,000 B | yes |",
		"| the same once it was called, with metrics | 5,000 B | **no** |",
		"| a held call takes under 6 KiB, its http.Client call included | 7,000 B | **no** |",
		"| 100,000 held calls released in under 1 s | 200 ms | yes |",
		"| p99 at 100 requests/s, `GOGC` 1000, within 10 % of bare plus 50 µs | 1.25 ms; bare 1.00 ms and 1.20 ms | yes |",
		"| p99 at 1,000 requests/s, `GOGC` 100, within 10 % of bare plus 50 µs | 1.27 ms; bare 1.00 ms and 1.20 ms | **no** |",
		"| no lock of fedhttp's own above 1 % of the delay | `fedhttp.lock` 12.0 % | **no** |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	columns := 0
	for line := range strings.Lines(page) {
		switch n := strings.Count(line, "|"); {
		case n == 0:
			columns = 0
		case columns == 0:
			columns = n
		case n != columns:
			t.Errorf("a row of %d columns in a table of %d: %s", n-1, columns-1, line)
		}
	}
	for _, plot := range regexp.MustCompile(`\]\((.*\.svg)\)`).FindAllStringSubmatch(page, -1) {
		if svg := string(files[plot[1]]); !strings.HasPrefix(svg, "<svg ") || strings.Contains(svg, "NaN") {
			t.Errorf("%s is no plot: %.60q", plot[1], svg)
		}
	}
}

// TestMissing: a report without one of its figures is none.
func TestMissing(t *testing.T) {
	t.Parallel()
	r := complete(t, nil)
	for name := range maps.Clone(r.values) {
		without := &results{config: r.config, values: maps.Clone(r.values)}
		delete(without.values, name)
		if files, err := render(without); err == nil || files != nil {
			t.Errorf("a report without %s", name)
		}
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	r, err := read(strings.NewReader(`cores: 2
pkg: a
BenchmarkA/b=c-2   	 100	 1000 ns/op	 3 allocs/op
BenchmarkA/b=c-2   	 100	 3000 ns/op	 3 allocs/op
BenchmarkA/b=c-2   	 100	 2000 ns/op	 3 allocs/op
BenchmarkA/of=today-10   	 1	 0 ns/op
PASS
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.get("A/b=c", "sec/op"); math.Round(got*1e9) != 2000 {
		t.Errorf("the median is %v", got)
	}
	if got := r.get("A/of=today", "sec/op"); got != 0 {
		t.Errorf("a zero is %v", got)
	}
	if r.config["cores"] != "2" {
		t.Errorf("the configuration is %v", r.config)
	}
	if _, err := read(strings.NewReader("nothing\n")); err == nil {
		t.Error("nothing is a result")
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	for _, tt := range [][2]string{
		{duration(2.5), "2.50 s"}, {duration(0.0123), "12.3 ms"}, {duration(1.5e-6), "1.50 µs"}, {duration(42e-9), "42.0 ns"},
		{duration(-3e-6), "-3.00 µs"}, {duration(0), "0.00 ns"},
		{thousands(1234567.4), "1,234,567"}, {thousands(999), "999"}, {thousands(-1200), "-1,200"}, {thousands(-0.2), "0"},
		{count(4.01), "4"}, {count(22.4), "22.4"}, {count(-0.001), "0"},
	} {
		if tt[0] != tt[1] {
			t.Errorf("%q, want %q", tt[0], tt[1])
		}
	}
	for v, want := range map[float64]float64{0.7: 1, 1: 1, 1.1: 2, 3: 5, 6: 10, 4.2e-6: 5e-6, 0: 1, -1: 1} {
		if got := ceiling(v); got < want*0.999 || got > want*1.001 {
			t.Errorf("the ceiling of %v is %v", v, got)
		}
	}
}
