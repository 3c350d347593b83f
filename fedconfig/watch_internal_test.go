package fedconfig

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/fedhttp/fedhttp"
)

func onePeer(i int) string {
	return fmt.Sprintf("peers: [{id: p%d, origins: [https://p.example]}]", i)
}

// TestWatchManyEvents: events that come together are one reading, and events
// without an end do not put it off for ever. The interval is the last resort.
func TestWatchManyEvents(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "peers.yaml")
	written := 0
	put := func() {
		written++
		if err := os.WriteFile(path, []byte(onePeer(written)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		transport, err := fedhttp.NewTransport(fedhttp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.Close()
		start := time.Now()
		var reloads []string
		w := &watch{
			path: path, transport: transport, interval: defaultInterval, logger: slog.New(slog.DiscardHandler),
			onReload: func(peers []fedhttp.Peer) {
				reloads = append(reloads, fmt.Sprintf("%s at %v", peers[0].ID, time.Since(start)))
			},
		}
		wake := make(chan struct{})
		put()
		go func() { _ = w.run(t.Context(), wake) }()
		synctest.Wait()
		// Ten writes, 10 ms apart: read 100 ms after the last.
		for range 10 {
			time.Sleep(10 * time.Millisecond)
			put()
			wake <- struct{}{}
		}
		time.Sleep(900 * time.Millisecond) // until 1 s
		// Writes without an end: read each second.
		for range 44 {
			time.Sleep(60 * time.Millisecond)
			put()
			wake <- struct{}{}
		}
		time.Sleep(time.Second)
		put() // and nobody says so
		time.Sleep(time.Until(start.Add(59950 * time.Millisecond)))
		put() // just before the interval is over
		wake <- struct{}{}
		time.Sleep(time.Minute)
		synctest.Wait()
		want := "p1 at 0s\np11 at 200ms\np28 at 2.06s\np45 at 3.08s\np55 at 3.74s\np56 at 30s\np57 at 1m0.05s"
		if got := strings.Join(reloads, "\n"); got != want {
			t.Errorf("reloads:\n%s\nwant:\n%s", got, want)
		}
	})
}

// TestWatchReports: what is wrong is said once, and with slog where nobody asked
// for it in another way.
func TestWatchReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		transport, err := fedhttp.NewTransport(fedhttp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.Close()
		var log bytes.Buffer
		w := &watch{path: "no/such/peers.yaml", transport: transport, interval: time.Second, logger: slog.New(slog.NewTextHandler(&log, nil))}
		go func() { _ = w.run(t.Context(), nil) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "no/such/peers.yaml") {
			t.Errorf("log:\n%s", got)
		}
	})
}

// TestWatchUnwatched: that there are no events is said once, and keeps no peers from
// being in effect.
func TestWatchUnwatched(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "peers.yaml")
	put := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(onePeer(1))
	deaf, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	deaf.Close()
	synctest.Test(t, func(t *testing.T) {
		transport, err := fedhttp.NewTransport(fedhttp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.Close()
		var log bytes.Buffer
		w := &watch{path: path, transport: transport, watcher: deaf, interval: defaultInterval, logger: slog.New(slog.NewTextHandler(&log, nil))}
		go func() { _ = w.run(t.Context(), nil) }()
		time.Sleep(5 * time.Minute)
		put(onePeer(2))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		got := log.String()
		if strings.Count(got, "level=ERROR") != 1 || !strings.Contains(got, "not watched, and read every 30s alone") || strings.Count(got, "are in effect") != 2 {
			t.Errorf("log:\n%s", got)
		}
	})
}

// TestWatchEmptied: a file that is empty while it is written is no fault, and one
// that stays so is.
func TestWatchEmptied(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "peers.yaml")
	put := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		transport, err := fedhttp.NewTransport(fedhttp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.Close()
		start := time.Now()
		var seen []string
		see := func(what string) { seen = append(seen, fmt.Sprintf("%s at %v", what, time.Since(start))) }
		w := &watch{
			path: path, transport: transport, interval: defaultInterval, logger: slog.New(slog.DiscardHandler),
			onReload: func(peers []fedhttp.Peer) { see(peers[0].ID) },
			onError:  func(err error) { see(strings.TrimPrefix(err.Error(), path)) },
		}
		wake := make(chan struct{})
		put("") // also at the beginning
		go func() { _ = w.run(t.Context(), wake) }()
		time.Sleep(50 * time.Millisecond)
		put(onePeer(1))
		time.Sleep(950 * time.Millisecond) // until 1 s
		put("")
		wake <- struct{}{}
		time.Sleep(150 * time.Millisecond)
		put(onePeer(2))
		time.Sleep(850 * time.Millisecond) // until 2 s
		put("")
		wake <- struct{}{}
		time.Sleep(2 * time.Minute)
		put(onePeer(3))
		wake <- struct{}{}
		time.Sleep(time.Second)
		synctest.Wait()
		want := "p1 at 100ms\np2 at 1.2s\n:1:1: is empty; want peers at 2.2s\np3 at 2m2.1s"
		if got := strings.Join(seen, "\n"); got != want {
			t.Errorf("seen:\n%s\nwant:\n%s", got, want)
		}
	})
}

// TestWatchClosed: on a transport that is closed nothing is in effect any more.
func TestWatchClosed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "peers.yaml")
	if err := os.WriteFile(path, []byte(onePeer(1)), 0o600); err != nil {
		t.Fatal(err)
	}
	transport, err := fedhttp.NewTransport(fedhttp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := transport.Close(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if err := Watch(t.Context(), path, transport, WithLogger(slog.New(slog.NewTextHandler(&log, nil)))); !errors.Is(err, fedhttp.ErrClosed) {
		t.Errorf("Watch: %v", err)
	}
	if log.Len() > 0 {
		t.Errorf("log:\n%s", log.String())
	}
}
