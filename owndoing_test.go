package fedhttp_test

import (
	"bytes"
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

// What our own side did wrong pages nobody, and never stands against the peer.
func TestOwnDoing(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	errBody := errors.New("the inbound client has hung up")
	for name, test := range map[string]struct {
		change func(*http.Request)
		reason fedhttp.Reason
		sends  bool // bytes may leave before it is noticed
	}{
		"header value":    {func(r *http.Request) { r.Header.Set("X-Note", "a\nb") }, fedhttp.ReasonBadRequest, false},
		"header name":     {func(r *http.Request) { r.Header["a b"] = []string{"c"} }, fedhttp.ReasonBadRequest, false},
		"two lengths":     {func(r *http.Request) { r.Header["content-length"] = []string{"1"} }, fedhttp.ReasonBadRequest, false},
		"a second coding": {func(r *http.Request) { r.Header["transfer-encoding"] = []string{"chunked"} }, fedhttp.ReasonBadRequest, false},
		"two hosts":       {func(r *http.Request) { r.Header["host"] = []string{"c.example"} }, fedhttp.ReasonBadRequest, false},
		"trailer value":   {func(r *http.Request) { r.Trailer = http.Header{"X-Note": {"a\nb"}} }, fedhttp.ReasonBadRequest, false},
		"method":          {func(r *http.Request) { r.Method = "GE T" }, fedhttp.ReasonBadRequest, false},
		"trailer name":    {func(r *http.Request) { r.Trailer = http.Header{"content-length": nil} }, fedhttp.ReasonBadRequest, false},
		"query":           {func(r *http.Request) { r.URL.RawQuery = "q=a\nb" }, fedhttp.ReasonBadRequest, false},
		"tab in query":    {func(r *http.Request) { r.URL.RawQuery = "q=a\tb" }, fedhttp.ReasonBadRequest, false},
		"path":            {func(r *http.Request) { r.URL.Path = "a" }, fedhttp.ReasonBadRequest, false},
		"escaped path":    {func(r *http.Request) { r.URL.RawPath = "%2Fa" }, fedhttp.ReasonBadRequest, false},
		"escaped star":    {func(r *http.Request) { r.URL.Path, r.URL.RawPath = "*", "%2A" }, fedhttp.ReasonBadRequest, false},
		"* and a query":   {func(r *http.Request) { r.URL.Path, r.URL.RawQuery = "*", "q" }, fedhttp.ReasonBadRequest, false},
		"* and a mark":    {func(r *http.Request) { r.URL.Path, r.URL.ForceQuery = "*", true }, fedhttp.ReasonBadRequest, false},
		"no body":         {func(r *http.Request) { r.Body, r.ContentLength = nil, 5 }, fedhttp.ReasonBadRequest, false},
		"no length":       {func(r *http.Request) { r.ContentLength = -2 }, fedhttp.ReasonBadRequest, false},
		"coding":          {func(r *http.Request) { r.TransferEncoding = []string{"gzip"} }, fedhttp.ReasonBadRequest, false},
		"two codings":     {func(r *http.Request) { r.TransferEncoding = []string{"chunked", "gzip"} }, fedhttp.ReasonBadRequest, false},
		"endless":         {func(r *http.Request) { r.TransferEncoding = []string{"identity"} }, fedhttp.ReasonBadRequest, false},
		"body that ends":  {func(r *http.Request) { r.Body = io.NopCloser(iotest.ErrReader(errBody)) }, fedhttp.ReasonBodyFailed, true},
		"body of GetBody that ends": {func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(errBody)), nil }
			r.Body, _ = r.GetBody()
		}, fedhttp.ReasonBodyFailed, true},
	} {
		t.Run(name, func(t *testing.T) {
			peer := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
			defer peer.Close()
			var escalated atomic.Int64
			cfg := testPeer("b", peer.URL)
			cfg.Breaker = fedhttp.BreakerPolicy{Failures: 1}
			tr := newTestTransport(t, fedhttp.Config{
				Peers:     []fedhttp.Peer{cfg},
				Anchors:   risingAnchors(), // so that it could be sent again
				Escalator: escalatorFunc(func(context.Context, fedhttp.Escalation) { escalated.Add(1) }),
			})
			for range 3 {
				req, err := http.NewRequest(http.MethodPost, peer.URL+"/a", iotest.OneByteReader(strings.NewReader("a body")))
				if err != nil {
					t.Fatal(err)
				}
				test.change(req)
				_, err = tr.RoundTrip(req)
				var fault *fedhttp.Error
				if !errors.As(err, &fault) || fault.Decision.Outcome != fedhttp.OutcomeCanceled || fault.Decision.Reason != test.reason {
					t.Fatalf("RoundTrip: %v, want canceled (%v)", err, test.reason)
				}
				if d := fault.Decision; d.Attempts > 1 || d.Attempts == 1 != test.sends || d.Escalated {
					t.Errorf("%d attempts, escalated %v", d.Attempts, d.Escalated)
				}
				if fault.Decision.Refreshes > 1 || fault.Decision.Evidence != nil {
					t.Errorf("%+v", fault.Decision)
				}
				if test.reason == fedhttp.ReasonBodyFailed && !errors.Is(err, errBody) {
					t.Errorf("the error is not the body's: %v", err)
				}
			}
			if s := tr.Status()[0]; s.Breaker != "closed" || s.InFlight != 0 {
				t.Errorf("after that the peer is %+v", s)
			}
			if got := peer.Sends("/a"); !test.sends && got != 0 {
				t.Errorf("the peer has read %d requests", got)
			}
			if escalated.Load() != 0 {
				t.Errorf("%d escalations", escalated.Load())
			}
		})
	}
}

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

// A peer cannot put into a header of ours what no header can carry.
func TestGossipedValues(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	var book fedhttp.PolicyBook
	key := fedhttp.PolicyKey{Peer: "b", Capability: "c", Epoch: 1}
	if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "sha256:1\nX-Evil: 1"}); err == nil {
		t.Error("a digest with a line break was advertised")
	}
	tr := newTestTransport(t, fedhttp.Config{
		Peers: []fedhttp.Peer{testPeer("b", stubURL)}, Book: &book, Logger: quietLogger,
		Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
		}),
		Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
			return fedhttp.Anchor{Version: "v1\r\nX-Evil: 1"}, nil
		}),
	})
	d, err := get(t, tr, fedhttp.Task{Capability: "c"})
	if err != nil || d.Outcome != fedhttp.OutcomeDelivered || d.AnchorVersion != "" {
		t.Errorf("%+v, %v: want it delivered without an anchor", d, err)
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

// Fields of the connection are the caller's mistake where that turns out to speak
// HTTP/2. Over HTTP/1 they are sent.
func TestConnectionFields(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		var served, escalated atomic.Int32
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
		server.EnableHTTP2 = http2
		server.StartTLS()
		defer server.Close()
		cfg := testPeer("b", server.URL)
		cfg.Breaker.Failures = 1
		tr := newTestTransport(t, fedhttp.Config{
			Base: server.Client().Transport, Peers: []fedhttp.Peer{cfg}, Anchors: risingAnchors(),
			Escalator: escalatorFunc(func(context.Context, fedhttp.Escalation) { escalated.Add(1) }),
		})
		sent := int32(0)
		for _, test := range []struct {
			header http.Header
			over   bool // HTTP/2 as well
		}{
			{http.Header{"Connection": {"X-Note"}}, false},
			{http.Header{"Connection": {"close", "close"}}, false},
			{http.Header{"Connection": {"Close"}}, true},
			{http.Header{"Connection": {"keep-alive"}}, true},
			{http.Header{"Connection": {""}}, true},
			{http.Header{"Upgrade": {"h2c"}}, false},
			{http.Header{"Upgrade": {"chunked"}}, true},
			{http.Header{"Upgrade": {""}}, true},
			{http.Header{"Transfer-Encoding": {"gzip"}}, false},
			{http.Header{"Transfer-Encoding": {"chunked", ""}}, false},
			{http.Header{"Transfer-Encoding": {"chunked"}}, true},
			{http.Header{"Transfer-Encoding": {""}}, true},
		} {
			req := requestOf(http.MethodPost, server.URL)
			req.Header = test.header
			err := rawSend(tr, req)
			if !http2 || test.over {
				if sent++; err != nil {
					t.Errorf("HTTP/2 %v, %v: %v", http2, test.header, err)
				}
				continue
			}
			if d := fenceDecision(t, err); d.Reason != fedhttp.ReasonBadRequest || d.Outcome != fedhttp.OutcomeCanceled || d.Attempts != 1 || d.Escalated {
				t.Errorf("%v: %+v, want canceled (bad_request)", test.header, d)
			}
		}
		if s := tr.Status()[0]; s.Breaker != "closed" || escalated.Load() != 0 {
			t.Errorf("HTTP/2 %v: %d escalations, the breaker is %s", http2, escalated.Load(), s.Breaker)
		}
		if n := served.Load(); n != sent {
			t.Errorf("HTTP/2 %v: %d requests came, want %d", http2, n, sent)
		}
	}
}

// What is unusual and can be sent is sent.
func TestUnusualIsSent(t *testing.T) {
	t.Parallel()
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{testPeer("b", stubURL)}, Base: chainStub})
	for name, change := range map[string]func(*http.Request){
		"*":               func(r *http.Request) { r.Method, r.URL.Path = http.MethodOptions, "*" },
		"no path":         func(r *http.Request) { r.URL.Path = "" },
		"escaped path":    func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/a/b", "/a%2Fb" },
		"another RawPath": func(r *http.Request) { r.URL.RawPath = "no escape of the path" },
		"a mark":          func(r *http.Request) { r.URL.ForceQuery = true },
		"query":           func(r *http.Request) { r.URL.RawQuery = "q=a b&é=\xff" },
		"header value":    func(r *http.Request) { r.Header.Set("X-Note", "\ta é \xff ") },
		"header name":     func(r *http.Request) { r.Header["x!#$%&'*+-.^_`|~"] = nil },
		"no header":       func(r *http.Request) { r.Header = nil },
		"trailer":         func(r *http.Request) { r.Trailer = http.Header{"X-Note": nil} },
		"chunked":         func(r *http.Request) { r.TransferEncoding = []string{"chunked"} },
		"identity":        func(r *http.Request) { r.TransferEncoding = []string{"identity"} },
		"method":          func(r *http.Request) { r.Method = "get" },
		"Host":            func(r *http.Request) { r.Host = "[::1]:80" },
	} {
		req := requestOf(http.MethodPost, stubURL)
		change(req)
		if err := rawSend(tr, req); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
