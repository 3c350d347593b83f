package main

import (
	"math"
	"strings"
	"testing"
)

func TestGates(t *testing.T) {
	t.Parallel()
	g := &gates{}
	within := cost{allocs: 8, bytes: 1000}
	g.overStubGoals("/in", goals{allocs: 8, today: 0.2}, within, 8, [3]float64{1, 1, 1.1}, [3]float64{0.2, 0.2, 0.219})
	if len(g.failed) != 0 {
		t.Errorf("within all gates: %v", g.failed)
	}
	for want, of := range map[string]struct {
		cost
		post            float64
		otelhttp, today [3]float64
	}{
		"allocations/in":             {cost: cost{allocs: 9}, post: 9},
		"allocations-of-POST/in":     {cost: cost{allocs: 7}, post: 8},
		"allocations-of-otelhttp/in": {otelhttp: [3]float64{1.01, 0, 0}},
		"bytes-of-otelhttp/in":       {otelhttp: [3]float64{0, 1.01, 0}},
		"time-of-otelhttp/in":        {otelhttp: [3]float64{0, 0, 1.11}},
		"allocations-of-today/in":    {today: [3]float64{0.21, 0, 0}},
		"bytes-of-today/in":          {today: [3]float64{0, 0.21, 0}},
		"time-of-today/in":           {today: [3]float64{0, 0, 0.23}},
	} {
		g := &gates{}
		g.overStubGoals("/in", goals{allocs: 8, today: 0.2}, of.cost, of.post, of.otelhttp, of.today)
		if len(g.failed) != 1 || !strings.HasPrefix(g.failed[0], want+" ") {
			t.Errorf("%s: failed are %v", want, g.failed)
		}
	}
}

// TestMissed: what is known not to meet its goal fails no gate, and nothing beside it.
func TestMissed(t *testing.T) {
	t.Parallel()
	for name, missed := range map[string]bool{
		"time-of-bare-over-loopback/trace=none/proto=h1/method=GET": true,
		"bytes-of-today/trace=none/chain=fedhttp-anchor":            true,
		"bytes-of-today/trace=none/chain=fedhttp":                   false,
		"time-of-today/trace=none+metrics/chain=fedhttp-task":       true,
		"time-of-today/trace=none/chain=fedhttp":                    false,
		"time-of-otelhttp/trace=always+metrics/chain=fedhttp":       false,
	} {
		g := &gates{}
		g.hold(name, 2, 1, 1)
		if got := len(g.failed) == 0; got != missed {
			t.Errorf("%s: missed %v, want %v", name, got, missed)
		}
	}
	g := &gates{}
	g.hold("it", math.NaN(), 1, 1)
	if len(g.failed) != 1 {
		t.Error("what was not measured holds")
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	if got, want := line("A/b=c", 3, value{1234.5, "ns/op"}, value{0.25, "of-bare"}), "BenchmarkA/b=c\t3\t1234.5 ns/op\t0.25 of-bare"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := short("github.com/sony/gobreaker/v2.(*CircuitBreaker[go.shape.struct {}]).afterRequest"), "v2.(*CircuitBreaker[go.shape.struct_{}]).afterRequest"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
