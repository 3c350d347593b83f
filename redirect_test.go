package fedhttp_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// TestRedirectIsOfTheSameTask: http.Client follows a redirect with the body, and the
// peer chooses where to. The task that came of a route is the same there, also where
// no route says so: it goes out only under what was agreed with that peer for it.
func TestRedirectIsOfTheSameTask(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	const digest = "sha256:5f2c"
	newPeer := func(cfg fedtest.Config) *fedtest.Peer {
		cfg.ErrorLog = quietLog
		p := fedtest.NewPeer(cfg)
		t.Cleanup(p.Close)
		return p
	}
	b, c, unlisted := newPeer(fedtest.Config{}), newPeer(fedtest.Config{}), newPeer(fedtest.Config{})
	book := &fedhttp.PolicyBook{}
	key := fedhttp.PolicyKey{Peer: "b", Capability: "summarize", Epoch: 1}
	if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: digest}); err != nil {
		t.Fatal(err)
	}
	book.Accept(fedhttp.Policy{PolicyKey: key, Digest: digest})
	from, to := testPeer("b", b.URL), testPeer("c", c.URL)
	from.Hold.MaxWait, to.Hold.MaxWait = time.Millisecond, time.Millisecond
	from.Routes = []fedhttp.Route{{Pattern: "POST /tasks", Task: fedhttp.Task{
		Capability: "summarize", Obligations: fedhttp.Terms{"residency": "eu"},
	}}}
	tr := newTestTransport(t, fedhttp.Config{Book: book, Unlisted: fedhttp.PassUnlisted, Peers: []fedhttp.Peer{from, to}})
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect, http.StatusSeeOther} {
		post := func(location string) (fedhttp.Decision, error) {
			b.Script(fedtest.Raw(status, http.Header{"Location": {location}, "X-Federation-Policy-Evaluated": {"true"}}, ""))
			if strings.HasPrefix(location, "/") {
				b.Script(fedtest.Raw(200, nil, ""))
			}
			resp, err := (&http.Client{Transport: tr}).Post(b.URL+"/tasks", "text/plain", strings.NewReader("x"))
			if err != nil {
				var failed *fedhttp.Error
				errors.As(err, &failed)
				return failed.Decision, err
			}
			resp.Body.Close()
			d, _ := fedhttp.DecisionFromResponse(resp)
			return d, nil
		}
		if d, err := post("/elsewhere"); err != nil || d.PolicyDigest != digest || d.Capability != "summarize" {
			t.Errorf("%d within the peer: %+v, %v, want it under the digest", status, d, err)
		}
		if d, err := post(c.URL + "/collect"); !errors.Is(err, fedhttp.ErrPolicyUnresolved) || d.Peer != "c" {
			t.Errorf("%d to a peer with which nothing is agreed: %+v, %v, want ErrPolicyUnresolved", status, d, err)
		}
		if _, err := post(unlisted.URL + "/collect"); !errors.Is(err, fedhttp.ErrUnknownPeer) {
			t.Errorf("%d to an unlisted origin: %v, want ErrUnknownPeer", status, err)
		}
	}
	if n := len(b.Routing.Log()); n != 12 {
		t.Errorf("b got %d requests, want 12", n)
	}
	for name, p := range map[string]*fedtest.Peer{"c": c, "the unlisted": unlisted} {
		if n := len(p.Routing.Log()); n != 0 {
			t.Errorf("%s got %d requests", name, n)
		}
	}
}

// TestRedirectWithATaskOfItsOwn: what the caller says of a request is not passed over
// because that one follows a redirect, or is made of one that has.
func TestRedirectWithATaskOfItsOwn(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	b := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
	t.Cleanup(b.Close)
	peer := testPeer("b", b.URL)
	peer.Hold.Max = -1
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{peer}})
	obliged := func(req *http.Request) *http.Request {
		return req.WithContext(fedhttp.ContextWithTask(req.Context(), fedhttp.Task{
			ID: "its own", Capability: "summarize", Obligations: fedhttp.Terms{"residency": "eu"},
		}))
	}
	redirect := func() { b.Script(fedtest.Raw(http.StatusSeeOther, http.Header{"Location": {"/elsewhere"}}, "")) }
	unresolved := func(what string, err error) {
		t.Helper()
		if d := fenceDecision(t, err); !errors.Is(err, fedhttp.ErrPolicyUnresolved) || d.TaskID != "its own" {
			t.Errorf("%s: %v of task %q, want ErrPolicyUnresolved of its own", what, err, d.TaskID)
		}
	}
	redirect()
	client := &http.Client{Transport: tr, CheckRedirect: func(req *http.Request, _ []*http.Request) error {
		*req = *obliged(req)
		return nil
	}}
	resp, err := client.Get(b.URL + "/tasks")
	if err == nil {
		resp.Body.Close()
		t.Fatal("it was sent, and nothing is agreed")
	}
	unresolved("of CheckRedirect", err)

	redirect()
	b.Script(fedtest.Raw(http.StatusOK, nil, ""))
	client.CheckRedirect = nil
	if resp, err = client.Get(b.URL + "/tasks"); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp, err = tr.RoundTrip(obliged(resp.Request)); err == nil {
		resp.Body.Close()
		t.Fatal("it was sent, and nothing is agreed")
	}
	unresolved("of the request that was redirected", err)
	if n := len(b.Routing.Log()); n != 3 {
		t.Errorf("b got %d requests, want 3", n)
	}

	// A ring, which http.Client does not make, ends.
	b.Script(fedtest.Raw(http.StatusOK, nil, ""))
	ring := requestOf(http.MethodGet, b.URL+"/tasks")
	ring.Response = &http.Response{Request: ring}
	if err := rawSend(tr, ring); err != nil {
		t.Error(err)
	}
}

// TestRedirectByWayOfOthers: a place that is no peer's does not end the task.
func TestRedirectByWayOfOthers(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	b, unlisted := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog}), fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
	t.Cleanup(b.Close)
	t.Cleanup(unlisted.Close)
	to := func(p *fedtest.Peer, url string) {
		p.Script(fedtest.Raw(http.StatusTemporaryRedirect, http.Header{"Location": {url}}, ""))
	}
	to(b, unlisted.URL+"/1")
	to(unlisted, unlisted.URL+"/2")
	to(unlisted, b.URL+"/elsewhere")
	b.Script(fedtest.Raw(http.StatusOK, nil, ""))
	peer := testPeer("b", b.URL)
	peer.RequireTask = true
	peer.Routes = []fedhttp.Route{{Pattern: "POST /tasks", Task: fedhttp.Task{Capability: "summarize"}}}
	tr := newTestTransport(t, fedhttp.Config{Unlisted: fedhttp.PassUnlisted, Peers: []fedhttp.Peer{peer}})
	resp, err := (&http.Client{Transport: tr}).Post(b.URL+"/tasks", "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if d, _ := fedhttp.DecisionFromResponse(resp); d.Capability != "summarize" {
		t.Errorf("it came back as %+v, want the capability of its task", d)
	}
}
