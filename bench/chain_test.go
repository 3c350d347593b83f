package bench

import (
	"net/http"
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

func tracings() []Telemetry {
	gated := Gated()
	return []Telemetry{gated[1], OneInHundred(), gated[2]}
}

// BenchmarkStub is what the chains themselves cost.
func BenchmarkStub(b *testing.B) {
	overStub(b, none(), http.MethodGet, Chains(), runSerial)
	for _, t := range tracings() {
		overStub(b, t, http.MethodGet, traced(), runSerial)
	}
	overStub(b, none(), http.MethodPost, Chains(), runSerial)
	for _, t := range []Telemetry{none(), Gated()[2]} {
		overStub(b, t.Metered(), http.MethodGet, Essential()[1:], runSerial)
	}
}

// BenchmarkStubParallel has 8 goroutines a core call at once.
func BenchmarkStubParallel(b *testing.B) {
	overStub(b, none(), http.MethodGet, Chains(), runParallel)
	overStub(b, Gated()[2], http.MethodGet, traced(), runParallel)
}

// BenchmarkLoopback is a call to a server in the same process.
func BenchmarkLoopback(b *testing.B) {
	for _, proto := range []string{"h1", "h2"} {
		overLoopback(b, proto, none(), http.MethodGet, Chains(), runSerial)
		overLoopback(b, proto, none(), http.MethodPost, Essential(), runSerial)
	}
	for _, t := range tracings() {
		overLoopback(b, "h1", t, http.MethodGet, Essential(), runSerial)
	}
}

// BenchmarkLoopbackParallel has 8 goroutines a core call at once.
func BenchmarkLoopbackParallel(b *testing.B) {
	for _, proto := range []string{"h1", "h2"} {
		overLoopback(b, proto, none(), http.MethodGet, Chains(), runParallel)
		overLoopback(b, proto, Gated()[2], http.MethodGet, Essential(), runParallel)
	}
}
