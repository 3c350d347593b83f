package fedconfig_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedconfig"
	"github.com/fedhttp/fedhttp/fedtest"
)

// rig is a Transport that is watched for, and what Watch said.
type rig struct {
	*testing.T
	dir, path string
	transport *fedhttp.Transport
	stop      func() error // ends Watch, and returns what it returned

	mu     sync.Mutex
	errors []error
}

var errStopped = errors.New("stopped by the test")

// newRig makes the folder, lets prepare fill it, and starts Watch.
func newRig(t *testing.T, cfg fedhttp.Config, prepare func(*rig), opts ...fedconfig.WatchOption) *rig {
	fedtest.CheckLeaks(t)
	dir := filepath.Join(t.TempDir(), "config")
	r := &rig{T: t, dir: dir, path: filepath.Join(dir, "peers.yaml")}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	prepare(r)
	if cfg.Peers == nil {
		cfg.Peers = []fedhttp.Peer{{ID: "from-the-program", Origins: []string{"https://program.example"}}}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	transport, err := fedhttp.NewTransport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transport.Close() })
	r.transport = transport
	ctx, cancel := context.WithCancelCause(context.Background()) // t.Context ends before the cleanup
	ended := make(chan error, 1)
	opts = append([]fedconfig.WatchOption{
		fedconfig.WithLogger(slog.New(slog.DiscardHandler)),
		fedconfig.WithInterval(time.Hour), // events alone have to do
		fedconfig.OnError(func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.errors = append(r.errors, err)
		}),
	}, opts...)
	go func() { ended <- fedconfig.Watch(ctx, r.path, transport, opts...) }()
	r.stop = sync.OnceValue(func() error {
		cancel(errStopped)
		return <-ended
	})
	t.Cleanup(func() {
		if err := r.stop(); !errors.Is(err, errStopped) {
			t.Errorf("Watch returned %v, want the context's cause", err)
		}
	})
	return r
}

func peersFile(ids ...string) string {
	var b strings.Builder
	b.WriteString("peers:\n")
	for _, id := range ids {
		fmt.Fprintf(&b, "- {id: %s, origins: [https://%s.example]}\n", id, id)
	}
	return b.String()
}

func (r *rig) write(path, content string) {
	r.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		r.Fatal(err)
	}
}

// replace writes a file that is never seen in part: it counts what a test is told of.
func (r *rig) replace(path, content string) {
	r.Helper()
	next := filepath.Join(filepath.Dir(path), ".next")
	r.write(next, content)
	r.must(os.Rename(next, path))
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// until polls: what is waited for here comes from the kernel.
func (r *rig) until(what string, ok func() bool) {
	r.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.Fatalf("no %s; peers %q, errors %v", what, r.peers(), r.errors)
		}
	}
}

func (r *rig) peers() (ids []string) {
	for _, s := range r.transport.Status() {
		ids = append(ids, s.ID)
	}
	slices.Sort(ids)
	return ids
}

func (r *rig) untilPeers(ids ...string) {
	r.Helper()
	r.until(fmt.Sprintf("peers %q", ids), func() bool { return slices.Equal(r.peers(), ids) })
}

// untilError waits for the n-th report and returns it.
func (r *rig) untilError(n int) (err error) {
	r.Helper()
	r.until(fmt.Sprintf("report %d", n), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.errors) >= n {
			err = r.errors[n-1]
		}
		return err != nil
	})
	return err
}

// TestWatchChanges: the ways in which editors and tools change a file.
func TestWatchChanges(t *testing.T) {
	t.Parallel()
	r := newRig(t, fedhttp.Config{}, func(r *rig) { r.write(r.path, peersFile("a")) })
	r.untilPeers("a")
	r.write(r.path, peersFile("a", "b"))
	r.untilPeers("a", "b")

	next := filepath.Join(r.dir, ".peers.yaml.swp")
	r.write(next, peersFile("renamed"))
	r.must(os.Rename(next, r.path))
	r.untilPeers("renamed")

	r.must(os.Rename(r.path, r.path+"~")) // as vim does with a backup
	r.write(r.path, peersFile("anew"))
	r.untilPeers("anew")
	if err := r.stop(); !errors.Is(err, errStopped) {
		t.Errorf("Watch returned %v", err)
	}
	r.write(r.path, peersFile("late"))
	if got := r.peers(); !slices.Equal(got, []string{"anew"}) {
		t.Errorf("peers %q after the end", got)
	}
}

// TestWatchBadFile: a bad file, one that is gone and one that the Transport
// refuses change nothing, and are reported once; the next good one counts.
func TestWatchBadFile(t *testing.T) {
	t.Parallel()
	r := newRig(t, fedhttp.Config{}, func(r *rig) { r.replace(r.path, peersFile("a")) })
	r.untilPeers("a")
	const bad = "peers:\n- {id: b, origins: [https://b.example]}\n- {id: c, origin: x}\n"
	r.replace(r.path, bad)
	var faults *fedconfig.Error
	if err := r.untilError(1); !errors.As(err, &faults) || len(faults.Faults) != 2 || faults.Faults[0].File != r.path {
		t.Errorf("reported %v", err)
	}
	r.must(os.Remove(r.path))
	if err := r.untilError(2); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("reported %v", err)
	}
	r.untilPeers("a")
	// The Transport has no anchors, which no file can know.
	r.replace(r.path, "peers:\n- id: d\n  origins: [https://d.example]\n  require_anchor: true\n")
	want := r.path + ":4:19: peers[0].require_anchor: nothing could be sent without Config.Anchors"
	if err := r.untilError(3); err.Error() != want {
		t.Errorf("reported %v\nwant %s", err, want)
	}
	r.untilPeers("a")
	r.replace(r.path, peersFile("a", "b"))
	r.untilPeers("a", "b")
}

// TestWatchAppears: Watch may begin before there is a file, and a file that comes
// back is in effect again, so that its next loss is told as well.
func TestWatchAppears(t *testing.T) {
	t.Parallel()
	reloads := make(chan []fedhttp.Peer, 10)
	r := newRig(t, fedhttp.Config{}, func(*rig) {}, fedconfig.OnReload(func(peers []fedhttp.Peer) { reloads <- peers }))
	for lost := 1; lost <= 3; lost++ {
		if err := r.untilError(lost); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("reported %v", err)
		}
		if lost == 1 {
			r.untilPeers("from-the-program")
		}
		r.replace(r.path, peersFile("a"))
		if peers := <-reloads; len(peers) != 1 || peers[0].ID != "a" {
			t.Errorf("reloaded %v", peers)
		}
		r.untilPeers("a")
		r.must(os.Remove(r.path))
	}
}

// TestWatchFolderReplaced: a folder that is removed takes its watch along; the
// interval finds the next one.
func TestWatchFolderReplaced(t *testing.T) {
	t.Parallel()
	r := newRig(t, fedhttp.Config{}, func(r *rig) { r.write(r.path, peersFile("a")) }, fedconfig.WithInterval(20*time.Millisecond))
	r.untilPeers("a")
	r.must(os.RemoveAll(r.dir))
	_ = r.untilError(1)
	r.must(os.Mkdir(r.dir, 0o700))
	r.write(r.path, peersFile("b"))
	r.untilPeers("b")
}

// TestWatchConfigMap: Kubernetes writes a new folder and swaps the link to it;
// the file itself never changes.
func TestWatchConfigMap(t *testing.T) {
	t.Parallel()
	version := func(r *rig, name, content string) {
		r.must(os.Mkdir(filepath.Join(r.dir, name), 0o700))
		r.write(filepath.Join(r.dir, name, "peers.yaml"), content)
		r.must(os.Symlink(name, filepath.Join(r.dir, "..data_tmp")))
		r.must(os.Rename(filepath.Join(r.dir, "..data_tmp"), filepath.Join(r.dir, "..data")))
	}
	r := newRig(t, fedhttp.Config{}, func(r *rig) {
		version(r, "..2027_01", peersFile("a"))
		r.must(os.Symlink(filepath.Join("..data", "peers.yaml"), r.path))
	})
	r.untilPeers("a")
	version(r, "..2027_02", peersFile("b"))
	r.must(os.RemoveAll(filepath.Join(r.dir, "..2027_01")))
	r.untilPeers("b")
	version(r, "..2027_03", "peers: [")
	_ = r.untilError(1)
	version(r, "..2027_04", peersFile("c"))
	r.untilPeers("c")
}

// TestWatchCalls: a call that is in flight and a task that is held go on as if
// nothing had happened when the file changes, and even when it drops the peer's
// terms.
func TestWatchCalls(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	var slowCame, heldCame atomic.Int32
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/held" {
			heldCame.Add(1)
		} else {
			slowCame.Add(1)
			<-release
		}
		_, _ = io.WriteString(w, "done")
	}))
	t.Cleanup(peer.Close)
	content := func(extra string) string {
		return fmt.Sprintf("peers:\n- id: org-b\n  origins: [%q]\n  receipt: ignore\n%s", peer.URL, extra)
	}
	book := &fedhttp.PolicyBook{}
	r := newRig(t, fedhttp.Config{Book: book, Base: &http.Transport{}}, func(r *rig) { r.write(r.path, content("")) })
	r.untilPeers("org-b")
	key := fedhttp.PolicyKey{Peer: "org-b", Capability: "translate", Epoch: 1}
	if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "d1"}); err != nil {
		t.Fatal(err)
	}
	send := func(path string, task fedhttp.Task) chan error {
		done := make(chan error, 1)
		go func() {
			req, err := http.NewRequestWithContext(fedhttp.ContextWithTask(t.Context(), task), http.MethodGet, peer.URL+path, http.NoBody)
			if err != nil {
				done <- err
				return
			}
			resp, err := r.transport.RoundTrip(req)
			if err == nil {
				var body []byte
				body, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(body) != "done" {
					err = fmt.Errorf("status %d, body %q, %w", resp.StatusCode, body, err)
				}
			}
			done <- err
		}()
		return done
	}
	slow := send("/slow", fedhttp.Task{})
	held := send("/held", fedhttp.Task{Capability: "translate", Obligations: fedhttp.Terms{"residency": "eu"}})
	state := func() fedhttp.PeerStatus { return r.transport.Status()[0] }
	r.until("held task and call in flight", func() bool { return state().Held == 1 && slowCame.Load() == 1 })

	// Neither a second peer nor another policy of waiting reaches them.
	r.write(r.path, content("  hold: {max: -1}\n- {id: org-c, origins: [https://c.example]}\n"))
	r.untilPeers("org-b", "org-c")
	if s := state(); s.Held != 1 || heldCame.Load() != 0 {
		t.Errorf("%d held after the reload, %d sent", s.Held, heldCame.Load())
	}
	book.Accept(fedhttp.Policy{PolicyKey: key, Digest: "d1", Terms: fedhttp.Terms{"residency": "eu"}})
	if err := <-held; err != nil {
		t.Errorf("the held task: %v", err)
	}
	select {
	case err := <-slow:
		t.Errorf("the call in flight ended before its peer answered: %v", err)
	default:
	}
	close(release)
	if err := <-slow; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if held, slow := heldCame.Load(), slowCame.Load(); held != 1 || slow != 1 {
		t.Errorf("sent %d and %d times, want once each", held, slow)
	}
}

// TestWatchBase: what no file can name is the program's to add.
func TestWatchBase(t *testing.T) {
	t.Parallel()
	used := make(chan string, 1)
	r := newRig(t, fedhttp.Config{}, func(r *rig) { r.write(r.path, peersFile("a")) },
		fedconfig.WithBase(func(p fedhttp.Peer) http.RoundTripper {
			return roundTrip(func(*http.Request) (*http.Response, error) {
				used <- p.ID
				return nil, errors.ErrUnsupported
			})
		}))
	r.untilPeers("a")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example/", http.NoBody)
	r.must(err)
	if resp, err := r.transport.RoundTrip(req); err == nil {
		resp.Body.Close()
		t.Error("a call without a connection succeeded")
	}
	if id := <-used; id != "a" {
		t.Errorf("the base of %q was used", id)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
