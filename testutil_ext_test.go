package fedhttp_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// The helpers of the tests in package fedhttp_test. Those of package fedhttp
// have the same names, in testutil_test.go.

// checkLeaks fails the test where it leaves a goroutine behind. Call it first,
// before t.Parallel, and outside of a testing/synctest bubble.
func checkLeaks(t *testing.T) {
	t.Helper()
	fedtest.CheckLeaks(t)
}

// newTestTransport returns a Transport that is closed after the test. Without a
// base it gets one that uses each connection once, so that net/http sends
// nothing again on its own account.
func newTestTransport(t *testing.T, cfg fedhttp.Config) *fedhttp.Transport {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler) // what is logged has tests of its own
	}
	if cfg.Base == nil {
		cfg.Base = &http.Transport{DisableKeepAlives: true}
	}
	if cfg.Book == nil {
		cfg.Book = &fedhttp.PolicyBook{} // what there is without one has tests of its own
	}
	tr, err := fedhttp.NewTransport(cfg)
	if err != nil {
		t.Fatalf("NewTransport: %v", err)
	}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		tr.CloseIdleConnections()
	})
	return tr
}

// testPeer returns a peer at the URL, with waits so short that a test need not
// notice them.
func testPeer(id, url string) fedhttp.Peer {
	return fedhttp.Peer{ID: id, Origins: []string{url}, Retry: fedhttp.RetryPolicy{
		MinBackoff: time.Microsecond, MaxBackoff: 5 * time.Second, MinRefreshInterval: time.Microsecond,
	}}
}

type (
	roundTripFunc   func(*http.Request) (*http.Response, error)
	anchorFunc      func(ctx context.Context, peer string) (fedhttp.Anchor, error)
	escalatorFunc   func(context.Context, fedhttp.Escalation)
	coordinatorFunc func(context.Context, fedhttp.Unresolved)
	resolverFunc    func(ctx context.Context, peer, correlationID string) (fedhttp.Layer, error)
)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (f anchorFunc) FetchAnchor(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	return f(ctx, peer)
}

func (f escalatorFunc) Escalate(ctx context.Context, e fedhttp.Escalation) { f(ctx, e) }

func (f coordinatorFunc) PolicyUnresolved(ctx context.Context, u fedhttp.Unresolved) { f(ctx, u) }

func (f resolverFunc) ResolveLayer(ctx context.Context, peer, id string) (fedhttp.Layer, error) {
	return f(ctx, peer, id)
}

// recorder keeps what a sink was told, in order, for a test that waits for it.
type recorder[E any] struct {
	mu   sync.Mutex
	all  []E
	news chan struct{} // closed at the next add
}

func (r *recorder[E]) add(e E) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
	if r.news != nil {
		close(r.news)
		r.news = nil
	}
}

func (r *recorder[E]) snapshot() []E {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]E(nil), r.all...)
}

// wait returns the first n, once they are there. Where they do not come within
// 20 s it fails the test.
func (r *recorder[E]) wait(t *testing.T, n int) []E {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		r.mu.Lock()
		if len(r.all) >= n {
			got := append([]E(nil), r.all[:n]...)
			r.mu.Unlock()
			return got
		}
		if r.news == nil {
			r.news = make(chan struct{})
		}
		news := r.news
		r.mu.Unlock()
		select {
		case <-news:
		case <-ctx.Done():
			t.Fatalf("got %d events, want %d", len(r.snapshot()), n)
		}
	}
}
