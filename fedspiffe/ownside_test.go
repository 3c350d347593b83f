package fedspiffe_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/fedhttp/fedhttp"
)

// impostor is a workload of B that is not the registry.
var impostor = spiffeid.RequireFromString("spiffe://b.example/other")

// checkOurs fails the test unless the call ended because our own side refused, for
// that reason, in its handshake.
func checkOurs(t *testing.T, d fedhttp.Decision, err, want error, reason fedhttp.Reason, attempts, refreshes int) {
	t.Helper()
	if !errors.Is(err, want) || !errors.Is(err, fedhttp.ErrPeerUnavailable) {
		t.Errorf("the error is %v, want %v and %v", err, want, fedhttp.ErrPeerUnavailable)
	}
	if d.Outcome != fedhttp.OutcomePeerUnavailable || d.Reason != reason || d.Delivery != fedhttp.DeliveryNotDelivered {
		t.Errorf("it ended as %s, %s, %s; want peer_unavailable, %s, not_delivered", d.Outcome, d.Reason, d.Delivery, reason)
	}
	if d.Attempts != attempts || d.Refreshes != refreshes {
		t.Errorf("%d attempts and %d refreshes, want %d and %d", d.Attempts, d.Refreshes, attempts, refreshes)
	}
}

// TestUntrustedServer: a server of B that B's authority vouches for, and that is
// not the registry. That is our own policy, so there is one handshake, nothing is
// delivered, fetched or sent again, and the breaker has no part in it.
func TestUntrustedServer(t *testing.T) {
	t.Parallel()
	overHTTP(t, func(t *testing.T, http2 bool) {
		f := newBoundary(t, http2)
		if _, err := f.send(t, "before", true); err != nil {
			t.Fatal(err)
		}
		f.theirs.svid.Store(f.b.issue(t, impostor))
		const calls = 15 // more than what opens the breaker
		begun := f.server.handshakes.Load()
		for i := range calls {
			d, err := f.send(t, fmt.Sprint("refused-", i), false)
			checkOurs(t, d, err, fedhttp.ErrPeerUntrusted, fedhttp.ReasonPeerUntrusted, 1, 0)
		}
		if n := f.server.handshakes.Load() - begun; n != calls {
			t.Errorf("%d handshakes for %d calls, want one for each", n, calls)
		}
		f.theirs.svid.Store(f.b.issue(t, registry))
		if _, err := f.send(t, "after", false); err != nil {
			t.Errorf("the registry itself: %v", err)
		}
		f.checkDelivered(t, "before", "after")
		if n := f.publisher.fetches.Load(); n != 1 {
			t.Errorf("the bundle was fetched %d times, want once", n)
		}
	})
}

// TestNoSVID: a certificate that is no X.509-SVID under any bundle is refused as an
// ID that is not listed is. One that is over may be renewed, and stays a failure of
// the routing.
func TestNoSVID(t *testing.T) {
	t.Parallel()
	web := &url.URL{Scheme: "https", Host: "b.example"}
	for name, tt := range map[string]struct {
		leaf x509.Certificate
		svid bool
	}{
		"no URI":    {x509.Certificate{DNSNames: []string{"b.example"}}, false},
		"two URIs":  {x509.Certificate{URIs: []*url.URL{registry.URL(), web}}, false},
		"no SPIFFE": {x509.Certificate{URIs: []*url.URL{web}}, false},
		"a CA":      {x509.Certificate{URIs: []*url.URL{registry.URL()}, IsCA: true, BasicConstraintsValid: true}, false},
		"over":      {x509.Certificate{URIs: []*url.URL{registry.URL()}, NotAfter: time.Now().Add(-time.Minute)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newBoundary(t, false)
			if _, err := f.send(t, "before", true); err != nil {
				t.Fatal(err)
			}
			key := newKey(t)
			tt.leaf.NotBefore = time.Now().Add(-time.Hour)
			if tt.leaf.NotAfter.IsZero() {
				tt.leaf.NotAfter = time.Now().Add(time.Hour)
			}
			f.theirs.svid.Store(&x509svid.SVID{Certificates: []*x509.Certificate{sign(t, &tt.leaf, f.b, &key.PublicKey)}, PrivateKey: key})
			begun, fetches := f.server.handshakes.Load(), f.publisher.fetches.Load()
			d, err := f.send(t, "refused", false)
			f.checkDelivered(t, "before")
			if tt.svid {
				if errors.Is(err, fedhttp.ErrPeerUntrusted) || d.Outcome != fedhttp.OutcomeRoutingFailed {
					t.Errorf("it ended as %s: %v; want routing_failed", d.Outcome, err)
				}
				return
			}
			checkOurs(t, d, err, fedhttp.ErrPeerUntrusted, fedhttp.ReasonPeerUntrusted, 1, 0)
			if n, m := f.server.handshakes.Load()-begun, f.publisher.fetches.Load()-fetches; n != 1 || m != 0 {
				t.Errorf("%d handshakes and %d fetches, want 1 and 0", n, m)
			}
		})
	}
}

// TestUntrustedAfterRotation: the first attempt cannot tell who the server is, and
// the fetch that it leads to shows that it is nobody whom we accept.
func TestUntrustedAfterRotation(t *testing.T) {
	t.Parallel()
	overHTTP(t, func(t *testing.T, http2 bool) {
		f := newBoundary(t, http2)
		if _, err := f.send(t, "before", true); err != nil {
			t.Fatal(err)
		}
		f.rotate(t)
		f.theirs.svid.Store(f.b.issue(t, impostor))
		d, err := f.send(t, "refused", false)
		checkOurs(t, d, err, fedhttp.ErrPeerUntrusted, fedhttp.ReasonPeerUntrusted, 2, 1)
		f.checkDelivered(t, "before")
		if n := f.publisher.fetches.Load(); n != 2 {
			t.Errorf("the bundle was fetched %d times, want twice", n)
		}
	})
}

// TestIdentityIsDown: a registry that asks who we are when the identity source has
// nothing. No fetch of B's bundle could mend that, and it is not B's fault.
func TestIdentityIsDown(t *testing.T) {
	t.Parallel()
	overHTTP(t, func(t *testing.T, http2 bool) {
		f := newBoundary(t, http2)
		svid := f.ours.svid.Swap(nil)
		const calls = 15 // more than what opens the breaker
		for i := range calls {
			d, err := f.send(t, fmt.Sprint("unsent-", i), false)
			refreshes := 0
			if i == 0 {
				refreshes = 1 // the anchor that it goes out under
			}
			checkOurs(t, d, err, fedhttp.ErrClientCertificate, fedhttp.ReasonClientCertificate, 1, refreshes)
		}
		f.ours.svid.Store(svid)
		if _, err := f.send(t, "after", false); err != nil {
			t.Errorf("when it is up again: %v", err)
		}
		f.checkDelivered(t, "after")
		if n := f.publisher.fetches.Load(); n != 1 {
			t.Errorf("the bundle was fetched %d times, want once", n)
		}
	})
}
