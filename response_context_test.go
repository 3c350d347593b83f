package fedhttp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"testing"
	"time"
	"weak"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// What a caller gets as Response.Request: its own request, with a context that is
// the caller's affair.

// respond serves over the protocol, and returns a Transport for it and the URL.
func respond(t *testing.T, http2 bool, cfg fedhttp.Config) (*fedhttp.Transport, string) {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "fine")
	}))
	server.EnableHTTP2 = http2
	if http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	cfg.Base = server.Client().Transport
	cfg.Peers = []fedhttp.Peer{testPeer("b", server.URL)}
	return newTestTransport(t, cfg), server.URL
}

func getWith(ctx context.Context, t *testing.T, tr http.RoundTripper, url string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// TestResponseContextIsCallers: it does not end with the response, so another request can
// be made with it; what derives from it ends with the caller's, and it has the
// caller's values, the call's span, and no trace of ours.
func TestResponseContextIsCallers(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	provider := sdktrace.NewTracerProvider()
	for _, http2 := range []bool{false, true} {
		tr, url := respond(t, http2, fedhttp.Config{TracerProvider: provider})
		type key struct{}
		parent, cancel := context.WithCancelCause(context.WithValue(context.Background(), key{}, 7))
		defer cancel(nil)
		resp := getWith(parent, t, tr, url)
		ctx := resp.Request.Context()
		before, stop := context.WithCancel(ctx) // while the body is open
		defer stop()
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil {
			t.Fatal(err)
		}
		after, stop := context.WithCancel(ctx)
		defer stop()
		if ctx.Err() != nil || before.Err() != nil || after.Err() != nil {
			t.Fatalf("HTTP/2 %v: it has ended with the response: %v, %v, %v", http2, ctx.Err(), before.Err(), after.Err())
		}
		if ctx.Value(key{}) != 7 || httptrace.ContextClientTrace(ctx) != nil {
			t.Errorf("HTTP/2 %v: value %v, trace %v", http2, ctx.Value(key{}), httptrace.ContextClientTrace(ctx))
		}
		if span := trace.SpanFromContext(ctx).(sdktrace.ReadOnlySpan); span.Name() != "federation request" { //nolint:forcetypeassert // the SDK's
			t.Errorf("HTTP/2 %v: its span is %q, want the call's", http2, span.Name())
		}
		next := getWith(ctx, t, tr, url)
		if err := next.Body.Close(); err != nil {
			t.Error(err)
		}
		cause := errors.New("enough")
		cancel(cause)
		for _, c := range []context.Context{ctx, before, after, next.Request.Context()} {
			select {
			case <-c.Done():
			case <-time.After(10 * time.Second):
				t.Fatalf("HTTP/2 %v: the caller's end has not reached it", http2)
			}
			if !errors.Is(c.Err(), context.Canceled) || !errors.Is(context.Cause(c), cause) {
				t.Errorf("HTTP/2 %v: it ended with %v, %v", http2, c.Err(), context.Cause(c))
			}
		}
	}
}

// TestResponseRequest: it is the caller's, without what we have told the peer.
func TestResponseRequest(t *testing.T) {
	t.Parallel()
	tr, url := respond(t, false, fedhttp.Config{TracerProvider: sdktrace.NewTracerProvider()})
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Own", "1")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got := resp.Request.Header; got.Get("Traceparent") != "" || got.Get("X-Own") != "1" {
		t.Errorf("its header is %v", got)
	}
}

// TestDecisionOfPassed: a response that only passed has no decision, whatever context
// its request was made with.
func TestDecisionOfPassed(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(elsewhere.Close)
	tr, url := respond(t, false, fedhttp.Config{Unlisted: fedhttp.PassUnlisted})
	first := getWith(context.Background(), t, tr, url)
	defer first.Body.Close()
	ctx := first.Request.Context()
	for _, of := range []context.Context{ctx, context.WithValue(ctx, http.ServerContextKey, 1)} {
		passed := getWith(of, t, tr, elsewhere.URL)
		defer passed.Body.Close()
		if d, ok := fedhttp.DecisionFromResponse(passed); ok {
			t.Errorf("its decision is %+v", d)
		}
	}
}

// TestResponseLetGo: a caller's context that goes on for long keeps nothing of the
// calls that were made with it, whether their bodies were read or closed.
func TestResponseLetGo(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		for name, finish := range map[string]func(io.ReadCloser) error{
			"closed": io.ReadCloser.Close,
			"read":   func(b io.ReadCloser) error { _, err := io.Copy(io.Discard, b); return err },
		} {
			tr, url := respond(t, http2, fedhttp.Config{})
			parent, cancel := context.WithCancel(context.Background())
			defer cancel()
			var sent []weak.Pointer[http.Request]
			for range 10 {
				resp := getWith(parent, t, tr, url)
				if err := finish(resp.Body); err != nil {
					t.Fatal(err)
				}
				sent = append(sent, weak.Make(resp.Request))
			}
			alive := func() (n int) {
				tr.CloseIdleConnections() // net/http keeps the last request of each, which is not idle at once
				runtime.GC()
				for _, s := range sent {
					if s.Value() != nil {
						n++
					}
				}
				return n
			}
			for deadline := time.Now().Add(10 * time.Second); alive() > 0 && time.Now().Before(deadline); {
				runtime.Gosched()
			}
			if n := alive(); n > 0 {
				t.Errorf("HTTP/2 %v, %s: %d of %d requests are kept", http2, name, n, len(sent))
			}
		}
	}
}

// A request that is made with the context of a response stands on its own.
func TestResponseContext(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := fedtest.NewPeer(fedtest.Config{})
	defer peer.Close()
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{testPeer("b", peer.URL)}})
	first, err := (&http.Client{Transport: tr}).Get(peer.URL + "/a")
	if err != nil {
		t.Fatal(err)
	}
	for _, closed := range []bool{false, true} {
		req, err := http.NewRequestWithContext(first.Request.Context(), http.MethodGet, peer.URL+"/b", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatalf("with the first body closed %v: %v", closed, err)
		}
		resp.Body.Close()
		if !closed {
			if body, err := io.ReadAll(first.Body); err != nil || !bytes.Contains(body, []byte("{")) {
				t.Errorf("the first body: %q, %v", body, err)
			}
			first.Body.Close()
		}
	}
}
