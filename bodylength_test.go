package fedhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
)

// A body that has not the length which the request says is its caller's mistake, over
// HTTP/1 and HTTP/2, whatever kind it is. It is noticed when bytes have left, so it is
// not sent again.
func TestBodyOfAnotherLength(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	again := func(r *http.Request, body func() io.Reader) {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(body()), nil }
	}
	for kind, change := range map[string]func(*http.Request, func() io.Reader){
		"stream":             func(*http.Request, func() io.Reader) {},
		"stream, GetBody":    again,
		"in memory":          func(r *http.Request, body func() io.Reader) { r.Body = io.NopCloser(body()) },
		"in memory, GetBody": func(r *http.Request, body func() io.Reader) { again(r, body); r.Body, _ = r.GetBody() },
	} {
		for length, text := range map[string]string{"shorter": "abc", "longer": strings.Repeat("abc", 10)} {
			for _, http2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %s, HTTP/2 %v", kind, length, http2), func(t *testing.T) {
					var served, escalated atomic.Int32
					server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						served.Add(1)
						if _, err := io.Copy(io.Discard, r.Body); err != nil {
							panic(http.ErrAbortHandler)
						}
						<-r.Context().Done() // no answer to a part of the body
					}))
					server.EnableHTTP2 = http2
					server.Config.ErrorLog = quietLog
					server.StartTLS()
					defer server.Close()
					cfg := testPeer("b", server.URL)
					cfg.Breaker.Failures = 1
					tr := newTestTransport(t, fedhttp.Config{
						Base: server.Client().Transport, Peers: []fedhttp.Peer{cfg}, Anchors: risingAnchors(),
						Escalator: escalatorFunc(func(context.Context, fedhttp.Escalation) { escalated.Add(1) }),
					})
					req, err := http.NewRequest(http.MethodPost, server.URL, iotest.OneByteReader(strings.NewReader(text)))
					if err != nil {
						t.Fatal(err)
					}
					change(req, func() io.Reader { return strings.NewReader(text) })
					req.ContentLength = 10
					resp, err := tr.RoundTrip(req)
					var fault *fedhttp.Error
					if err == nil {
						resp.Body.Close()
					}
					if !errors.As(err, &fault) || fault.Decision.Reason != fedhttp.ReasonBodyFailed {
						t.Fatalf("RoundTrip: %v, want canceled (body_failed)", err)
					}
					if d := fault.Decision; d.Outcome != fedhttp.OutcomeCanceled || d.Attempts != 1 || d.Escalated || d.Evidence != nil {
						t.Errorf("%+v", d)
					}
					if !strings.Contains(strings.ToLower(err.Error()), "length") && (!http2 || length == "longer") {
						t.Errorf("the error does not say what is wrong: %v", err)
					}
					if s := tr.Status()[0]; s.Breaker != "closed" {
						t.Errorf("the breaker is %s", s.Breaker)
					}
					server.CloseClientConnections()
					if served.Load() > 1 || escalated.Load() != 0 {
						t.Errorf("%d sends, %d escalations", served.Load(), escalated.Load())
					}
				})
			}
		}
	}
}

// A body that can be had again reaches the base as it is only where there is nothing to
// be learned from watching it.
func TestWatchedBody(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	small := strings.Repeat("x", 64<<10)
	for name, test := range map[string]struct {
		body   io.Reader
		change func(*http.Request)
		as     bool
	}{
		"strings.Reader":      {body: strings.NewReader(small), as: true},
		"bytes.Reader":        {body: bytes.NewReader([]byte(small)), as: true},
		"bytes.Buffer":        {body: bytes.NewBufferString(small), as: true},
		"of unknown length":   {body: strings.NewReader(small), change: func(r *http.Request) { r.ContentLength = -1 }, as: true},
		"large":               {body: strings.NewReader(small + "x")},
		"large, unknown":      {body: strings.NewReader(small + "x"), change: func(r *http.Request) { r.ContentLength = -1 }},
		"another length":      {body: strings.NewReader(small), change: func(r *http.Request) { r.ContentLength-- }},
		"without GetBody":     {body: strings.NewReader(small), change: func(r *http.Request) { r.GetBody = nil }},
		"another in memory":   {body: strings.NewReader(small), change: func(r *http.Request) { r.Body = io.NopCloser(io.NewSectionReader(strings.NewReader(small), 0, 1<<16)) }},
		"that is no Nop":      {body: strings.NewReader(small), change: func(r *http.Request) { r.Body = struct{ io.ReadCloser }{r.Body} }},
		"that is not WriteTo": {body: strings.NewReader(small), change: func(r *http.Request) { r.Body = io.NopCloser(iotest.HalfReader(r.Body)) }},
	} {
		t.Run(name, func(t *testing.T) {
			var got io.ReadCloser
			tr := newTestTransport(t, fedhttp.Config{
				Peers: []fedhttp.Peer{testPeer("b", stubURL)},
				Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
					got = req.Body
					if (req.GetBody == nil) != (name == "without GetBody") {
						t.Error("GetBody is not that of the request")
					}
					return chainStub(req)
				}),
			})
			req, err := http.NewRequest(http.MethodPost, stubURL, test.body)
			if err != nil {
				t.Fatal(err)
			}
			if test.change != nil {
				test.change(req)
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if as := got == req.Body; as != test.as {
				t.Errorf("the base got the body as it is: %v, want %v", as, test.as)
			}
		})
	}
}

// The body that a base asks for itself is watched like the first: its faults are the
// caller's, what it reads beyond the length is no progress, and it is closed at
// AttemptTimeout while it waits to be read.
func TestWatchedGetBody(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	errBody := errors.New("the file is gone")
	for name, test := range map[string]struct {
		next func() io.ReadCloser
		want fedhttp.Outcome
	}{
		"fails":   {func() io.ReadCloser { return io.NopCloser(iotest.ErrReader(errBody)) }, fedhttp.OutcomeCanceled},
		"endless": {func() io.ReadCloser { return io.NopCloser(endless{}) }, fedhttp.OutcomeCanceled},
		"waits":   {func() io.ReadCloser { r, _ := io.Pipe(); return r }, fedhttp.OutcomeAmbiguous},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				tr := newTestTransport(t, fedhttp.Config{
					Peers: []fedhttp.Peer{testPeer("b", stubURL)}, Anchors: risingAnchors(),
					Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
						req.Body.Close()
						body, err := req.GetBody()
						if err != nil {
							return nil, err
						}
						defer body.Close()
						for ; err == nil && req.Context().Err() == nil; time.Sleep(time.Second) {
							_, err = body.Read(make([]byte, 1))
						}
						return nil, errors.Join(io.ErrClosedPipe, err)
					}),
				})
				req, err := http.NewRequest(http.MethodPost, stubURL, iotest.OneByteReader(strings.NewReader("four")))
				if err != nil {
					t.Fatal(err)
				}
				req.ContentLength = 4
				req.GetBody = func() (io.ReadCloser, error) { asked++; return test.next(), nil }
				_, err = tr.RoundTrip(req)
				var fault *fedhttp.Error
				if !errors.As(err, &fault) || fault.Decision.Outcome != test.want || fault.Decision.Attempts != 1 {
					t.Errorf("RoundTrip: %v, want %v", err, test.want)
				}
				if asked != 1 {
					t.Errorf("GetBody was called %d times", asked)
				}
			})
		})
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestShortBodyRefused: a peer that refuses an HTTP/2 stream for the length of its body
// gets it once, and the error says what was wrong and not what net/http made of it.
func TestShortBodyRefused(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := newFramePeer(t, true, func(c *frameConn, stream uint32, _ int64) { http2Failures["PROTOCOL_ERROR"](c, stream) })
	tr := fenced(t, frameBase(true), peer.url)
	req := requestOf(http.MethodPost, peer.url)
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader("short")), 10
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("short")), nil }
	_, err := tr.RoundTrip(req)
	var fault *fedhttp.Error
	if !errors.As(err, &fault) || fault.Decision.Reason != fedhttp.ReasonBodyFailed || fault.Decision.Attempts != 1 {
		t.Fatalf("RoundTrip: %v, want canceled (body_failed)", err)
	}
	if !strings.Contains(err.Error(), "has 5 bytes, and its ContentLength is 10") {
		t.Errorf("the error does not say what was wrong: %v", err)
	}
	if n := peer.whole.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}
