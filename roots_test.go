package fedhttp_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// TestRootsRotate: a peer whose authority was replaced fails its handshake, for
// everybody at once; one fetch repairs it, and each task is delivered once.
func TestRootsRotate(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, http2 bool) {
		before, after := newAuthority(), newAuthority()
		peer := newRotatingPeer(t, before, http2, nil, nil)
		source := &anchorBox{}
		source.set("b", "1", before.pool())
		tr := newTestTransport(t, fedhttp.Config{
			Peers: []fedhttp.Peer{testPeer("b", peer.URL)}, Anchors: source, Base: http.DefaultTransport,
		})
		mustDeliver(t, tr, peer.URL+"/first", 1)
		peer.forget(t, tr)
		peer.rotate(after)
		source.set("b", "2", after.pool())

		const calls = 50
		var wg sync.WaitGroup
		var recovered atomic.Int32
		for i := range calls {
			wg.Go(func() {
				d, err := rootsGet(tr, fmt.Sprintf("%s/%d", peer.URL, i))
				if err != nil || d.Outcome != fedhttp.OutcomeDelivered || d.AnchorVersion != "2" {
					t.Errorf("%v (%v) under anchor %q: %v", d.Outcome, d.Reason, d.AnchorVersion, err)
				}
				if d.Attempts == 2 {
					recovered.Add(1)
				}
			})
		}
		wg.Wait()
		for i := range calls {
			if n := peer.sent(fmt.Sprintf("/%d", i)); n != 1 {
				t.Errorf("task %d was delivered %d times", i, n)
			}
		}
		if n := source.fetched("b"); n != 2 {
			t.Errorf("%d fetches, want 2: one at first, one for all", n)
		}
		if recovered.Load() == 0 {
			t.Error("no call failed its handshake")
		}
	})
}

// TestRootsUnchanged: where the refresh brings no other roots, sending again
// would fail again, so nobody does.
func TestRootsUnchanged(t *testing.T) {
	t.Parallel()
	peer := newRotatingPeer(t, newAuthority(), false, nil, nil)
	source := &anchorBox{}
	source.set("b", "1", newAuthority().pool())
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{testPeer("b", peer.URL)}, Anchors: source})
	d, err := rootsGet(tr, peer.URL+"/t")
	var unknown x509.UnknownAuthorityError
	if !errors.Is(err, fedhttp.ErrRouting) || !errors.As(err, &unknown) {
		t.Errorf("error %v, want ErrRouting and an unknown authority", err)
	}
	if d.Reason != fedhttp.ReasonAnchorUnchanged || d.Delivery != fedhttp.DeliveryNotDelivered || d.Attempts != 1 || !d.Escalated {
		t.Errorf("%v, %v after %d attempts, escalated %v", d.Reason, d.Delivery, d.Attempts, d.Escalated)
	}
	if n := peer.sent("/t"); n != 0 {
		t.Errorf("%d requests", n)
	}
}

// TestRootsSameVersion: what counts is that the roots are others. A source that never
// changes its version repairs every call, those too that were sent while it was asked.
func TestRootsSameVersion(t *testing.T) {
	t.Parallel()
	before, after := newAuthority(), newAuthority()
	peer := newRotatingPeer(t, before, false, nil, nil)
	source := &anchorBox{}
	source.set("b", "ours", before.pool())
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{testPeer("b", peer.URL)}, Anchors: source})
	mustDeliver(t, tr, peer.URL+"/first", 1)
	peer.rotate(after)
	source.set("b", "ours", after.pool())
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if d, err := rootsGet(tr, fmt.Sprintf("%s/%d", peer.URL, i)); err != nil || d.Outcome != fedhttp.OutcomeDelivered {
				t.Errorf("%v (%v): %v", d.Outcome, d.Reason, err)
			}
		})
	}
	wg.Wait()
	if n := source.fetched("b"); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}

	// And a version that moves alone is no reason to fail once more.
	peer.rotate(newAuthority())
	source.set("b", "theirs", after.pool())
	for range 2 {
		if d, _ := rootsGet(tr, peer.URL+"/t"); d.Reason != fedhttp.ReasonAnchorUnchanged || d.Attempts != 1 {
			t.Errorf("%v after %d attempts", d.Reason, d.Attempts)
		}
	}
}

// TestRootsHoldACallback: a base that verifies by a callback of its own is held to
// the anchor's roots all the same, and what it refuses itself comes first.
func TestRootsHoldACallback(t *testing.T) {
	t.Parallel()
	ca := newAuthority()
	peer := newRotatingPeer(t, ca, false, nil, nil)
	for name, c := range map[string]struct {
		roots   *x509.CertPool
		refuses error
		reason  fedhttp.Reason
	}{
		"the right roots":       {ca.pool(), nil, fedhttp.ReasonNone},
		"others":                {newAuthority().pool(), nil, fedhttp.ReasonAnchorUnchanged},
		"others, refused first": {newAuthority().pool(), fedhttp.ErrPeerUntrusted, fedhttp.ReasonPeerUntrusted},
	} {
		source := &anchorBox{}
		source.set("b", "1", c.roots)
		tr := newTestTransport(t, fedhttp.Config{
			Peers: []fedhttp.Peer{testPeer("b", peer.URL)}, Anchors: source,
			Base: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
				InsecureSkipVerify: true, //nolint:gosec // it is what the test is about
				VerifyConnection:   func(tls.ConnectionState) error { return c.refuses },
			}},
		})
		if d, err := rootsGet(tr, peer.URL+"/t"); d.Reason != c.reason {
			t.Errorf("%s: %v, want %v: %v", name, d.Reason, c.reason, err)
		}
	}
}

// TestRootsAreOnePeers: the roots of one peer vouch for no other, and the roots
// of the base for none that has its own.
func TestRootsAreOnePeers(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(), newAuthority()
	b, c := newRotatingPeer(t, ca, false, nil, nil), newRotatingPeer(t, other, false, nil, nil)
	source := &anchorBox{}
	source.set("b", "1", ca.pool())
	source.set("c", "1", ca.pool()) // which is not whom c has its certificate from
	tr := newTestTransport(t, fedhttp.Config{
		Peers: []fedhttp.Peer{testPeer("b", b.URL), testPeer("c", c.URL)}, Anchors: source,
		Base: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: other.pool()}},
	})
	mustDeliver(t, tr, b.URL+"/t", 1)
	if d, err := rootsGet(tr, c.URL+"/t"); d.Delivery != fedhttp.DeliveryNotDelivered || c.sent("/t") != 0 {
		t.Errorf("%v, %d requests: %v", d.Delivery, c.sent("/t"), err)
	}
}

// TestRootsTakeOver: other roots are in force at once, over connections of their
// own. A call that is on its way ends where it began; what is idle is closed, and
// of the other peer nothing is.
func TestRootsTakeOver(t *testing.T) {
	t.Parallel()
	protocols(t, func(t *testing.T, http2 bool) {
		before, after := newAuthority(), newAuthority()
		arrived, release := make(chan struct{}), make(chan struct{})
		handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/slow":
				close(arrived)
				<-release
			case "/stale":
				outdated(w, r)
			}
		})
		b, c := newRotatingPeer(t, before, http2, nil, handler), newRotatingPeer(t, before, http2, nil, nil)
		both := before.pool()
		both.AddCert(after.cert)
		source := &anchorBox{}
		source.set("b", "1", before.pool())
		source.set("c", "1", before.pool())
		tr := newTestTransport(t, fedhttp.Config{
			Peers: []fedhttp.Peer{testPeer("b", b.URL), testPeer("c", c.URL)}, Anchors: source, Base: http.DefaultTransport,
		})
		slow := make(chan error, 1)
		go func() {
			d, err := rootsGet(tr, b.URL+"/slow")
			if err == nil {
				err = d.Err()
			}
			slow <- err
		}()
		<-arrived
		mustDeliver(t, tr, b.URL+"/idle", 1) // HTTP/1: on a second connection, which is idle then
		mustDeliver(t, tr, c.URL+"/idle", 1)
		old := map[bool]int{false: 2, true: 1}[http2]

		source.set("b", "2", both)
		mustDeliver(t, tr, b.URL+"/stale", 2)
		if n := len(b.handshook()); n != old+1 {
			t.Errorf("%d handshakes, want %d: the new roots have a connection of their own", n, old+1)
		}
		if !http2 {
			b.await(t, 1, http.StateClosed) // what was idle; the other one is in use
		}
		close(release)
		if err := <-slow; err != nil {
			t.Errorf("the call on its way: %v", err)
		}
		b.await(t, old, http.StateClosed) // all that was made under the old roots
		mustDeliver(t, tr, c.URL+"/again", 1)
		if n := len(c.handshook()); n != 1 {
			t.Errorf("%d handshakes of the other peer, want 1", n)
		}
	})
}

// TestRootsResume: TLS sessions are resumed under the roots that they were made
// under, and not under others.
func TestRootsResume(t *testing.T) {
	t.Parallel()
	ca := newAuthority()
	peer := newRotatingPeer(t, ca, false, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stale" {
			outdated(w, r)
		}
	}))
	source := &anchorBox{}
	source.set("b", "1", ca.pool())
	tr := newTestTransport(t, fedhttp.Config{
		Peers: []fedhttp.Peer{testPeer("b", peer.URL)}, Anchors: source,
		Base: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(0)},
		},
	})
	for range 2 {
		mustDeliver(t, tr, peer.URL+"/t", 1)
	}
	if got := peer.handshook(); len(got) != 2 || got[0].DidResume || !got[1].DidResume {
		t.Fatalf("%d handshakes; want two, the second resumed", len(got))
	}
	more := ca.pool()
	more.AddCert(newAuthority().cert)
	source.set("b", "2", more)
	mustDeliver(t, tr, peer.URL+"/stale", 2)
	if got := peer.handshook(); len(got) != 4 || !got[2].DidResume || got[3].DidResume {
		t.Error("a session that was made under other roots was resumed")
	}
}

// outdated answers that it was not delivered, as long as it is sent under the
// first anchor.
func outdated(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-Federation-Anchor-Version") == "1" {
		w.Header().Set("X-Federation-Policy-Evaluated", "false")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// TestRootsUnusable: a base that would not verify under the anchor's roots sends
// nothing.
func TestRootsUnusable(t *testing.T) {
	t.Parallel()
	ca := newAuthority()
	peer := newRotatingPeer(t, ca, false, nil, nil)
	skip := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // it is what the test is about
	for name, base := range map[string]http.RoundTripper{
		"another base":    roundTripFunc(http.DefaultTransport.RoundTrip),
		"DialTLSContext":  &http.Transport{DialTLSContext: (&tls.Dialer{Config: skip}).DialContext},
		"no verification": &http.Transport{TLSClientConfig: skip},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := &anchorBox{}
			source.set("b", "1", ca.pool())
			tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{testPeer("b", peer.URL)}, Anchors: source, Base: base})
			d, err := rootsGet(tr, peer.URL+"/t")
			if !errors.Is(err, fedhttp.ErrPeerUnavailable) || d.Reason != fedhttp.ReasonRootsUnusable || d.Attempts != 0 {
				t.Errorf("%v after %d attempts: %v", d.Reason, d.Attempts, err)
			}
		})
	}
	t.Cleanup(func() {
		if n := peer.sent("/t"); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}
