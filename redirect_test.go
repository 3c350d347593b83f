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
