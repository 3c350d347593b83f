package fedhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// What ends an upload from outside is not the doing of its body, although that is
// closed while it waits to be read: by HTTP/2, and on HTTP/1, which waits as well, at
// AttemptTimeout.
func TestUploadIsEnded(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for name, end := range map[string]func(*fedhttp.Transport, *endedByHand){
		"by the peer":               func(*fedhttp.Transport, *endedByHand) {},
		"by AttemptTimeout":         func(tr *fedhttp.Transport, _ *endedByHand) { fedhttp.EndAttempts(tr, nil) },
		"by AttemptTimeout, HTTP/1": func(tr *fedhttp.Transport, _ *endedByHand) { fedhttp.EndAttempts(tr, nil) },
		"by the deadline":           func(_ *fedhttp.Transport, ctx *endedByHand) { ctx.end(context.DeadlineExceeded) },
	} {
		t.Run(name, func(t *testing.T) {
			begun, over := make(chan struct{}), make(chan struct{})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadFull(r.Body, make([]byte, 5))
				close(begun)
				if name == "by the peer" {
					panic(http.ErrAbortHandler)
				}
				<-over
			}))
			server.Config.ErrorLog = quietLog
			server.EnableHTTP2 = !strings.HasSuffix(name, "HTTP/1")
			server.StartTLS()
			defer server.Close()
			defer close(over)
			body, upload := io.Pipe()
			defer body.Close()
			go func() { _, _ = io.WriteString(upload, "begun") }() // and it goes on
			ctx := &endedByHand{Context: t.Context(), done: make(chan struct{})}
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			p := testPeer("b", server.URL)
			p.Retry.AttemptTimeout = time.Hour
			tr := newTestTransport(t, fedhttp.Config{Base: server.Client().Transport, Peers: []fedhttp.Peer{p}, Logger: quietLogger})
			go func() {
				<-begun
				end(tr, ctx)
			}()
			resp, err := tr.RoundTrip(req)
			if err == nil {
				resp.Body.Close()
			}
			var fault *fedhttp.Error
			if !errors.As(err, &fault) || fault.Decision.Outcome != fedhttp.OutcomeAmbiguous || !fault.Decision.Escalated {
				t.Errorf("RoundTrip: %v, want it ambiguous", err)
			}
		})
	}
}

// Uploads that meet a stale anchor cannot be sent again. The refresh mends it all
// the same, so they do not open the breaker.
func TestStaleUploads(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := fedtest.NewPeer(fedtest.Config{})
	defer peer.Close()
	old := peer.Anchor()
	peer.Rotate()
	var fetches atomic.Int64
	cfg := testPeer("b", peer.URL)
	cfg.Breaker = fedhttp.BreakerPolicy{Failures: 1}
	tr := newTestTransport(t, fedhttp.Config{
		Peers: []fedhttp.Peer{cfg}, Logger: quietLogger,
		Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
			if fetches.Add(1) == 1 {
				return fedhttp.Anchor{Version: old.Version}, nil
			}
			return fedhttp.Anchor{Version: peer.Anchor().Version}, nil
		}),
	})
	req, err := http.NewRequest(http.MethodPost, peer.URL+"/a", io.NopCloser(iotest.OneByteReader(strings.NewReader("upload"))))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if d, _ := fedhttp.DecisionFromResponse(resp); d.Reason != fedhttp.ReasonBodyNotReplayable {
		t.Fatalf("the upload is %v (%v)", d.Outcome, d.Reason)
	}
	if s := tr.Status()[0]; s.Breaker != "closed" {
		t.Errorf("the breaker is %s", s.Breaker)
	}
}
