package fedhttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// rotatingPeer is a registry that can change its certificate while it runs. It
// counts what reaches it.
type rotatingPeer struct {
	*httptest.Server
	cert atomic.Pointer[tls.Certificate]

	mu         sync.Mutex
	tasks      map[string]int // requests by path
	handshakes []tls.ConnectionState
	conns      map[net.Conn]http.ConnState
	changed    chan struct{} // closed, and made anew, at each change of conns
}

func newRotatingPeer(t *testing.T, ca *authority, http2 bool, change func(*tls.Config), handler http.Handler) *rotatingPeer {
	t.Helper()
	p := &rotatingPeer{tasks: make(map[string]int), conns: make(map[net.Conn]http.ConnState), changed: make(chan struct{})}
	p.rotate(ca)
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.tasks[r.URL.Path]++
		p.mu.Unlock()
		if handler != nil {
			handler.ServeHTTP(w, r)
		}
	}))
	p.EnableHTTP2 = http2
	p.Config.ErrorLog = quietLog
	p.Config.ConnState = func(c net.Conn, s http.ConnState) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.conns[c] = s
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.TLS = &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.cert.Load(), nil },
		VerifyConnection: func(s tls.ConnectionState) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.handshakes = append(p.handshakes, s)
			return nil
		},
	}
	if change != nil {
		change(p.TLS)
	}
	p.StartTLS()
	p.TLS.Certificates = nil // httptest's own
	t.Cleanup(p.Close)
	return p
}

func (p *rotatingPeer) rotate(ca *authority) {
	cert := ca.issue(time.Now().Add(time.Hour))
	p.cert.Store(&cert)
}

func (p *rotatingPeer) sent(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tasks[path]
}

func (p *rotatingPeer) handshook() []tls.ConnectionState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]tls.ConnectionState(nil), p.handshakes...)
}

// await waits until n connections are in the state.
func (p *rotatingPeer) await(t *testing.T, n int, state http.ConnState) {
	t.Helper()
	for limit := time.After(10 * time.Second); ; {
		p.mu.Lock()
		found, changed := 0, p.changed
		for _, s := range p.conns {
			if s == state {
				found++
			}
		}
		p.mu.Unlock()
		if found == n {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%d connections are %v, want %d", found, state, n)
		}
	}
}

// forget has the transport close its connections, which it does once it knows
// itself that they are idle.
func (p *rotatingPeer) forget(t *testing.T, tr *fedhttp.Transport) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		tr.CloseIdleConnections()
		p.mu.Lock()
		open := 0
		for _, s := range p.conns {
			if s != http.StateClosed {
				open++
			}
		}
		p.mu.Unlock()
		switch {
		case open == 0:
			return
		case time.Now().After(limit):
			t.Fatalf("%d connections are still open", open)
		}
	}
}

// anchorBox is a source whose anchors a test sets, for every peer by its ID.
type anchorBox struct {
	mu      sync.Mutex
	anchors map[string]fedhttp.Anchor
	fetches map[string]int
}

func (b *anchorBox) set(peer, version string, roots *x509.CertPool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.anchors == nil {
		b.anchors, b.fetches = make(map[string]fedhttp.Anchor), make(map[string]int)
	}
	b.anchors[peer] = fedhttp.Anchor{Version: version, Roots: roots}
}

func (b *anchorBox) fetched(peer string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fetches[peer]
}

func (b *anchorBox) FetchAnchor(_ context.Context, peer string) (fedhttp.Anchor, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fetches[peer]++
	return b.anchors[peer], nil
}

// rootsGet makes a call and reads its answer to the end.
func rootsGet(tr http.RoundTripper, url string) (fedhttp.Decision, error) {
	resp, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		var e *fedhttp.Error
		errors.As(err, &e)
		if e == nil {
			return fedhttp.Decision{}, err
		}
		return e.Decision, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	d, _ := fedhttp.DecisionFromResponse(resp)
	return d, err
}

// mustDeliver makes a call that is delivered after so many sends.
func mustDeliver(t *testing.T, tr http.RoundTripper, url string, attempts int) {
	t.Helper()
	if d, err := rootsGet(tr, url); err != nil || d.Outcome != fedhttp.OutcomeDelivered || d.Attempts != attempts {
		t.Fatalf("%s: %v (%v) after %d attempts, %v; want delivered after %d", url, d.Outcome, d.Reason, d.Attempts, err, attempts)
	}
}

func protocols(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	for _, http2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "HTTP1", true: "HTTP2"}[http2], func(t *testing.T) {
			t.Parallel()
			test(t, http2)
		})
	}
}

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

// TestClientCertificateRotates: each connection shows what the program has then,
// and none goes on under what it had before.
func TestClientCertificateRotates(t *testing.T) {
	t.Parallel()
	ca := newAuthority()
	peer := newRotatingPeer(t, ca, false, func(cfg *tls.Config) { cfg.ClientAuth = tls.RequestClientCert }, nil)
	var shown atomic.Pointer[tls.Certificate]
	tr := newTestTransport(t, fedhttp.Config{
		Peers: []fedhttp.Peer{testPeer("b", peer.URL)},
		Base: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
			RootCAs: ca.pool(), ClientSessionCache: tls.NewLRUClientSessionCache(0),
		}},
		ClientCertificate: func(peer string, _ *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if peer != "b" {
				t.Errorf("peer %q", peer)
			}
			return shown.Load(), nil
		},
	})
	mustDeliver(t, tr, peer.URL+"/none", 1)
	first, second := ca.issue(time.Now().Add(time.Minute)), ca.issue(time.Now().Add(time.Hour))
	for _, cert := range []*tls.Certificate{&first, &second} {
		shown.Store(cert)
		mustDeliver(t, tr, peer.URL+"/t", 1)
	}
	got := peer.handshook()
	if len(got) != 3 || len(got[0].PeerCertificates) != 0 {
		t.Fatalf("%d handshakes, the first with %d certificates; want 3 and none", len(got), len(got[0].PeerCertificates))
	}
	for i, want := range []*tls.Certificate{&first, &second} {
		if seen := got[i+1]; len(seen.PeerCertificates) != 1 || string(seen.PeerCertificates[0].Raw) != string(want.Certificate[0]) {
			t.Errorf("connection %d showed %d certificates, not the one at hand", i+1, len(seen.PeerCertificates))
		}
	}
}

// TestOwnSideRefuses: what our own side refuses in the handshake is no routing
// failure: it is not delivered, and not tried again.
func TestOwnSideRefuses(t *testing.T) {
	t.Parallel()
	ca := newAuthority()
	refuse := errors.New("the key store is locked")
	for name, c := range map[string]struct {
		change func(*fedhttp.Config, *tls.Config)
		reason fedhttp.Reason
		is     error
		says   string
	}{
		"the peer's identity": {
			change: func(_ *fedhttp.Config, cfg *tls.Config) {
				cfg.VerifyConnection = func(tls.ConnectionState) error {
					return fmt.Errorf("spiffe://c.example/registry: %w", fedhttp.ErrPeerUntrusted)
				}
			},
			reason: fedhttp.ReasonPeerUntrusted, is: fedhttp.ErrPeerUntrusted, says: "spiffe://c.example/registry",
		},
		"a certificate of ours": {
			change: func(cfg *fedhttp.Config, _ *tls.Config) {
				cfg.ClientCertificate = func(string, *tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, refuse }
			},
			reason: fedhttp.ReasonClientCertificate, is: refuse, says: "Config.ClientCertificate: the key store is locked",
		},
		"a panic for a certificate": {
			change: func(cfg *fedhttp.Config, _ *tls.Config) {
				cfg.ClientCertificate = func(string, *tls.CertificateRequestInfo) (*tls.Certificate, error) { panic("no keys") }
			},
			reason: fedhttp.ReasonClientCertificate, is: fedhttp.ErrClientCertificate, says: "panicked: no keys",
		},
	} {
		t.Run(name, func(t *testing.T) {
			protocols(t, func(t *testing.T, http2 bool) {
				peer := newRotatingPeer(t, ca, http2, func(cfg *tls.Config) { cfg.ClientAuth = tls.RequestClientCert }, nil)
				source := &anchorBox{}
				source.set("b", "1", nil)
				own := &tls.Config{RootCAs: ca.pool()}
				var dials atomic.Int32
				cfg := fedhttp.Config{Anchors: source, Base: &http.Transport{
					ForceAttemptHTTP2: true, TLSClientConfig: own,
					DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
						dials.Add(1)
						return new(net.Dialer).DialContext(ctx, network, addr)
					},
				}}
				c.change(&cfg, own)
				// One failure opens the breaker: it must not count as one.
				p := testPeer("b", peer.URL)
				p.Breaker.Failures = 1
				cfg.Peers = []fedhttp.Peer{p}
				tr := newTestTransport(t, cfg)
				for range 2 {
					d, err := rootsGet(tr, peer.URL+"/t")
					if !errors.Is(err, fedhttp.ErrPeerUnavailable) || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
						t.Error(err)
					}
					if d.Reason != c.reason || d.Delivery != fedhttp.DeliveryNotDelivered || d.Attempts != 1 || len(d.Evidence) != 0 {
						t.Errorf("%v, %v, %v after %d attempts", d.Reason, d.Delivery, d.Evidence, d.Attempts)
					}
				}
				if dials.Load() != 2 || source.fetched("b") != 1 || peer.sent("/t") != 0 {
					t.Errorf("%d dials, %d fetches, %d requests; want 2, 1, 0", dials.Load(), source.fetched("b"), peer.sent("/t"))
				}
			})
		})
	}
}

// TestClientCertificateNeedsABase: a base that cannot show it is a fault.
func TestClientCertificateNeedsABase(t *testing.T) {
	t.Parallel()
	_, err := fedhttp.NewTransport(fedhttp.Config{
		Peers:             []fedhttp.Peer{{ID: "b", Origins: []string{"https://b.example"}, Base: roundTripFunc(http.DefaultTransport.RoundTrip)}},
		ClientCertificate: func(string, *tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil },
	})
	if err == nil || !strings.Contains(err.Error(), `Peers[0] ("b"): Base: cannot show`) {
		t.Errorf("error %v", err)
	}
}
