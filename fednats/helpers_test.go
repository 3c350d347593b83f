package fednats

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/fedhttp/fedhttp"
)

const within = 40 * time.Second // of anything that has to happen; a bound, not a measure

// eventually waits for what another goroutine, or the cluster, brings about.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func newServer(t testing.TB, dir string) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	s, err := Embedded(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// newNetServer is one to connect to over the network, and to leave.
func newNetServer(t testing.TB, dir, address string) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	var s *Server
	eventually(t, "the server listens", func() (ok bool) {
		var err error
		s, err = StartServer(ctx, ServerConfig{Dir: dir, Listen: address})
		return err == nil
	})
	t.Cleanup(s.Close)
	return s
}

func connect(t testing.TB, s *Server) *nats.Conn {
	t.Helper()
	conn, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// open opens a fleet on the server, with a connection of its own.
func open(t testing.TB, s *Server, cfg Config) *Fleet {
	t.Helper()
	cfg.Conn = connect(t, s)
	return openAt(t, cfg)
}

func openAt(t testing.TB, cfg Config) *Fleet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return openWith(ctx, t, cfg)
}

func openWith(ctx context.Context, t testing.TB, cfg Config) *Fleet {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	f, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeFleet(t, f) })
	return f
}

// closeFleet closes without waiting for what cannot be published.
func closeFleet(t testing.TB, f *Fleet) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = f.Close(ctx)
}

func feed1(t testing.TB, f *Fleet) *fedhttp.PolicyBook {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	book := new(fedhttp.PolicyBook)
	if err := f.Feed(ctx, book); err != nil {
		t.Fatal(err)
	}
	return book
}

var residency = fedhttp.Terms{"residency": "eu"}

func key(epoch uint64) fedhttp.PolicyKey {
	return fedhttp.PolicyKey{Peer: "org-b", Capability: "summarize", Epoch: epoch}
}

// basis is on what ground the book lets a task with obligations go to the key's
// peer, or why not.
func basis(book *fedhttp.PolicyBook, k fedhttp.PolicyKey) string {
	task := fedhttp.Task{Capability: k.Capability, Obligations: residency}
	auth, err := book.Authorize(k.Peer, task, nil, time.Now())
	if err != nil {
		_, reason, _ := strings.Cut(err.Error(), "(")
		return strings.TrimSuffix(reason, ")")
	}
	return auth.Basis.String() + " " + auth.Digest
}

func wantBasis(t testing.TB, book *fedhttp.PolicyBook, k fedhttp.PolicyKey, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if got = basis(book, k); got == want {
			return
		}
	}
	t.Fatalf("%+v: %q, want %q", k, got, want)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// goroutines counts those of this package and of nats.go.
func goroutines() (n int, stacks string) {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		if strings.Contains(stack, "testing.") || strings.Contains(stack, "nats-server") {
			continue
		}
		if strings.Contains(stack, "fedhttp/fednats") || strings.Contains(stack, "nats-io/nats.go") {
			n++
			stacks += stack + "\n\n"
		}
	}
	return n, stacks
}

// relaxed is for tests that write much, and restart nothing.
func relaxed(o *server.Options) { o.SyncAlways = false }
