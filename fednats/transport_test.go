package fednats

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// replica is a Transport that takes part in a fleet.
func replica(t testing.TB, f *Fleet, url string, base http.RoundTripper) *http.Client {
	t.Helper()
	tr, err := fedhttp.NewTransport(fedhttp.Config{
		Base: base, Book: feed1(t, f), Denials: f.Denials(), Coordinator: f.Coordinator(), Escalator: f.Escalator(),
		Peers: []fedhttp.Peer{{
			ID: "org-b", Origins: []string{url}, Receipt: fedhttp.IgnoreReceipt,
			Routes: []fedhttp.Route{{Pattern: "/", Task: fedhttp.Task{Capability: "summarize", Scope: "dataset-12"}}},
		}},
		Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	t.Cleanup(func() { tr.Close() })
	must(t, f.Degrade(tr))
	return &http.Client{Transport: tr}
}

// TestDeniedOnce: of 10,000 tasks of one scope that B denies, its ledger counts one
// for each replica, and those that were on their way when the first answer came.
func TestDeniedOnce(t *testing.T) {
	t.Parallel()
	const replicas, workers, tasks = 8, 4, 10_000
	var denials atomic.Int64
	b := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		denials.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Federation-Policy-Evaluated", "true")
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(b.Close)
	s := newServer(t, t.TempDir())
	var all sync.WaitGroup
	var refused, left atomic.Int64
	left.Store(tasks)
	for n := range replicas {
		client := replica(t, open(t, s, Config{Name: fmt.Sprint(n)}), b.URL, nil)
		for range workers {
			all.Go(func() {
				for left.Add(-1) >= 0 {
					resp, err := client.Get(b.URL)
					if err != nil {
						refused.Add(1)
						continue
					}
					resp.Body.Close()
				}
			})
		}
	}
	all.Wait()
	counted := denials.Load()
	t.Logf("%d tasks, %d at a time: B counted %d denials", tasks, replicas*workers, counted)
	if most := int64(replicas + replicas*workers); counted > most {
		t.Errorf("B counted %d denials, want at most %d", counted, most)
	}
	if counted == 0 || refused.Load()+counted != tasks {
		t.Errorf("%d denied, %d refused here", counted, refused.Load())
	}
}

type stub struct{}

func (stub) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// TestRequestAllocs: a call with a fleet costs what one without costs, with nothing
// denied and with something, and takes none of the fleet's locks.
//
// Not parallel: AllocsPerRun counts those of the whole process.
func TestRequestAllocs(t *testing.T) {
	const url = "https://b.example"
	transport := func(cfg fedhttp.Config) *fedhttp.Transport {
		cfg.Base, cfg.Logger = stub{}, slog.New(slog.DiscardHandler)
		cfg.Peers = []fedhttp.Peer{{
			ID: "org-b", Origins: []string{url}, Receipt: fedhttp.IgnoreReceipt,
			Routes: []fedhttp.Route{{Pattern: "/", Task: fedhttp.Task{Capability: "summarize", Scope: "dataset-12", Obligations: residency}}},
		}}
		tr, err := fedhttp.NewTransport(cfg)
		must(t, err)
		t.Cleanup(func() { tr.Close() })
		return tr
	}
	// The server and the client work in the background, so it is the least that counts.
	least := func(tr *fedhttp.Transport) float64 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		must(t, err)
		n := float64(1 << 20)
		for range 30 {
			n = min(n, testing.AllocsPerRun(200, func() {
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}))
		}
		return n
	}

	own, local := fedhttp.NewDenialLedger(), new(fedhttp.PolicyBook)
	must(t, local.Advertise(fedhttp.Advertisement{PolicyKey: key(4), Digest: "sha256:a"}))
	local.Accept(fedhttp.Policy{PolicyKey: key(4), Digest: "sha256:a"})
	alone := transport(fedhttp.Config{Book: local, Denials: own})

	f := open(t, newServer(t, t.TempDir()), Config{})
	book := feed1(t, f)
	must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(4), Digest: "sha256:a"}))
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(4), Digest: "sha256:a"}))
	wantBasis(t, book, key(4), "accepted sha256:a")
	shared := transport(fedhttp.Config{Book: book, Denials: f.Denials(), Coordinator: f.Coordinator(), Escalator: f.Escalator()})
	must(t, f.Degrade(shared))

	for _, denials := range []int{0, 1} {
		for n := range denials {
			for _, l := range []fedhttp.DenialLedger{own, f.Denials()} {
				must(t, l.Record(t.Context(), denial(fmt.Sprint("another ", n))))
			}
		}
		eventually(t, "the bucket's word has come back", func() bool {
			f.ledger.mu.RLock()
			defer f.ledger.mu.RUnlock()
			for _, d := range f.ledger.byKey {
				if d.revision == 0 {
					return false
				}
			}
			return len(f.ledger.byKey) == denials
		})
		if a, b := least(alone), least(shared); a != b {
			t.Errorf("%d denials: %v allocations with a fleet, %v without", denials, b, a)
		}
		// A call that wanted one of these would wait for ever.
		unlock := lockAll(f, denials == 0)
		least(shared)
		unlock()
	}
}

// lockAll takes every lock of the fleet. That of the ledger is shared with its
// readers where there is something to read, as without a fleet.
func lockAll(f *Fleet, empty bool) (unlock func()) {
	ledger := sync.Locker(&f.ledger.mu)
	if !empty {
		ledger = f.ledger.mu.RLocker()
	}
	locks := []sync.Locker{ledger, &f.mu, &f.refusals.mu}
	for _, o := range f.outboxes {
		locks = append(locks, &o.mu)
	}
	for _, w := range f.watchers {
		locks = append(locks, &w.mu, &w.fresh.mu)
	}
	for _, l := range locks {
		l.Lock()
	}
	return func() {
		for _, l := range locks {
			l.Unlock()
		}
	}
}
