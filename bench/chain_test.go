package bench

import (
	"net/http"
	"runtime"
	"runtime/debug"
	"testing"
)

// runSerial measures one call after the other.
func runSerial(b *testing.B, s *Sender, method string) {
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Send(method); err != nil {
			b.Fatal(err)
		}
	}
}

// runParallel measures calls of many goroutines; the time is that of all calls,
// divided by their number.
func runParallel(b *testing.B, s *Sender, method string) {
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := s.Send(method); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

type runner func(b *testing.B, s *Sender, method string)

// overStub runs the chains over a Stub, each as a benchmark of its own.
func overStub(b *testing.B, t Telemetry, method string, chains []Chain, run runner) {
	for _, c := range chains {
		b.Run("trace="+t.Name+"/method="+method+"/chain="+c.Name, func(b *testing.B) {
			s := c.Over(Stub{}, t, Origin)
			defer s.Close()
			run(b, s, method)
		})
	}
}

// overLoopback does that over a Server.
func overLoopback(b *testing.B, proto string, t Telemetry, method string, chains []Chain, run runner) {
	server := Serve(proto)
	defer server.Close()
	for _, c := range chains {
		b.Run("proto="+proto+"/trace="+t.Name+"/method="+method+"/chain="+c.Name, func(b *testing.B) {
			s := c.Over(server.Base(), t, server.URL)
			defer s.Close()
			run(b, s, method)
		})
	}
}

// traced are the chains that a tracer is seen in.
func traced() []Chain {
	var chains []Chain
	for _, c := range Chains() {
		if c.Traced {
			chains = append(chains, c)
		}
	}
	return chains
}

// everyCase has the chains called with each method and under each tracer. Those that
// make no spans are called without one: they cost the same.
func everyCase(run func(t Telemetry, method string, chains []Chain)) {
	gated := Gated()
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		run(gated[0], method, Chains())
		for _, t := range []Telemetry{gated[1], OneInHundred(), gated[2]} {
			run(t, method, traced())
		}
	}
}

// BenchmarkStub is what the chains themselves cost.
func BenchmarkStub(b *testing.B) {
	touchHeap()
	everyCase(func(t Telemetry, method string, chains []Chain) { overStub(b, t, method, chains, runSerial) })
	for _, t := range Gated() {
		overStub(b, t.Metered(), http.MethodGet, Essential()[1:], runSerial)
	}
}

// BenchmarkStubParallel has 8 goroutines a core call at once.
func BenchmarkStubParallel(b *testing.B) {
	touchHeap()
	everyCase(func(t Telemetry, method string, chains []Chain) { overStub(b, t, method, chains, runParallel) })
}

// BenchmarkLoopback is a call to a server in the same process.
func BenchmarkLoopback(b *testing.B) { loopback(b, runSerial) }

// BenchmarkLoopbackParallel has 8 goroutines a core call at once.
func BenchmarkLoopbackParallel(b *testing.B) { loopback(b, runParallel) }

func loopback(b *testing.B, run runner) {
	for _, proto := range []string{"h1", "h2"} {
		everyCase(func(t Telemetry, method string, chains []Chain) { overLoopback(b, proto, t, method, chains, run) })
	}
}

// garbage is what touchHeap makes, where the compiler cannot know that nobody wants it.
var garbage []byte

// touchHeap has the heap take the memory that it may have until the next collection: the
// first to touch a page pays for a fault, which is no cost of whoever happens to be
// measured first. What it takes is at most 2 GiB.
func touchHeap() {
	runtime.GC() // or the next is due by what was alive before
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	// One collection and no other, with the heap full: what is in use when it begins is
	// what the runtime does not give back to the system.
	percent := debug.SetGCPercent(-1)
	for range min(m.NextGC, 2<<30) >> 10 {
		garbage = make([]byte, 1<<10)
		garbage[0] = 1 // what comes fresh from the system is zero, and is not touched to make it so
	}
	debug.SetGCPercent(percent)
	runtime.GC()
}
