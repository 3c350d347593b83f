package fedhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fedhttp/fedhttp"
)

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

// A header larger than an HTTP/2 peer takes is the caller's mistake too: net/http does not
// send it.
func TestHeaderTooLargeForThePeer(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	var served, escalated atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served.Add(1) }))
	server.EnableHTTP2, server.Config.MaxHeaderBytes = true, 4096
	server.StartTLS()
	defer server.Close()
	cfg := testPeer("b", server.URL)
	cfg.Breaker.Failures = 1
	tr := newTestTransport(t, fedhttp.Config{
		Base: server.Client().Transport, Peers: []fedhttp.Peer{cfg}, Anchors: risingAnchors(),
		Escalator: escalatorFunc(func(context.Context, fedhttp.Escalation) { escalated.Add(1) }),
	})
	req := requestOf(http.MethodPost, server.URL)
	req.Header.Set("X-Note", strings.Repeat("x", 10<<10))
	d := fenceDecision(t, rawSend(tr, req))
	if d.Reason != fedhttp.ReasonBadRequest || d.Outcome != fedhttp.OutcomeCanceled || d.Attempts != 1 || d.Escalated {
		t.Errorf("%+v, want canceled (bad_request)", d)
	}
	if err := rawSend(tr, requestOf(http.MethodPost, server.URL)); err != nil {
		t.Errorf("the next: %v", err)
	}
	if n := served.Load(); n != 1 || escalated.Load() != 0 {
		t.Errorf("%d requests came and %d escalations, want 1 and none", n, escalated.Load())
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
