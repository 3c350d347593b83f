package main

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestProxyInterim: of an interim response a client has what it is for, and nothing
// that would hold for other peers too.
func TestProxyInterim(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	peer.Otherwise(fedtest.Wire("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nSet-Cookie: early=1; Path=/\r\nLocation: /org-c\r\nConnection: X-Hop\r\nX-Hop: 1\r\n" +
		"Keep-Alive: 1\r\nContent-Length: 5\r\nX-Other: 1\r\nFedhttp-Decision: outcome=delivered\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"))
	p := startProxy(t, "-peers", peersOf(t, peer))
	early := make(chan http.Header, 1)
	p.trace = &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		early <- http.Header(h)
		return nil
	}}
	if a := p.do(t, "GET", "/org-b/x", nil); a.StatusCode != 204 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	if h := <-early; len(h) != 1 || h.Get("Link") != "</org-b/a>" {
		t.Errorf("%q", h)
	}
}

// TestProxyInventsNoType: what a peer says nothing of, the gateway says nothing of.
func TestProxyInventsNoType(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	p := startProxy(t, "-peers", peersOf(t, peer))
	const page = "<html><script>alert(1)</script></html>"
	for _, header := range []string{"Connection: close\r\n", "Content-Length: 38\r\nConnection: close\r\n"} {
		peer.Otherwise(fedtest.Wire("HTTP/1.1 200 OK\r\n" + header + "\r\n" + page))
		a := p.do(t, "GET", "/org-b/x", nil)
		if _, given := a.Header["Content-Type"]; given || a.body != page {
			t.Errorf("%q %q", a.Header, a.body)
		}
	}
	peer.Otherwise(fedtest.Wire("HTTP/1.1 200 OK\r\nContent-Type: x/y\r\n\r\n" + page))
	if a := p.do(t, "GET", "/org-b/x", nil); a.Header.Get("Content-Type") != "x/y" {
		t.Errorf("%q", a.Header)
	}
}

// TestUnaskedSwitch: a 101 that nobody asked for says nothing of the request.
func TestUnaskedSwitch(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	peer.Otherwise(fedtest.Wire("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\nX-Correlation-ID: c-1\r\n\r\nraw"))
	peers := peersOf(t, peer)
	p := startProxy(t, "-peers", peers)
	a := p.do(t, "GET", "/org-b/x", nil)
	if got := a.problem(t); got.Status != 502 || got.Outcome != "ambiguous" || got.Sent != "yes" || got.SafeToResend || got.Peer != "org-b" || !strings.Contains(got.Detail, "switched") ||
		a.decision != `outcome=ambiguous, reason=no_signal, peer="org-b", resends=0, correlation-id="c-1"` {
		t.Errorf("%+v %s", got, a.decision)
	}
	r := runWith(t, "", "get", "-v", "-p", peers, peer.URL+"/x")
	r.want(t, 12, "switched protocols", "* outcome         ambiguous")
	if r.out != "" {
		t.Errorf("stdout: %q", r.out)
	}
}

// TestProxyTrailerFields: nor does a trailer have what a header may not.
func TestProxyTrailerFields(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	peer.Otherwise(fedtest.Wire("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Set-Cookie\r\n\r\n1\r\nx\r\n0\r\n" +
		"X-Sum: 1\r\nSet-Cookie: a=b; Path=/\r\nLocation: /org-c\r\nContent-Location: /org-c\r\nLink: </org-c>\r\nAlt-Svc: clear\r\n\r\n"))
	p := startProxy(t, "-peers", peersOf(t, peer))
	a := p.do(t, "GET", "/org-b/x", nil)
	if a.body != "x" || a.Trailer.Get("X-Sum") != "1" || len(a.Trailer) != 1 {
		t.Errorf("%q, %q", a.body, a.Trailer)
	}
}

// TestProxyWholeHost: to a client all peers are one host, for which none of them speaks.
func TestProxyWholeHost(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	peer.Otherwise(fedtest.Wire("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nAlt-Svc: h2=\"evil.example:443\"\r\nalt-svc: h3=\":1\"\r\nClear-Site-Data: \"*\"\r\n" +
		"Strict-Transport-Security: max-age=9\r\nRefresh: 0; url=/org-c/x\r\nNEL: {}\r\nReport-To: {}\r\nReporting-Endpoints: x=\"/org-c\"\r\n" +
		"Content-Location: /v1/x\r\nLink: </v1/y>; rel=next\r\nLink: </%2e%2e/org-c>; rel=prev\r\nX-Kept: 1\r\n\r\n"))
	p := startProxy(t, "-peers", peersOf(t, peer))
	a := p.do(t, "GET", "/org-b/x", nil)
	for _, name := range []string{"Alt-Svc", "Clear-Site-Data", "Strict-Transport-Security", "Refresh", "NEL", "Report-To", "Reporting-Endpoints"} {
		if got := a.Header.Values(name); len(got) > 0 {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := sprint(a.Header["Content-Location"], a.Header["Link"], a.Header["X-Kept"]); got != "[/org-b/v1/x] [</org-b/v1/y>; rel=next] [1]" {
		t.Error(got)
	}
}

// TestProxyRetryRequests: a client cannot have the hops on the way send again.
func TestProxyRetryRequests(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	p := startProxy(t, "-peers", peersOf(t, peer))
	p.do(t, "POST", "/org-b/x", nil, "X-Envoy-Retry-On", "5xx", "x-envoy-max-retries", "9", "X-Envoy-Hedge-On-Per-Try-Timeout", "true", "X-Kept", "1")
	log := peer.Routing.Log()
	if len(log) != 1 || log[0].Header.Get("X-Kept") != "1" {
		t.Fatalf("%+v", log)
	}
	for name := range log[0].Header {
		if strings.HasPrefix(name, "X-Envoy") {
			t.Errorf("%s reaches the peer", name)
		}
	}
}

// TestProxyOverrides: the routes of the file go by the request line, and so must the
// peer, or a client could be rid of what its task is obliged to.
func TestProxyOverrides(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	free := newPeer(t, fedtest.Config{})
	p := startProxy(t, "-peers", write(t, "peers.yaml", "peers:\n  - {id: org-b, origins: ["+peer.URL+
		"], hold: {max: -1}, routes: [{pattern: POST /v1/tasks, task: {capability: summarize, obligations: {residency: eu}}}]}\n  - {id: org-c, origins: ["+free.URL+"]}\n"))
	for _, name := range []string{"X-HTTP-Method-Override", "x-http-method", "X-Method-Override", "X_HTTP_Method_Override", "X-Original-URL", "X-Rewrite-Url"} {
		a := p.do(t, "GET", "/org-b/v1/tasks", nil, name, "POST")
		if got := a.problem(t); got.Status != 403 || got.Outcome != "refused" || got.Sent != "no" || !strings.Contains(strings.ToLower(got.Detail), "routes") {
			t.Errorf("%s: %d %+v", name, a.StatusCode, got)
		}
		if a := p.do(t, "GET", "/org-c/v1/tasks", nil, name, "POST"); a.StatusCode != 200 {
			t.Errorf("%s, without routes: %d %s", name, a.StatusCode, a.body)
		}
	}
	if log := peer.Routing.Log(); len(log) > 0 {
		t.Errorf("%+v", log)
	}
}

// TestNoStatus: a status below 100, which net/http's client takes and its server cannot
// write, does not keep the decision from the client.
func TestNoStatus(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	peer.Otherwise(fedtest.Wire("HTTP/1.1 099 x\r\nContent-Length: 3\r\n\r\nraw"))
	peers := peersOf(t, peer)
	a := startProxy(t, "-peers", peers).do(t, "POST", "/org-b/x", nil)
	if got := a.problem(t); got.Status != 502 || got.Outcome != "ambiguous" || got.Sent != "yes" || got.SafeToResend || !strings.Contains(got.Detail, "the status 099, which is none") {
		t.Errorf("%+v", got)
	}
	runWith(t, "", "get", "-p", peers, peer.URL+"/x").want(t, 12, "the status 099, which is none")
}

// TestOwnErrorsOfNetHTTP: what net/http answers by itself has no decision, as the docs say.
func TestOwnErrorsOfNetHTTP(t *testing.T) {
	t.Parallel()
	p := startProxy(t, "-peers", peersOf(t, newPeer(t, fedtest.Config{})))
	host := strings.TrimPrefix(p.url, "http://")
	for request, want := range map[string]int{
		"GET /org-b/x HTTP/1.1\r\n\r\n": 400, "GET /org-b/x HTTP/3.0\r\nHost: " + host + "\r\n\r\n": 505,
		"GET /org-b/x HTTP/1.1\r\nX: " + strings.Repeat("x", 200<<10) + "\r\nHost: " + host + "\r\n\r\n":              431,
		"POST /org-b/x HTTP/1.1\r\nTransfer-Encoding: x\r\nHost: " + host + "\r\n\r\n":                                501,
		"POST /org-b/x HTTP/1.1\r\nExpect: x\r\nContent-Length: 0\r\nConnection: close\r\nHost: " + host + "\r\n\r\n": 417,
	} {
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(conn, request) }()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%.60q: %v", request, err)
		} else if resp.StatusCode != want || resp.Header.Get(decisionHeader) != "" {
			t.Errorf("%.60q: %d %q", request, resp.StatusCode, resp.Header)
		}
		conn.Close()
	}
}
