package fedtest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

var discardLog = log.New(io.Discard, "", 0)

func newPeer(t *testing.T, cfg fedtest.Config) *fedtest.Peer {
	t.Helper()
	p := fedtest.NewPeer(cfg)
	t.Cleanup(p.Close)
	return p
}

func TestLog(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 7, 8, 9, 10, 11, 12, time.UTC)
	eachMode(t, fedtest.Config{Now: func() time.Time { return at }}, func(t *testing.T, p *fedtest.Peer) {
		req := request(t, p.URL+"/translate/7?q=1", "hello", "X-Two", "1", "X-Two", "2",
			fedtest.HeaderTask, "seven", fedtest.HeaderClient, "us")
		req.Host = "registry.example"
		if _, err := do(p.Client(), req); err != nil {
			t.Fatal(err)
		}
		get(t, p, "/")
		sum := sha256.Sum256([]byte("hello"))
		for layer, entries := range map[string][]fedtest.Entry{"routing": p.Routing.Log(), "engine": p.Engine.Log()} {
			e := entries[0]
			wantEqual(t, layer+": entries", len(entries), 2)
			wantEqual(t, layer+": time", e.Time, at)
			wantEqual(t, layer+": request", e.Method+" "+e.Host+e.Path+"?"+e.Query, "POST registry.example/translate/7?q=1")
			wantEqual(t, layer+": header", len(e.Header["X-Two"]), 2)
			wantEqual(t, layer+": purpose", e.Task+" "+e.Client+" "+e.Capability, "seven us translate")
			wantEqual(t, layer+": body", e.BodyBytes, 5)
			wantEqual(t, layer+": hash", e.BodySHA256, hex.EncodeToString(sum[:]))
			wantEqual(t, layer+": hash of no body", len(entries[1].BodySHA256), 64)
			if e.Remote == "" {
				t.Errorf("%s: no remote address", layer)
			}
			e.Header.Set("X-Two", "changed")
		}
		routing := p.Routing.Log()
		wantEqual(t, "the log's own header", routing[0].Header.Get("X-Two"), "1")
		wantEqual(t, "connection", routing[0].Remote, routing[1].Remote)
		wantEqual(t, "TLS", routing[0].TLS, p.URL[:5] == "https")
		wantEqual(t, "verdict", p.Engine.Log()[0].Verdict, "allow")
	})
}

// lateEnd is a body whose end is not said before it is closed.
type lateEnd struct {
	*strings.Reader
	closed chan struct{}
	once   sync.Once
}

func (b *lateEnd) Read(p []byte) (int, error) {
	if b.Len() == 0 {
		<-b.closed
		return 0, http.ErrBodyReadAfterClose
	}
	return b.Reader.Read(p)
}

func (b *lateEnd) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

// TestLateEnd: an engine of its own answers once it has all that the request says there
// is, and then the entry is complete.
func TestLateEnd(t *testing.T) {
	t.Parallel()
	fedtest.CheckLeaks(t)
	p := fedtest.NewUnstartedPeer(fedtest.Config{SeparateEngine: true, ErrorLog: discardLog})
	defer p.Close()
	req := httptest.NewRequest(http.MethodPost, "/", nil)
	req.Body, req.ContentLength = &lateEnd{Reader: strings.NewReader("hello"), closed: make(chan struct{})}, 5
	answer := httptest.NewRecorder()
	p.Routing.ServeHTTP(answer, req)
	defer req.Body.Close() // as a server does
	wantEqual(t, "status", answer.Code, 200)
	sum := sha256.Sum256([]byte("hello"))
	for layer, e := range map[string]fedtest.Entry{"routing": p.Routing.Log()[0], "engine": p.Engine.Log()[0]} {
		wantEqual(t, layer+": body", e.BodyBytes, 5)
		wantEqual(t, layer+": hash", e.BodySHA256, hex.EncodeToString(sum[:]))
	}
}

func TestLargeBody(t *testing.T) {
	t.Parallel()
	fedtest.CheckLeaks(t)
	p := fedtest.NewUnstartedPeer(fedtest.Config{})
	defer p.Close()
	const size = 5<<20 + 3
	body := bytes.Repeat([]byte("x"), size)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.URL, io.MultiReader(bytes.NewReader(body)))
	if err != nil {
		t.Fatal(err)
	}
	p.Script(fedtest.Deny("NO"))
	if a, err := do(p.Client(), req); err != nil || a.status != 403 {
		t.Fatal(a, err)
	}
	sum := sha256.Sum256(body[:1<<20])
	e := p.Routing.Log()[0]
	wantEqual(t, "bytes", e.BodyBytes, size)
	wantEqual(t, "hash of the first MiB", e.BodySHA256, hex.EncodeToString(sum[:]))
}
