package fedhttp

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// anchorsAtThePeer is a registry that serves its anchor at its own origin, and what
// it was asked.
type anchorsAtThePeer struct {
	*httptest.Server
	status int // of tasks

	mu      sync.Mutex
	fetches []http.Header
	tasks   []http.Header
}

func newAnchorsAtThePeer(t *testing.T, status int, ca *testCA) *anchorsAtThePeer {
	p := &anchorsAtThePeer{status: status}
	mux := http.NewServeMux()
	mux.HandleFunc("/anchor", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.fetches = append(p.fetches, r.Header)
		p.mu.Unlock()
		answerWith(jwksType, jwks(t, []jwk{signingKey("1")}))(w, r)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.tasks = append(p.tasks, r.Header)
		p.mu.Unlock()
		w.WriteHeader(p.status)
	})
	p.Server = httptest.NewUnstartedServer(mux)
	p.TLS = serving(ca.issue(t))
	p.StartTLS()
	t.Cleanup(p.Close)
	return p
}

// TestAnchorsAtThePeer: the anchor may be at the very origin that it is for. What
// stops the peer's tasks stops no fetch, and nothing of a task is in it.
func TestAnchorsAtThePeer(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	ca := newTestCA(t, "ca")
	for name, c := range map[string]struct {
		status int
		change func(*Peer)
		want   Reason // of the last of two tasks
		tasks  int
	}{
		"an anchor is required": {200, func(*Peer) {}, ReasonNone, 2},
		"the breaker is open":   {500, func(p *Peer) { p.Breaker = BreakerPolicy{Failures: 1, OpenFor: time.Hour} }, ReasonBreakerOpen, 1},
		"a task is required":    {200, func(p *Peer) { p.RequireTask = true }, ReasonNoCapability, 0},
		"no policy is agreed": {200, func(p *Peer) {
			p.Hold.Max = -1
			p.Routes = []Route{{Pattern: "/", Task: Task{Capability: "summarize", Obligations: Terms{"residency": "eu"}}}}
		}, ReasonNotAdvertised, 0},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAnchorsAtThePeer(t, c.status, ca)
			s := newAnchors(t, HTTPAnchors{URLs: map[string]string{"b": server.URL + "/anchor"}, Roots: poolOf(ca)})
			peer := testPeer("b", server.URL)
			peer.RequireAnchor = true
			c.change(&peer)
			tr := newTestTransport(t, Config{
				Anchors: s, Peers: []Peer{peer},
				Base: &http.Transport{DisableKeepAlives: true, TLSClientConfig: server.Client().Transport.(*http.Transport).TLSClientConfig},
			})
			var reason Reason
			for range 2 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/anchor-of-another", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := tr.RoundTrip(req)
				reason = endedAs(t, resp, err)
			}
			vtWant(t, "reason", reason, c.want)
			a := fetch(t, s)

			server.mu.Lock()
			defer server.mu.Unlock()
			vtWant(t, "tasks", len(server.tasks), c.tasks)
			for _, h := range server.tasks {
				vtWant(t, "version", h.Get("X-Federation-Anchor-Version"), a.Version)
			}
			fetches := 1
			if c.tasks > 0 {
				fetches++ // that of the first task
			}
			vtWant(t, "fetches", len(server.fetches), fetches)
			for _, h := range server.fetches {
				for _, name := range []string{"X-Federation-Anchor-Version", "Traceparent", "Cookie", "Authorization"} {
					vtWant(t, name, h.Get(name), "")
				}
			}
		})
	}
}

func endedAs(t *testing.T, resp *http.Response, err error) Reason {
	t.Helper()
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("%v", err)
		}
		return e.Decision.Reason
	}
	defer resp.Body.Close()
	d, ok := DecisionFromResponse(resp)
	if !ok {
		t.Fatal("no decision")
	}
	return d.Reason
}
