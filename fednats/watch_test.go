package fednats

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fedhttp/fedhttp"
)

// slowSink takes nothing until it is let go on.
type slowSink struct {
	gate chan struct{}
	mu   sync.Mutex
	last uint64
	n    int
	bad  bool
}

func (s *slowSink) begin() {}
func (s *slowSink) end()   {}
func (s *slowSink) apply(e entry) {
	<-s.gate
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	s.bad = s.bad || e.revision <= s.last
	s.last = e.revision
}

// TestSlowConsumer: a replica that does not keep up holds nobody else up, and has
// everything in the end, in its order. Far more comes than anything has room for.
func TestSlowConsumer(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	slowConsumer(t, open(t, s, Config{}), open(t, s, Config{SpoolMax: 20_000}))
}

// TestClusterSlow is the same on three servers.
func TestClusterSlow(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	slowConsumer(t, c.open(Config{}), c.open(Config{SpoolMax: 20_000}))
}

func slowConsumer(t *testing.T, f, writer *Fleet) {
	t.Helper()
	slow := &slowSink{gate: make(chan struct{})}
	w := f.watch(f.names.denials(), slow, newFreshness(-1, func(bool) {}))
	const total = 2*watchBatch + 500
	l := writer.Denials()
	for n := range total {
		must(t, l.Record(t.Context(), denial(fmt.Sprint(n))))
	}
	eventually(t, "the others have everything", func() bool {
		return writer.Status().Denials.Published == total && f.Denials().(*ledger).size.Load() == total
	})
	slow.mu.Lock()
	if slow.n != 0 {
		t.Errorf("it has taken %d already", slow.n)
	}
	slow.mu.Unlock()
	close(slow.gate)
	eventually(t, "the slow one has everything", func() bool {
		slow.mu.Lock()
		defer slow.mu.Unlock()
		return slow.last == total
	})
	if slow.bad {
		t.Error("out of order")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.replays != 1 || slow.n != total {
		t.Errorf("read %d times, %d revisions", w.replays, slow.n)
	}
}

// TestWatcherResumes: a reader that comes back reads what it has not seen, and a gap
// is no way on.
func TestWatcherResumes(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{})
	sink := &slowSink{gate: make(chan struct{})}
	close(sink.gate)
	w := f.watch(f.names.policies(), sink, newFreshness(-1, func(bool) {}))
	for n := range uint64(5) {
		must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(n + 1), Digest: "d"}))
		must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(n + 1), Digest: "d"}))
		eventually(t, "read", func() bool {
			sink.mu.Lock()
			defer sink.mu.Unlock()
			return sink.last == 2*(n+1)
		})
		// Its consumer is gone, as after a restart of the server that had it.
		for name := range mustStream(t, f).ConsumerNames(t.Context()).Name() {
			must(t, f.js.DeleteConsumer(t.Context(), bucketStream(f.names.policies()), name))
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.replays != 1 || sink.bad || sink.n != 10 {
		t.Errorf("read from its beginning %d times; %d revisions of 10, out of order: %v", w.replays, sink.n, sink.bad)
	}
}

func mustStream(t testing.TB, f *Fleet) jetstream.Stream {
	t.Helper()
	s, err := f.js.Stream(t.Context(), bucketStream(f.names.policies()))
	must(t, err)
	return s
}
