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

// Not parallel: AllocsPerRun counts those of the whole process.
func TestRequestAllocs(t *testing.T) {
	const url = "https://b.example"
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{})
	shared := replica(t, f, url, stub{})
	tr, err := fedhttp.NewTransport(fedhttp.Config{Base: stub{}, Peers: []fedhttp.Peer{{
		ID: "org-b", Origins: []string{url}, Receipt: fedhttp.IgnoreReceipt,
		Routes: []fedhttp.Route{{Pattern: "/", Task: fedhttp.Task{Capability: "summarize", Scope: "dataset-12"}}},
	}}})
	must(t, err)
	t.Cleanup(func() { tr.Close() })
	alone := &http.Client{Transport: tr}
	// The server and the client work in the background, so it is the least that counts.
	least := func(c *http.Client) float64 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		must(t, err)
		n := float64(1 << 20)
		for range 30 {
			n = min(n, testing.AllocsPerRun(200, func() {
				resp, err := c.Transport.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}))
		}
		return n
	}
	if a, b := least(alone), least(shared); b > a {
		t.Errorf("%v allocations with a fleet, %v without", b, a)
	}
	// Nor does it take the lock of a ledger that is empty.
	own := f.Denials().(*ledger)
	own.mu.Lock()
	defer own.mu.Unlock()
	least(shared)
}
