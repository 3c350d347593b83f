package fednats

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fedhttp/fedhttp"
)

// BenchmarkDenialSpread: one of eight replicas records a denial; how long until the
// last of them refuses what it covers.
func BenchmarkDenialSpread(b *testing.B) {
	b.Run("one-server", func(b *testing.B) {
		s := newNetServer(b, b.TempDir(), "127.0.0.1:0")
		denialSpread(b, func(cfg Config) *Fleet {
			cfg.URL = s.URL()
			return openAt(b, cfg)
		})
	})
	b.Run("three-servers", func(b *testing.B) {
		denialSpread(b, newCluster(b, nil).open)
	})
}

func denialSpread(b *testing.B, open func(Config) *Fleet) {
	b.Helper()
	var ledgers []fedhttp.DenialLedger
	for n := range 8 {
		ledgers = append(ledgers, open(Config{Name: fmt.Sprint(n)}).Denials())
	}
	var took []time.Duration
	spread := func(n int) {
		d := denial(fmt.Sprint(n))
		began := time.Now()
		must(b, ledgers[n%8].Record(b.Context(), d))
		for _, l := range ledgers {
			for !denied(l, d) {
				time.Sleep(50 * time.Microsecond)
			}
		}
		took = append(took, time.Since(began))
	}
	spread(0) // once all of them read
	took = nil
	n := 0
	for b.Loop() {
		n++
		spread(n)
	}
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
	}
	b.ReportMetric(float64(took[len(took)-1].Microseconds())/1000, "max-ms")
}

// BenchmarkReplay: 100,000 keys into a fresh replica, half of them advertisements
// and half of them acceptances.
func BenchmarkReplay(b *testing.B) {
	const pairs = 50_000
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	s, err := StartServer(ctx, ServerConfig{Dir: b.TempDir(), Listen: "127.0.0.1:0", Configure: relaxed})
	must(b, err)
	b.Cleanup(s.Close)
	writer := openAt(b, Config{URL: s.URL()})
	conn, err := nats.Connect(s.URL())
	must(b, err)
	defer conn.Close()
	for n := range pairs {
		v := replayed(n)
		value, err := encode(v)
		must(b, err)
		for _, kind := range []string{kindAdvertised, kindAccepted} {
			must(b, conn.Publish(bucketSubject(writer.names.policies())+v.name(kind), value))
		}
		if n%500 == 0 {
			must(b, conn.FlushTimeout(within))
		}
	}
	stream := func() uint64 { return messages(b, writer, bucketStream(writer.names.policies())) }
	eventually(b, "everything is stored", func() bool { return stream() == 2*pairs })
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		b.StopTimer()
		before := heap()
		b.StartTimer()
		f := openAt(b, Config{URL: s.URL(), Parts: PartPolicies})
		book := feed1(b, f)
		b.StopTimer()
		b.ReportMetric((heap()-before)/(2*pairs), "heap-B/key")
		wantBasis(b, book, replayed(pairs-1).key(), "accepted "+string(replayed(pairs-1).Digest))
		closeFleet(b, f)
		b.StartTimer()
	}
	b.ReportMetric(float64(mustStream(b, writer).CachedInfo().State.Bytes)/(2*pairs), "stored-B/key")
}

// BenchmarkFeed is the replica's own part of a replay: 100,000 revisions into a book.
func BenchmarkFeed(b *testing.B) {
	const pairs = 50_000
	var entries []entry
	for n := range pairs {
		v := replayed(n)
		value, err := encode(v)
		must(b, err)
		for _, kind := range []string{kindAdvertised, kindAccepted} {
			entries = append(entries, entry{key: v.name(kind), revision: uint64(len(entries) + 1), value: value})
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		d := newFeed(&Fleet{}, new(fedhttp.PolicyBook))
		d.begin()
		for _, e := range entries {
			d.apply(e)
		}
		d.end()
		wantBasis(b, d.book, replayed(pairs-1).key(), "accepted "+string(replayed(pairs-1).Digest))
	}
}

// replayed is the policy that is advertised and accepted as number n.
func replayed(n int) *policyValue {
	k := fedhttp.PolicyKey{Peer: fmt.Sprintf("org-%d", n/10), Capability: fmt.Sprintf("capability-%d", n%10), Epoch: 4}
	v := newPolicyValue(k, "sha256:"+fmt.Sprintf("%064d", n), nil)
	return &v
}

// BenchmarkDenied is what a call pays for a ledger that is shared.
func BenchmarkDenied(b *testing.B) {
	for _, held := range []int{0, 10_000} {
		b.Run(fmt.Sprint(held, "-held"), func(b *testing.B) {
			l := &ledger{byKey: map[denialKey]heldDenial{}, names: map[string]denialKey{}, sweep: 1 << 20}
			for n := range held {
				d := denial(fmt.Sprint(n))
				v := newDenialValue(d)
				l.keep(v.name(), heldDenial{Denial: d})
			}
			task, auth := fedhttp.Task{Capability: "summarize", Scope: "5000"}, fedhttp.Authorization{Epoch: 4, Digest: "sha256:a"}
			b.ReportAllocs()
			for b.Loop() {
				_, _ = l.Denied("org-b", task, auth)
			}
		})
	}
}

// BenchmarkRecord is what a call pays for a denial, with the cluster there.
func BenchmarkRecord(b *testing.B) {
	s := newServer(b, b.TempDir())
	l := open(b, s, Config{SpoolMax: maxSpool}).Denials()
	d := denial("s")
	for b.Loop() {
		must(b, l.Record(b.Context(), d))
	}
}
