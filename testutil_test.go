package fedhttp

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// The helpers of the tests in package fedhttp. Those of package fedhttp_test
// have the same names, in testutil_ext_test.go.

// checkLeaks fails the test where it leaves a goroutine behind. Call it first,
// before t.Parallel, and outside of a testing/synctest bubble.
func checkLeaks(t *testing.T) {
	t.Helper()
	fedtest.CheckLeaks(t)
}

// newTestTransport returns a Transport that is closed after the test. Without a
// base it gets one that uses each connection once, so that net/http sends
// nothing again on its own account.
func newTestTransport(t *testing.T, cfg Config) *Transport {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler) // what is logged has tests of its own
	}
	if cfg.Base == nil {
		cfg.Base = &http.Transport{DisableKeepAlives: true}
	}
	if cfg.Book == nil {
		cfg.Book = &PolicyBook{} // what there is without one has tests of its own
	}
	tr, err := NewTransport(cfg)
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
func testPeer(id, url string) Peer {
	return Peer{ID: id, Origins: []string{url}, Retry: RetryPolicy{
		MinBackoff: time.Microsecond, MaxBackoff: 5 * time.Second, MinRefreshInterval: time.Microsecond,
	}}
}

type (
	roundTripFunc   func(*http.Request) (*http.Response, error)
	anchorFunc      func(ctx context.Context, peer string) (Anchor, error)
	escalatorFunc   func(context.Context, Escalation)
	coordinatorFunc func(context.Context, Unresolved)
)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (f anchorFunc) FetchAnchor(ctx context.Context, peer string) (Anchor, error) {
	return f(ctx, peer)
}

func (f escalatorFunc) Escalate(ctx context.Context, e Escalation) { f(ctx, e) }

func (f coordinatorFunc) PolicyUnresolved(ctx context.Context, u Unresolved) { f(ctx, u) }

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

func answer(req *http.Request, status int, body io.ReadCloser, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: body, Request: req}
}

func bubbleTransport(t *testing.T, cfg Config) *Transport {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	tr, err := NewTransport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func getFrom(t *testing.T, tr *Transport, ctx context.Context) (*http.Response, error) { //nolint:revive // t first, as everywhere
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://b.example/v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr.RoundTrip(req)
}

var bPeer = Peer{ID: "b", Origins: []string{"https://b.example"}}
