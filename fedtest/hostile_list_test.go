package fedtest_test

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

func TestHostileServersAreAList(t *testing.T) {
	t.Parallel()
	name := regexp.MustCompile(`^http[12]/[a-z0-9]+(-[a-z0-9]+)*$`)
	seen := map[string]bool{}
	first := fedtest.HostileServers()
	for i, h := range first {
		if seen[h.Name] || !name.MatchString(h.Name) || strings.HasPrefix(h.Name, "http2/") != h.HTTP2 {
			t.Errorf("%q is twice in the list, or no name, or of another protocol", h.Name)
		}
		seen[h.Name] = true
		if h.Doc == "" || strings.HasSuffix(h.Doc, ".") {
			t.Errorf("%s has the description %q", h.Name, h.Doc)
		}
		if i > 0 && first[i-1].HTTP2 && !h.HTTP2 {
			t.Errorf("%s comes after those of HTTP/2", h.Name)
		}
	}
	for name := range tolerated {
		if !seen[name] {
			t.Errorf("there is no %s", name)
		}
	}
	first[0].Name = "mine"
	for i, h := range fedtest.HostileServers() {
		if i > 0 && h.Name != first[i].Name || h.Name == "mine" {
			t.Errorf("the second list has %s at %d", h.Name, i)
		}
	}
}

func TestHostileOfNobody(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a Hostile that does nothing was started")
		}
	}()
	fedtest.Hostile{}.Start()
}

// tolerated are those whose answers net/http may take for answers as they should
// be, twice on end. Everything else has to show.
var tolerated = map[string]bool{
	"http1/close-idle": true, "http1/reset-idle": true, "http1/half-close-idle": true,
	"http1/answers-on-head": true, "http1/answers-unasked": true, "http1/answers-twice": true, "http1/answers-late-again": true,
	"http1/no-version": true, "http1/length-and-chunks": true,
	"http2/close-idle": true, "http2/reset-idle": true,
	// A connection is pooled a moment after its answer, so the second request may
	// be the first of another.
	"http1/close-second": true, "http1/reset-second": true, "http2/close-second": true,
	"http2/answers-on-head": true, "http2/answers-twice": true, "http2/data-after-end": true,
	"http2/window-not-renewed": true, "http2/no-streams": true, "http2/no-table": true,
	"http2/goaway-graceful": true, "http2/goaway-below-answer": true, "http2/two-lengths": true,
}

// TestHostilesAreHostile: a plain client that makes two requests does not get
// two plain answers, unless the Hostile is one that only a watchful client
// notices.
func TestHostilesAreHostile(t *testing.T) {
	t.Parallel()
	slots := make(chan struct{}, 16) // most of the time is spent waiting
	var group sync.WaitGroup
	for _, h := range fedtest.HostileServers() {
		for mode, start := range map[string]func(fedtest.Hostile) *fedtest.HostileServer{
			"clear": fedtest.Hostile.Start, "tls": fedtest.Hostile.StartTLS,
		} {
			slots <- struct{}{}
			group.Go(func() {
				defer func() { <-slots }()
				t.Run(h.Name+"/"+mode, func(t *testing.T) {
					fedtest.CheckLeaks(t)
					s := start(h)
					t.Cleanup(s.Close)
					testHostile(t, s)
				})
			})
		}
	}
	group.Wait()
}

func testHostile(t *testing.T, s *fedtest.HostileServer) {
	transport := s.Transport()
	plain := 0
	for range 2 {
		if tryPlain(t, transport, s) {
			plain++
		}
	}
	if plain == 2 && !tolerated[s.Hostile.Name] {
		t.Errorf("both answers are plain: %s", s.Hostile.Doc)
	}
	if !strings.Contains(s.Hostile.Name, "goaway") { // see HostileServer.Drained
		drain(t, transport, s)
	}
}

// drain waits until the server has no connection any more. A connection counts
// as idle a moment after the call that used it has returned, so it is asked for
// more than once.
func drain(t *testing.T, transport *http.Transport, s *fedtest.HostileServer) {
	t.Helper()
	for range 1000 {
		transport.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
		err := s.Drained(ctx)
		cancel()
		if err == nil {
			return
		}
	}
	t.Errorf("%d connections are still open", s.Connections())
}

// tryPlain reports whether the server answered as it should. What never ends is
// cut short.
func tryPlain(t *testing.T, transport *http.Transport, s *fedtest.HostileServer) bool {
	t.Helper()
	const limit = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/", strings.NewReader("task"))
	if err != nil {
		t.Fatal(err)
	}
	if name := s.Hostile.Name; s.Hostile.HTTP2 && (strings.Contains(name, "goaway") || strings.Contains(name, "protocol-error")) {
		var task taskBody
		req.Body, _ = task.get()
		req.GetBody = task.get
		go task.end(ctx, limit, cancel)
	} else {
		defer time.AfterFunc(limit, cancel).Stop()
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return false
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	return err == nil && resp.StatusCode == http.StatusOK && string(body) == "ok"
}

// taskBody is a body that can be had again, of a call that is not ended while somebody
// reads it: net/http looks whether it was read, to send again over another connection
// what an HTTP/2 server has refused, and where the call is ended as well it may still be
// at that, which is a race of its own.
type taskBody struct {
	mu   sync.Mutex
	last *taskReader // that was given out; of those before it net/http wants no more
	over bool
}

func (b *taskBody) get() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return nil, context.Canceled
	}
	b.last = &taskReader{text: strings.NewReader("task")}
	return b.last, nil
}

// end calls the function, at a time at which nobody reads or is about to.
func (b *taskBody) end(ctx context.Context, after time.Duration, call func()) {
	tick := time.NewTicker(after)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tick.Reset(time.Millisecond)
		case <-ctx.Done():
			return
		}
		b.mu.Lock()
		if b.over = b.last.done.Load(); b.over {
			call()
		}
		b.mu.Unlock()
	}
}

type taskReader struct {
	text *strings.Reader
	done atomic.Bool // it was read to its end
}

func (r *taskReader) Read(p []byte) (int, error) {
	n, err := r.text.Read(p)
	if err != nil {
		r.done.Store(true)
	}
	return n, err
}

// Close says nothing of who still reads.
func (r *taskReader) Close() error { return nil }
