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

// lateEnd is a body whose end is said late. As net/http's of HTTP/2 it is for one
// reader at a time.
type lateEnd struct {
	*strings.Reader
	said  chan struct{}
	ended bool
}

func (b *lateEnd) Read(p []byte) (int, error) {
	if !b.ended && b.Len() > 0 {
		return b.Reader.Read(p)
	}
	if !b.ended {
		<-b.said
		b.ended = true
	}
	return 0, io.EOF
}

func (b *lateEnd) Close() error { return nil }

func serveLateEnd(t *testing.T, steps func(say func()) []fedtest.Step) (answer *httptest.ResponseRecorder, p *fedtest.Peer) {
	t.Helper()
	p = fedtest.NewUnstartedPeer(fedtest.Config{SeparateEngine: true, ErrorLog: discardLog})
	t.Cleanup(p.Close)
	body := &lateEnd{Reader: strings.NewReader("hello"), said: make(chan struct{})}
	say := sync.OnceFunc(func() { close(body.said) })
	t.Cleanup(say)
	p.Script(steps(say)...)
	req := httptest.NewRequest(http.MethodPost, "/", nil)
	req.Body, req.ContentLength = body, 5
	answer = httptest.NewRecorder()
	p.Routing.ServeHTTP(answer, req)
	return answer, p
}

// TestLateEnd: an engine of its own answers once it has all that the request says there
// is, and then the entry is complete.
func TestLateEnd(t *testing.T) {
	t.Parallel()
	fedtest.CheckLeaks(t)
	answer, p := serveLateEnd(t, func(func()) []fedtest.Step { return nil })
	wantEqual(t, "status", answer.Code, 200)
	sum := sha256.Sum256([]byte("hello"))
	for layer, e := range map[string]fedtest.Entry{"routing": p.Routing.Log()[0], "engine": p.Engine.Log()[0]} {
		wantEqual(t, layer+": body", e.BodyBytes, 5)
		wantEqual(t, layer+": hash", e.BodySHA256, hex.EncodeToString(sum[:]))
	}
}

// TestOneReader: a step that comes after the engine does not read beside the transport
// that is still at the body, which the race detector sees.
func TestOneReader(t *testing.T) {
	t.Parallel()
	fedtest.CheckLeaks(t)
	answer, _ := serveLateEnd(t, func(say func()) []fedtest.Step {
		return []fedtest.Step{fedtest.Lose(fedtest.Pass(), func(w http.ResponseWriter, r *http.Request) {
			go say()
			fedtest.Raw(http.StatusTeapot, nil, "tea")(w, r)
		})}
	})
	wantEqual(t, "status", answer.Code, http.StatusTeapot)
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
