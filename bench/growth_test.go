package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"

	"github.com/fedhttp/fedhttp"
)

// figure is a figure that was measured beside a benchmark.
type figure struct {
	of   float64
	unit string
}

// eachWay runs a benchmark for things that are used at random and for one that is
// used again and again; call makes a call that uses the thing of the index.
func eachWay(b *testing.B, name string, n int, call func(i int) error, beside ...figure) {
	for _, access := range []string{"hot", "uniform"} {
		order := Order(n, access == "hot")
		b.Run(name+"="+strconv.Itoa(n)+"/access="+access, func(b *testing.B) {
			b.ReportAllocs()
			next := 0
			for b.Loop() {
				if next++; next >= len(order) {
					next = 0
				}
				if err := call(order[next]); err != nil {
					b.Fatal(err)
				}
			}
			for _, m := range beside {
				b.ReportMetric(m.of, m.unit)
			}
		})
	}
}

// transport makes a Transport over a Stub, which reports to nobody unless it is told to.
func transport(cfg fedhttp.Config) *fedhttp.Transport {
	t := none()
	cfg.Base, cfg.TracerProvider, cfg.Logger = Stub{}, t.Tracer, quiet
	if cfg.MeterProvider == nil {
		cfg.MeterProvider = t.Meter
	}
	return must(fedhttp.NewTransport(cfg))
}

// ballast has the heap be large where little is alive too, so that what grows with the
// number of peers or keys is not how seldom garbage is collected.
var ballast []byte

func growing(b *testing.B) {
	ballast = make([]byte, 32<<20)
	b.Cleanup(func() { ballast = nil })
}

// BenchmarkPeers is a GET to one of many peers.
func BenchmarkPeers(b *testing.B) {
	growing(b)
	ctx := context.Background()
	for _, n := range []int{1, 10, 100, 1_000, 10_000} {
		peers, urls := Peers(n)
		tr := transport(fedhttp.Config{Peers: peers})
		touchHeap()
		eachWay(b, "chain=bare/peers", n, func(i int) error { return Call(ctx, Stub{}, http.MethodGet, urls[i]) })
		eachWay(b, "chain=fedhttp/peers", n, func(i int) error { return Call(ctx, tr, http.MethodGet, urls[i]) })
		_ = tr.Close()
	}
}

// BenchmarkKeys is a task under one of many agreed policies.
func BenchmarkKeys(b *testing.B) {
	growing(b)
	for _, n := range []int{1_000, 10_000, 100_000, 1_000_000} {
		peers, urls := Peers(n / keysPerPeer)
		tr := transport(fedhttp.Config{Peers: peers, Book: FillBook(n)})
		touchHeap()
		var capabilities []string
		for i := range keysPerPeer {
			capabilities = append(capabilities, capabilityName(i))
		}
		task := func(rt http.RoundTripper) func(i int) error {
			return func(i int) error {
				ctx := fedhttp.ContextWithTask(context.Background(), fedhttp.Task{
					ID: "task-7", Capability: capabilities[i%keysPerPeer], Scope: "dataset-12", Obligations: obligations,
				})
				return Call(ctx, rt, http.MethodGet, urls[i/keysPerPeer])
			}
		}
		eachWay(b, "chain=bare/keys", n, task(Stub{}))
		eachWay(b, "chain=fedhttp/keys", n, task(tr))
		_ = tr.Close()
	}
}

// BenchmarkDenials is a task that one of many denials refuses, and one that none
// of them covers.
func BenchmarkDenials(b *testing.B) {
	growing(b)
	for _, n := range []int{1_000, 10_000, 100_000} {
		scopes := make([]string, 2*n)
		for i := range scopes {
			scopes[i] = fmt.Sprintf("dataset-%06d", i)
		}
		before := Alive()
		ledger := fedhttp.NewDenialLedger()
		now := time.Now()
		for _, scope := range scopes[:n] {
			if err := ledger.Record(context.Background(), fedhttp.Denial{
				Peer: peerID, Capability: capability, Scope: scope, Status: http.StatusForbidden, At: now, Until: now.Add(time.Hour),
			}); err != nil {
				b.Fatal(err)
			}
		}
		size := float64(Alive()-before) / float64(n)
		tr := transport(fedhttp.Config{Denials: ledger, Peers: []fedhttp.Peer{{ID: peerID, Origins: []string{Origin}}}})
		touchHeap()
		send := func(i int) error {
			ctx := fedhttp.ContextWithTask(context.Background(), fedhttp.Task{Capability: capability, Scope: scopes[i]})
			return Call(ctx, tr, http.MethodGet, Origin+path)
		}
		eachWay(b, "call=refused/denials", n, func(i int) error {
			if err := send(i); !errors.Is(err, fedhttp.ErrScopeDenied) {
				return fmt.Errorf("not denied: %w", err)
			}
			return nil
		})
		eachWay(b, "call=sent/denials", n, func(i int) error { return send(n + i) }, figure{size, "B/denial"})
		runtime.KeepAlive(ledger)
		_ = tr.Close()
	}
}

// BenchmarkSetPeers replaces all peers by themselves, and reports how much memory
// a Transport takes for each that has never been called, and for each that has been
// called once: its configuration is not counted, and neither are connections.
func BenchmarkSetPeers(b *testing.B) {
	for _, n := range []int{100, 1_000, 10_000} {
		b.Run("peers="+strconv.Itoa(n), func(b *testing.B) {
			peers, urls := Peers(n)
			empty := transport(fedhttp.Config{}) // what a Transport has without them
			before := Alive()
			each := func() float64 { return float64(Alive()-before) / float64(n) }
			begin := time.Now()
			tr := transport(fedhttp.Config{Peers: peers})
			first := time.Since(begin)
			size := each()
			b.ReportAllocs()
			for b.Loop() {
				if err := tr.SetPeers(peers); err != nil {
					b.Fatal(err)
				}
			}
			if got := len(tr.Status()); got != n {
				b.Fatalf("%d peers", got)
			}
			b.ReportMetric(size, "B/peer")
			b.ReportMetric(float64(first.Nanoseconds()), "first-ns")
			_ = tr.Close()

			for unit, meter := range map[string]metric.MeterProvider{
				"B/called-peer": metricnoop.NewMeterProvider(), "B/metered-peer": unkept{},
			} {
				before = Alive()
				tr := transport(fedhttp.Config{Peers: peers, MeterProvider: meter})
				for _, url := range urls {
					if err := Call(context.Background(), tr, http.MethodGet, url); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(each(), unit)
				_ = tr.Close()
			}
			_ = empty.Close()
		})
	}
}

// unkept is a provider of metrics that keeps nothing, and is not known for it: what
// the SDK keeps is its own.
type unkept struct{ metricnoop.MeterProvider }
