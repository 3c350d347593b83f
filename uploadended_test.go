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
	timeout := func(p *fedhttp.Peer, r *http.Request, limit time.Duration) *http.Request {
		p.Retry.AttemptTimeout = limit
		return r
	}
	for name, change := range map[string]func(*fedhttp.Peer, *http.Request, time.Duration) *http.Request{
		"by the peer":               func(_ *fedhttp.Peer, r *http.Request, _ time.Duration) *http.Request { return r },
		"by AttemptTimeout":         timeout,
		"by AttemptTimeout, HTTP/1": timeout,
		"by the deadline": func(_ *fedhttp.Peer, r *http.Request, limit time.Duration) *http.Request {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			t.Cleanup(cancel)
			return r.WithContext(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			var begun atomic.Bool
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if n, _ := io.ReadFull(r.Body, make([]byte, 5)); n == 5 {
					begun.Store(true)
				}
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
			// A limit that is over before the upload has begun says nothing here.
			for limit := 100 * time.Millisecond; !begun.Load() && !t.Failed() && limit < time.Minute; limit *= 2 {
				body, upload := io.Pipe()
				tooLate := time.AfterFunc(limit+10*time.Second, func() { _ = upload.CloseWithError(io.ErrNoProgress) })
				go func() { _, _ = io.WriteString(upload, "begun") }()
				req, err := http.NewRequest(http.MethodPost, server.URL, body)
				if err != nil {
					t.Fatal(err)
				}
				p := testPeer("b", server.URL)
				req = change(&p, req, limit)
				tr := newTestTransport(t, fedhttp.Config{Base: server.Client().Transport, Peers: []fedhttp.Peer{p}, Logger: quietLogger})
				resp, err := tr.RoundTrip(req)
				tooLate.Stop()
				_ = body.Close()
				var fault *fedhttp.Error
				if err == nil {
					resp.Body.Close()
				}
				if begun.Load() && (!errors.As(err, &fault) || fault.Decision.Outcome != fedhttp.OutcomeAmbiguous || !fault.Decision.Escalated) {
					t.Errorf("RoundTrip: %v, want it ambiguous", err)
				}
			}
			if !begun.Load() {
				t.Error("no upload has begun")
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
