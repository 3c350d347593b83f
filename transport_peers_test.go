package fedhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

func TestSetPeersAllOrNothing(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	old := testPeer("b", stubURL)
	tr := newTestTransport(t, fedhttp.Config{Base: answering(response(200)), Peers: []fedhttp.Peer{old}})
	good := testPeer("c", "https://c.example")
	bad := fedhttp.Peer{Origins: []string{"https://c.example"}}
	if err := tr.SetPeers([]fedhttp.Peer{good, bad}); err == nil {
		t.Fatal("SetPeers accepts a peer without an ID")
	}
	if s := tr.Status(); len(s) != 1 || s[0].ID != "b" {
		t.Errorf("after SetPeers has failed the peers are %+v", s)
	}
	if d, err := get(t, tr, fedhttp.Task{}); err != nil || d.Peer != "b" {
		t.Errorf("after SetPeers has failed: %+v, %v", d, err)
	}
	if err := tr.SetPeers([]fedhttp.Peer{good}); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, tr, fedhttp.Task{}); !errors.Is(err, fedhttp.ErrUnknownPeer) {
		t.Errorf("a peer that was removed: %v, want ErrUnknownPeer", err)
	}
	if err := tr.SetPeers(nil); err != nil || len(tr.Status()) != 0 {
		t.Errorf("no peers at all: %v, %+v", err, tr.Status())
	}
}

// TestSetPeersAfterClose: whoever reloads a file for a Transport hears that it is closed.
func TestSetPeersAfterClose(t *testing.T) {
	t.Parallel()
	tr := newTestTransport(t, fedhttp.Config{Base: answering(response(200)), Peers: []fedhttp.Peer{testPeer("b", stubURL)}})
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tr.SetPeers([]fedhttp.Peer{testPeer("c", stubURL)}); !errors.Is(err, fedhttp.ErrClosed) {
		t.Errorf("SetPeers: %v, want ErrClosed", err)
	}
	if s := tr.Status(); len(s) != 1 || s[0].ID != "b" {
		t.Errorf("the peers are %+v", s)
	}
}

// TestPeersAreCopied: what the caller does to its slices and maps afterwards
// changes nothing.
func TestPeersAreCopied(t *testing.T) {
	t.Parallel()
	p := testPeer("b", stubURL)
	p.DefaultTerms = fedhttp.Terms{"residency": "eu"}
	p.Routes = []fedhttp.Route{{Pattern: "/v1/", Task: fedhttp.Task{Capability: "c", Obligations: fedhttp.Terms{"residency": "eu"}}}}
	p.Hold.Max = -1
	tr := newTestTransport(t, fedhttp.Config{Base: answering(response(200)), Peers: []fedhttp.Peer{p}})
	p.Origins[0] = "https://other.example"
	delete(p.DefaultTerms, "residency")
	p.Routes[0].Task.Obligations["x"] = "y"
	if d, err := get(t, tr, fedhttp.Task{}); err != nil || d.Capability != "c" {
		t.Errorf("%+v, %v; want it delivered as before", d, err)
	}
}

// TestPeerBaseOfAnyKind: a peer's own base may be any RoundTripper, beside the others'.
func TestPeerBaseOfAnyKind(t *testing.T) {
	t.Parallel()
	own, other := testPeer("own", "https://own.example"), testPeer("b", stubURL)
	own.Base = answering(response(201))
	tr := newTestTransport(t, fedhttp.Config{Base: answering(response(202)), Peers: []fedhttp.Peer{own, other}})
	for url, want := range map[string]int{"https://own.example/": 201, stubURL: 202} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s has status %d, want %d", url, resp.StatusCode, want)
		}
	}
}

// TestSetPeersInFlight: a call keeps the configuration that it began with, and
// a peer that is kept keeps its anchor, its breaker and its denials.
func TestSetPeersInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		waiting := func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("X-Wait") != "" {
				<-release
			}
			return answering(routed())(r)
		}
		p := testPeer("b", stubURL)
		p.Retry.MaxAttempts = 5
		p.Breaker.Failures = 100
		tr := newTestTransport(t, fedhttp.Config{Base: roundTripFunc(waiting), Peers: []fedhttp.Peer{p}, Anchors: risingAnchors(), Logger: quietLogger})
		var group sync.WaitGroup
		group.Go(func() {
			req, err := http.NewRequest(http.MethodGet, stubURL, nil)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set("X-Wait", "1")
			resp, err := tr.RoundTrip(req)
			if d, _ := decisionOf(t, resp, err); d.Attempts != 5 {
				t.Errorf("the call in flight was sent %d times, want 5 as when it began", d.Attempts)
			}
		})
		synctest.Wait()
		if s := tr.Status()[0]; s.InFlight != 1 {
			t.Errorf("%d in flight, want 1", s.InFlight)
		}
		version := tr.Status()[0].AnchorVersion
		p.Retry.MaxAttempts = 1
		if err := tr.SetPeers([]fedhttp.Peer{p}); err != nil {
			t.Fatal(err)
		}
		if got := tr.Status()[0].AnchorVersion; got != version || got == "" {
			t.Errorf("the anchor was %q and is %q", version, got)
		}
		if d, _ := get(t, tr, fedhttp.Task{}); d.Attempts != 1 {
			t.Errorf("a new call was sent %d times, want once", d.Attempts)
		}
		close(release)
		group.Wait()
	})
}

func TestSetPeersKeepsState(t *testing.T) {
	t.Parallel()
	p := testPeer("b", stubURL)
	p.Breaker.Failures = 1
	tr := newTestTransport(t, fedhttp.Config{Base: answering(denied(), response(403)), Peers: []fedhttp.Peer{p}, Logger: quietLogger})
	_, _ = get(t, tr, *plainTask)
	tr.SetDegraded("b", true)
	p.Retry.MaxAttempts = 2
	if err := tr.SetPeers([]fedhttp.Peer{p}); err != nil {
		t.Fatal(err)
	}
	if s := tr.Status()[0]; s.Denials != 1 || !s.Degraded || s.Breaker != "closed" {
		t.Errorf("after SetPeers the status is %+v", s)
	}
	if _, err := get(t, tr, *plainTask); !errors.Is(err, fedhttp.ErrScopeDenied) {
		t.Errorf("the denial is gone: %v", err)
	}
	_, _ = get(t, tr, fedhttp.Task{})
	if err := tr.SetPeers([]fedhttp.Peer{p}); err != nil {
		t.Fatal(err)
	}
	if s := tr.Status()[0]; s.Breaker != "open" {
		t.Errorf("the breaker is %s, want open as before", s.Breaker)
	}
	var e *fedhttp.Error
	if _, err := get(t, tr, fedhttp.Task{}); !errors.As(err, &e) || e.Decision.RetryAt.Before(time.Now()) {
		t.Errorf("%v does not say when the next trial is", err)
	}
	tr.SetDegraded("b", false)
	tr.SetDegraded("nobody", true)
	if s := tr.Status()[0]; !s.Degraded {
		t.Error("a peer whose breaker is open is not degraded")
	}
}

func TestPassUnlisted(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	var got recorder[*http.Request]
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		got.add(r)
		return answering(denied())(r)
	})
	tr := newTestTransport(t, fedhttp.Config{Base: base, Unlisted: fedhttp.PassUnlisted, Peers: []fedhttp.Peer{testPeer("b", stubURL)}})
	req, err := http.NewRequest(http.MethodGet, "https://elsewhere.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(fedtest.HeaderPolicyDigest, "mine")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if seen := got.snapshot(); len(seen) != 1 || seen[0] != req || req.Header.Get(fedtest.HeaderPolicyDigest) != "mine" {
		t.Error("the request was not passed as it is")
	}
	if d, ok := fedhttp.DecisionFromResponse(resp); ok {
		t.Errorf("it was decided on: %+v", d)
	}
	if d, _ := get(t, tr, fedhttp.Task{}); d.Outcome != fedhttp.OutcomeRejected {
		t.Errorf("a listed peer: %v, want rejected", d.Outcome)
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.RoundTrip(req); !errors.Is(err, fedhttp.ErrClosed) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

// TestPassUnlistedIsNoDodge: a spelling that net/http would send to a peer is
// never passed as unlisted, past the peer's preflight.
func TestPassUnlistedIsNoDodge(t *testing.T) {
	t.Parallel()
	var sent recorder[string]
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		sent.add(r.URL.Host)
		return answering(response(200))(r)
	})
	p := fedhttp.Peer{ID: "b", Origins: []string{stubURL, "https://xn--bcher-kva.example"}, RequireTask: true}
	tr := newTestTransport(t, fedhttp.Config{Base: base, Unlisted: fedhttp.PassUnlisted, Peers: []fedhttp.Peer{p}})
	for _, host := range []string{"B.Example", "b.example.", "b.example:443", "b.example:0443", "b.example:", "ｂ.example", "bücher.example", "BÜCHER.example"} {
		req, err := http.NewRequest(http.MethodGet, stubURL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Host = host
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
			t.Errorf("host %q was sent, past the peer's RequireTask", host)
		}
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
			<-release
			return answering(response(200))(r)
		})
		tr := newTestTransport(t, fedhttp.Config{Base: base, Peers: []fedhttp.Peer{testPeer("b", stubURL)}, Logger: quietLogger})
		var group sync.WaitGroup
		group.Go(func() {
			if d, err := get(t, tr, fedhttp.Task{}); err != nil || d.Outcome != fedhttp.OutcomeDelivered {
				t.Errorf("the call in flight: %v, %v; want it delivered", d.Outcome, err)
			}
		})
		for range 3 {
			group.Go(func() {
				if d, err := get(t, tr, *heldTask); !errors.Is(err, fedhttp.ErrClosed) || !errors.Is(err, fedhttp.ErrPolicyUnresolved) || d.Reason != fedhttp.ReasonClosed {
					t.Errorf("a held task: %v, %v; want ErrClosed", d.Reason, err)
				}
			})
		}
		synctest.Wait()
		if s := tr.Status()[0]; s.Held != 3 || s.InFlight != 1 {
			t.Errorf("%d held and %d in flight, want 3 and 1", s.Held, s.InFlight)
		}
		if err := errors.Join(tr.Close(), tr.Close()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if s := tr.Status()[0]; s.Held != 0 {
			t.Errorf("%d are held after Close", s.Held)
		}
		if _, err := get(t, tr, fedhttp.Task{}); !errors.Is(err, fedhttp.ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
		close(release)
		group.Wait()
		if err := tr.MaintainAnchors(context.Background()); err == nil {
			t.Error("a closed Transport maintains anchors")
		}
	})
}

// TestResponseIsUntouched: a response that was obtained is the base's, header
// and body.
func TestResponseIsUntouched(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
	t.Cleanup(peer.Close)
	big := strings.Repeat("problem ", 100_000)
	header := http.Header{"X-Federation-Policy-Evaluated": {"true"}, "Content-Type": {"application/problem+json"}, "X-A": {"1", "2"}, "Content-Length": {strconv.Itoa(len(big))}}
	peer.Otherwise(fedtest.Raw(403, header, big))
	p := testPeer("b", peer.URL)
	p.Signals.ReadProblemDetail, p.Denial.HoldOff = true, -1
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{p}})
	req, err := http.NewRequest(http.MethodGet, peer.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil || string(body) != big {
		t.Errorf("%d bytes of body, %v; want %d", len(body), err, len(big))
	}
	if got := resp.Header["X-A"]; len(got) != 2 || resp.StatusCode != 403 || resp.ContentLength != int64(len(big)) {
		t.Errorf("the response is %v %v, length %d", resp.StatusCode, resp.Header, resp.ContentLength)
	}
}
