package fedhttp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

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
