package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/fedhttp/fedhttp/fedtest"
)

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// running is a gateway of this process.
type running struct {
	url   string
	stop  context.CancelFunc
	code  chan int
	logs  *lockedBuffer
	trace *httptrace.ClientTrace // of do; nil: none
	// client goes to the gateway and follows nothing.
	client *http.Client
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func startProxy(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	p := &running{stop: stop, code: make(chan int, 1), logs: &lockedBuffer{}}
	out, in := io.Pipe()
	go func() {
		p.code <- run(ctx, append([]string{"proxy", "-listen", "127.0.0.1:0"}, args...), streams{strings.NewReader(""), in, p.logs})
		in.Close()
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no address: %v, %s", err, p.logs)
	}
	p.url = strings.TrimSpace(line)
	transport := &http.Transport{DisableCompression: true}
	p.client = &http.Client{Transport: transport, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(func() {
		stop()
		transport.CloseIdleConnections()
		if code := <-p.code; code != 0 {
			t.Errorf("exit code %d: %s", code, p.logs)
		}
		p.code <- 0
	})
	return p
}

// answer is a response of the gateway, read to its end.
type answer struct {
	*http.Response
	body     string
	decision string
}

// do makes a request. It may be called from any goroutine.
func (p *running) do(t *testing.T, method, path string, body io.Reader, header ...string) answer {
	t.Helper()
	none := answer{Response: &http.Response{Header: http.Header{}}}
	req, err := http.NewRequest(method, p.url+path, body)
	if err != nil {
		t.Error(err)
		return none
	}
	if p.trace != nil {
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), p.trace))
	}
	for i := 0; i < len(header); i += 2 {
		if req.Header.Add(header[i], header[i+1]); header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := p.client.Do(req)
	if err != nil {
		t.Error(err)
		return none
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
		return none
	}
	return answer{resp, string(data), resp.Header.Get(decisionHeader)}
}

// problem is the answer's body.
func (a *answer) problem(t *testing.T) (p problem) {
	t.Helper()
	if a.Header.Get("Content-Type") != "application/problem+json" || json.Unmarshal([]byte(a.body), &p) != nil || p.Status != a.StatusCode {
		t.Fatalf("no problem: %d %v %s", a.StatusCode, a.Header, a.body)
	}
	return p
}

// TestProxyNamesFlags: what is not there because of how the gateway was called is not
// waited for, and the answer says which flag it is for.
func TestProxyNamesFlags(t *testing.T) {
	t.Parallel()
	gone := fedtest.NewPeer(fedtest.Config{})
	gone.Close()
	p := startProxy(t, "-peers", peersOf(t, gone))
	for _, flag := range []string{"policies", "anchors"} {
		if !strings.Contains(p.logs.String(), "without --"+flag+" ") {
			t.Errorf("the log does not name --%s: %s", flag, p.logs)
		}
	}
	a := p.do(t, "GET", "/org-b/", nil)
	if got := a.problem(t); got.Reason != "no_anchor_source" || !strings.HasSuffix(got.Detail, "; without --anchors nothing is ever sent again") {
		t.Errorf("%+v", got)
	}
	long := strings.Repeat("c", maxShown) // which is cut, and the flag not with it
	a = p.do(t, "GET", "/org-b/", nil, headerCapability, long, headerObligations, "residency=eu", headerPolicyWait, "1h")
	if got := a.problem(t); got.Outcome != "policy_unresolved" || !strings.HasSuffix(got.Detail, "; without --policies there is none") {
		t.Errorf("%+v", got)
	}
}

func TestProxyDecisions(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{Handler: http.HandlerFunc(echo)})
	gone := fedtest.NewPeer(fedtest.Config{})
	gone.Close()
	file := write(t, "peers.yaml", fmt.Sprintf(`peers:
  - {id: org-b, origins: [%s], hold: {max: -1}}
  - {id: gone, origins: [%s]}
  - {id: strict, origins: ["http://127.0.0.1:1"], require_task: true}
`, peer.URL, gone.URL))
	p := startProxy(t, "-peers", file)

	a := p.do(t, "POST", "/org-b/v1/tasks?a=b;c&d=%zz", strings.NewReader("hello"), "Host", "localhost")
	if a.StatusCode != 200 || a.decision != `outcome=delivered, peer="org-b", resends=0, correlation-id="pe-00000001"` ||
		!strings.HasPrefix(a.body, "POST /v1/tasks?a=b;c&d=%zz hello\n") || !strings.Contains(a.body, "Host: "+strings.TrimPrefix(peer.URL, "http://")) {
		t.Errorf("%d %s %s", a.StatusCode, a.decision, a.body)
	}
	peer.Script(fedtest.Raw(404, nil, "none"), fedtest.Deny("SCOPE_NARROWED"), fedtest.RouteDrop(503), fedtest.Raw(502, nil, "<html>"))
	for _, want := range []string{"404 delivered", "403 rejected denied", "503 routing_failed no_anchor_source", "502 ambiguous no_signal"} {
		a := p.do(t, "GET", "/org-b/", nil)
		dict, err := httpsfv.UnmarshalDictionary([]string{a.decision})
		if err != nil {
			t.Fatalf("%s: %v", a.decision, err)
		}
		got := fmt.Sprint(a.StatusCode)
		for _, name := range []string{"outcome", "reason"} {
			if member, ok := dict.Get(name); ok {
				got += " " + string(member.(httpsfv.Item).Value.(httpsfv.Token))
			}
		}
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}

	// A pending policy, what was not delivered, and what cannot be told are three
	// things, and a client can tell them apart.
	sends := len(peer.Routing.Log())
	a = p.do(t, "GET", "/org-b/x", nil, headerCapability, "summarize", headerObligations, "residency=eu")
	if got := a.problem(t); got.Status != 503 || got.Outcome != "policy_unresolved" || got.Reason != "not_advertised" || got.Sent != "no" || !got.SafeToResend ||
		got.Peer != "org-b" || got.Capability != "summarize" || !strings.HasSuffix(got.Type, "#policy_unresolved") {
		t.Errorf("%+v", got)
	}
	if !strings.HasPrefix(a.decision, "outcome=policy_unresolved, reason=not_advertised,") || len(peer.Routing.Log()) != sends {
		t.Errorf("%s, %d sends", a.decision, len(peer.Routing.Log())-sends)
	}
	a = p.do(t, "GET", "/gone/", nil)
	if got := a.problem(t); got.Status != 502 || got.Outcome != "routing_failed" || got.Sent != "no" || !got.SafeToResend {
		t.Errorf("%+v", got)
	}
	peer.Script(fedtest.CloseConnection())
	a = p.do(t, "GET", "/org-b/", nil)
	if got := a.problem(t); got.Status != 502 || got.Outcome != "ambiguous" || got.Sent != "perhaps" || got.SafeToResend {
		t.Errorf("%+v", got)
	}
	if got := p.do(t, "GET", "/strict/", nil); got.StatusCode != 400 || got.decision != `outcome=task_required, reason=no_capability, peer="strict", resends=0` {
		t.Errorf("%d %s", got.StatusCode, got.decision)
	}
}

func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	p := startProxy(t, "-peers", peersOf(t, peer))
	host := strings.TrimPrefix(p.url, "http://")
	for request, want := range map[string]string{
		"GET /nobody/x HTTP/1.1\r\nHost: " + host:                                                             "404 unknown_peer",
		"GET / HTTP/1.1\r\nHost: " + host:                                                                     "404 unknown_peer",
		"GET //org-b/x HTTP/1.1\r\nHost: " + host:                                                             "404 unknown_peer",
		"GET /org-b/../org-c HTTP/1.1\r\nHost: " + host:                                                       "400 refused",
		"GET /org-b/%2e%2e/x HTTP/1.1\r\nHost: " + host:                                                       "400 refused",
		"GET http://evil.example/org-b/x HTTP/1.1\r\nHost: " + host:                                           "421 refused",
		"GET http://" + host + "/org-b/x HTTP/1.1\r\nHost: " + host:                                           "421 refused",
		"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443":                                         "405 refused",
		"CONNECT /org-b/x HTTP/1.1\r\nHost: " + host:                                                          "405 refused",
		"GET /org-b/x HTTP/1.1\r\nHost: evil.example":                                                         "421 refused",
		"GET /healthz HTTP/1.1\r\nHost: evil.example":                                                         "421 refused",
		"GET /-/status HTTP/1.1\r\nHost: evil.example":                                                        "421 refused",
		"GET /org-b/x HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: websocket\r\nHost: " + host:                 "501 refused",
		"GET /org-b/x HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\nHost: " + host: "501 refused",
		"GET /org-b/x HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\nHost: " + host:                                "403 refused",
		"POST /org-b/x HTTP/1.1\r\nContent-Length: 0\r\nOrigin: https://evil.example\r\nHost: " + host:        "403 refused",
		"POST /org-b/x HTTP/1.1\r\nContent-Length: 0\r\nOrigin: null\r\nHost: " + host:                        "403 refused",
		"GET /org-b/x HTTP/1.1\r\nSec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\nHost: " + host:        "403 refused",
		"GET /org-b/x HTTP/1.1\r\nSec-Fetch-Site: none\r\nSec-Fetch-Dest: document\r\nHost: " + host:          "403 refused",
		"GET /org-b/x HTTP/1.1\r\nSec-Fetch-Site: same-origin\r\nSec-Fetch-Dest: worker\r\nHost: " + host:     "403 refused",
		"GET /org-b/x HTTP/1.1\r\nUpgrade-Insecure-Requests: 1\r\nHost: " + host:                              "403 refused",
		"OPTIONS * HTTP/1.1\r\nHost: " + host:                                                                 "400 refused",
		"OPTIONS * HTTP/1.1\r\nHost: evil.example":                                                            "421 refused",
		"GET /org-b/x HTTP/1.1\r\nFedhttp-Obligation: residency=eu\r\nHost: " + host:                          "400 refused",
		"GET /org-b/x HTTP/1.1\r\nFedhttp-Decision: outcome=delivered\r\nHost: " + host:                       "400 refused",
	} {
		resp, body := rawRequest(t, host, request+"\r\nConnection: close\r\n\r\n")
		var got problem
		if err := json.Unmarshal(body, &got); err != nil {
			t.Errorf("%q: %d %s", request, resp.StatusCode, body)
			continue
		}
		decision := resp.Header.Get(decisionHeader)
		if text := fmt.Sprint(resp.StatusCode, " ", got.Outcome); text != want || got.Sent != "no" || !strings.HasPrefix(decision, "outcome="+got.Outcome) {
			t.Errorf("%q: got %s %s, want %s: %s", request, text, decision, want, body)
		}
	}
	if n := len(peer.Routing.Log()); n != 0 {
		t.Errorf("%d requests reached the peer", n)
	}
	// What curl offers with --http2 is an offer only.
	if resp, body := rawRequest(t, host, "GET /org-b/x HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\nHost: "+host+"\r\n\r\n"); resp.StatusCode != 200 {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestProxyTakes has what looks like what is refused.
func TestProxyTakes(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{Handler: http.HandlerFunc(echo)})
	p := startProxy(t, "-peers", peersOf(t, peer))
	host := strings.TrimPrefix(p.url, "http://")
	for request, want := range map[string]string{
		"GET /org-b/x HTTP/1.1\r\nSec-Fetch-Site: same-origin\r\nSec-Fetch-Dest: empty\r\nHost: " + host: "GET /x \n",
		"GET /org-b/x HTTP/1.0":                   "GET /x \n", // some health checks have no Host
		"GET /healthz HTTP/1.0":                   "ok\n",
		"GET /org-b/x? HTTP/1.1\r\nHost: " + host: "GET /x? \n",
	} {
		if resp, body := rawRequest(t, host, request+"\r\nConnection: close\r\n\r\n"); resp.StatusCode != 200 || !strings.HasPrefix(string(body), want) {
			t.Errorf("%q: %d %q", request, resp.StatusCode, body)
		}
	}
}

func rawRequest(t *testing.T, host, request string) (*http.Response, []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	return resp, body
}

// TestProxyHeaders looks at what reaches the peer, and what comes back.
func TestProxyHeaders(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 1)
	peer := newPeer(t, fedtest.Config{})
	peer.Otherwise(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Clone()
		h := w.Header()
		h.Set("Fedhttp-Decision", "outcome=delivered")
		h.Set("Link", "</x>")
		w.WriteHeader(http.StatusEarlyHints)
		h.Set("fedhttp-lies", "x")
		h.Set("X-Federation-Policy-Evaluated", "true")
		h.Set("Trailer", "X-Sum, Fedhttp-Decision")
		h.Add("Set-Cookie", "a=1; Path=/v1; Domain=b.example; HttpOnly")
		h.Add("Set-Cookie", "b=2")
		h.Set("Location", "/org-c/x")
		h.Set("Connection", "X-Hop")
		h.Set("X-Hop", "1")
		w.WriteHeader(http.StatusForbidden)
		h.Set("X-Sum", "7")
		h.Set("Fedhttp-Decision", "outcome=delivered")
		h.Set(http.TrailerPrefix+"Fedhttp-Late", "x")
	})
	p := startProxy(t, "-peers", peersOf(t, peer))
	early := make(chan http.Header, 1)
	p.trace = &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		early <- http.Header(h)
		return nil
	}}
	a := p.do(t, "GET", "/org-b/x", nil, headerCapability, "summarize", headerScope, "s", headerTask, "t", headerPolicyWait, "1s",
		"X-Forwarded-For", "10.0.0.1", "X-Forwarded-Port", "443", "X-Forwarded-Prefix", "/p", "Forwarded", "for=10.0.0.1", "Te", "trailers", "Via", "1.0 mine", "Connection", "X-Mine", "X-Mine", "1", "Proxy-Authorization", "secret", "Keep-Alive", "1",
		"X-Federation-Policy-Digest", "forged", "Authorization", "Bearer x", "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	got := <-seen
	for name := range got {
		if !slices.Contains([]string{"Authorization", "Traceparent", "User-Agent", "Via"}, name) {
			t.Errorf("%s: %q reached the peer", name, got[name])
		}
	}
	if got.Get("Authorization") != "Bearer x" || !strings.Contains(got.Get("Traceparent"), "0af7651916cd43dd8448eb211c80319c") || got.Get("User-Agent") != "Go-http-client/1.1" || strings.Join(got["Via"], ", ") != "1.0 mine, 1.1 fedhttp" {
		t.Errorf("%q", got)
	}
	h := a.Header
	if a.StatusCode != 403 || len(h[decisionHeader]) != 1 || !strings.HasPrefix(a.decision, "outcome=rejected") || h.Get("Fedhttp-Lies") != "" || h.Get("X-Hop") != "" {
		t.Errorf("%d %q", a.StatusCode, h)
	}
	if h.Get("Location") != "/org-b/org-c/x" || strings.Join(h["Set-Cookie"], ", ") != "a=1; HttpOnly; Path=/org-b/v1, b=2; Path=/org-b/" {
		t.Errorf("%q", h)
	}
	if h := <-early; h.Get("Link") != "</org-b/x>" || h.Get(decisionHeader) != "" {
		t.Errorf("interim response: %q", h)
	}
	if a.Trailer.Get("X-Sum") != "7" || len(a.Trailer) != 1 {
		t.Errorf("trailer %q", a.Trailer)
	}
}
