package fedspiffe_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedspiffe"
	"github.com/fedhttp/fedhttp/fedtest"
)

var noContent = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })

func serverTLS(w x509svid.Source) *tls.Config { return tlsconfig.TLSServerConfig(w) }

// newB returns an authority of B, and a Source that has fetched it.
func newB(t *testing.T, identity x509svid.Source) (*ca, *publisher, *fedspiffe.Source) {
	t.Helper()
	c := newCA(t, domainB)
	p := newPublisher(t, bundleOf(1, c))
	e, _ := webEndpoint(t, p)
	s := newSource(t, e, identity)
	fetch(t, s, "org-b")
	return c, p, s
}

// TestStaleBundle is the handshake that a rotation breaks: what kind of error it
// is, and that the next fetch mends it for the same transport. A clone with roots,
// which fedhttp uses, behaves alike.
func TestStaleBundle(t *testing.T) {
	fedtest.CheckLeaks(t)
	t.Parallel()
	old, p, s := newB(t, nil)
	next := newCA(t, domainB)
	w := newWorkload(old.issue(t, registry))
	server := serve(t, serverTLS(w), true, noContent)
	own := baseOf(t, s, "org-b")
	clone := own.Clone()
	clone.TLSClientConfig.RootCAs = x509.NewCertPool() // the roots of no anchor: go-spiffe's are what counts
	t.Cleanup(clone.CloseIdleConnections)
	bases := map[string]*http.Transport{"the base": own, "a clone": clone}
	for name, base := range bases {
		resp, err := get(t, base, server.URL)
		if err != nil {
			t.Fatalf("%s: before the rotation: %v", name, err)
		}
		if resp.ProtoMajor != 2 {
			t.Errorf("%s: HTTP/%d, want HTTP/2", name, resp.ProtoMajor)
		}
	}
	w.svid.Store(next.issue(t, registry))
	p.bundle.Store(bundleOf(2, next))
	for name, base := range bases {
		_, err := get(t, base, server.URL)
		var standard *tls.CertificateVerificationError
		if !isUnknownAuthority(err) || errors.As(err, &standard) || errors.Is(err, fedhttp.ErrPeerUntrusted) {
			t.Errorf("%s: after the rotation: %v (%T), want an x509.UnknownAuthorityError, no tls.CertificateVerificationError, and no ErrPeerUntrusted", name, err, err)
		}
	}
	fetch(t, s, "org-b")
	for name, base := range bases {
		if _, err := get(t, base, server.URL); err != nil {
			t.Errorf("%s: after the next fetch: %v", name, err)
		}
	}
}

// TestBeforeTheFirstFetch: without a bundle nobody is trusted.
func TestBeforeTheFirstFetch(t *testing.T) {
	t.Parallel()
	c := newCA(t, domainB)
	e, _ := webEndpoint(t, newPublisher(t, bundleOf(1, c)))
	s := newSource(t, e, nil)
	server := serve(t, serverTLS(newWorkload(c.issue(t, registry))), true, noContent)
	_, err := get(t, baseOf(t, s, "org-b"), server.URL)
	if err == nil || !strings.Contains(err.Error(), `no bundle of trust domain "b.example" has been fetched yet`) || errors.Is(err, fedhttp.ErrPeerUntrusted) {
		t.Errorf("a handshake without a bundle: %v", err)
	}
	fetch(t, s, "org-b")
	if _, err := get(t, baseOf(t, s, "org-b"), server.URL); err != nil {
		t.Errorf("with one: %v", err)
	}
}

// TestServers has servers with one identity each, and what a peer that lists one
// ID, and one that accepts the whole trust domain, make of them.
func TestServers(t *testing.T) {
	t.Parallel()
	b, a := newCA(t, domainB), newCA(t, domainA)
	forB, _ := webEndpoint(t, newPublisher(t, bundleOf(1, b)))
	forA, _ := webEndpoint(t, newPublisher(t, bundleOf(1, a)))
	list := []spiffeid.ID{bundler, registry}
	s, err := fedspiffe.New(fedspiffe.Config{Peers: map[string]fedspiffe.Peer{
		"listed": {TrustDomain: domainB, Servers: list, Endpoint: forB},
		"any":    {TrustDomain: domainB, AnyServer: true, Endpoint: forB},
		"org-a":  {TrustDomain: domainA, AnyServer: true, Endpoint: forA}, // so that A's authorities are at hand, too
	}})
	if err != nil {
		t.Fatal(err)
	}
	list[0] = impostor // which is too late to count
	for _, id := range []string{"listed", "any", "org-a"} {
		fetch(t, s, id)
	}
	const accepted, refused, unproven = "", "the peer's identity is not accepted", "x509svid"
	for name, tt := range map[string]struct {
		by          *ca
		id          spiffeid.ID
		listed, any string
	}{
		"listed":                     {b, registry, accepted, accepted},
		"listed first":               {b, bundler, accepted, accepted},
		"not listed":                 {b, impostor, refused, accepted},
		"below a listed one":         {b, spiffeid.RequireFromString("spiffe://b.example/registry/x"), refused, accepted},
		"no workload":                {b, domainB.ID(), refused, refused},
		"another domain":             {a, client, refused, refused},
		"another domain's by our CA": {b, client, refused, refused},
		"no ID":                      {b, spiffeid.ID{}, refused, refused},
		"listed, by another's CA":    {a, registry, unproven, unproven},
		"not listed, by another's":   {a, impostor, unproven, unproven},
	} {
		server := serve(t, serverTLS(newWorkload(tt.by.issue(t, tt.id))), false, noContent)
		for peer, want := range map[string]string{"listed": tt.listed, "any": tt.any} {
			_, err := get(t, baseOf(t, s, peer), server.URL)
			switch {
			case want == accepted && err != nil, want != accepted && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%s, where the peer is %q: %v, want %q", name, peer, err, want)
			case errors.Is(err, fedhttp.ErrPeerUntrusted) != (want == refused):
				t.Errorf("%s, where the peer is %q: %v is ErrPeerUntrusted: %v", name, peer, err, want != refused)
			}
		}
	}
}

// TestResumption: crypto/tls does not call VerifyPeerCertificate when it resumes a
// session, and whoever clones the base can give it a session cache. A server whose
// authority has left the bundle must not get in on its ticket.
func TestResumption(t *testing.T) {
	t.Parallel()
	for name, version := range map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, p, s := newB(t, nil)
			base := baseOf(t, s, "org-b")
			if base.TLSClientConfig.ClientSessionCache != nil {
				t.Error("the base has a session cache")
			}
			base = base.Clone()
			t.Cleanup(base.CloseIdleConnections)
			base.TLSClientConfig.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			config := serverTLS(newWorkload(old.issue(t, registry)))
			config.MaxVersion = version
			server := serve(t, config, false, noContent)
			for _, resumed := range []bool{false, true} {
				resp, err := get(t, base, server.URL)
				if err != nil {
					t.Fatal(err)
				}
				if resp.TLS.DidResume != resumed {
					t.Fatalf("the session was resumed: %v, want %v: this test shows nothing", resp.TLS.DidResume, resumed)
				}
			}
			p.bundle.Store(bundleOf(2, newCA(t, domainB)))
			fetch(t, s, "org-b")
			if _, err := get(t, base, server.URL); !isUnknownAuthority(err) {
				t.Errorf("a session of an authority that has left the bundle: %v, want it refused", err)
			}
		})
	}
}

// serveB starts a server of B that wants a client certificate of the authority.
// seen fails the test unless these, in this order, are what it was shown.
func serveB(t *testing.T, b, clients *ca) (s *server, seen func(...*x509svid.SVID)) {
	t.Helper()
	var mu sync.Mutex
	var shown []*x509.Certificate
	s = serve(t, tlsconfig.MTLSServerConfig(newWorkload(b.issue(t, registry)),
		x509bundle.FromX509Authorities(domainA, []*x509.Certificate{clients.cert}), tlsconfig.AuthorizeID(client)), true,
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			shown = append(shown, r.TLS.PeerCertificates[0])
		}))
	return s, func(want ...*x509svid.SVID) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if len(shown) != len(want) {
			t.Fatalf("the server was shown %d certificates, want %d", len(shown), len(want))
		}
		for i, svid := range want {
			if !shown[i].Equal(svid.Certificates[0]) {
				t.Errorf("request %d was shown certificate %v, want %v", i, shown[i].SerialNumber, svid.Certificates[0].SerialNumber)
			}
		}
	}
}

// TestIdentity: the server sees our SVID, and after a rotation the new one on
// the next connection.
func TestIdentity(t *testing.T) {
	t.Parallel()
	a := newCA(t, domainA)
	first, second := a.issue(t, client), a.issue(t, client)
	ours := newWorkload(first)
	b, _, s := newB(t, ours)
	server, seen := serveB(t, b, a)
	base := baseOf(t, s, "org-b")
	for _, last := range []bool{false, true, true} { // the second is on the connection of the first
		if _, err := getOver(t, base, server.URL, last); err != nil {
			t.Fatal(err)
		}
		ours.svid.Store(second)
	}
	seen(first, first, second)
}

// identityFunc is an identity source.
type identityFunc func() (*x509svid.SVID, error)

func (f identityFunc) GetX509SVID() (*x509svid.SVID, error) { return f() }

// TestBrokenIdentity: an identity that is not there ends the handshake, and not
// the process.
func TestBrokenIdentity(t *testing.T) {
	t.Parallel()
	down := errors.New("the agent is down")
	for want, identity := range map[string]identityFunc{
		"the agent is down":    func() (*x509svid.SVID, error) { return nil, down },
		"returned no X":        func() (*x509svid.SVID, error) { return nil, nil },
		"returned no X.509":    func() (*x509svid.SVID, error) { return new(x509svid.SVID), nil },
		`panicked: "identity"`: func() (*x509svid.SVID, error) { panic("identity") },
	} {
		b, _, s := newB(t, identity)
		config := serverTLS(newWorkload(b.issue(t, registry)))
		config.ClientAuth = tls.RequestClientCert
		server := serve(t, config, false, noContent)
		_, err := get(t, baseOf(t, s, "org-b"), server.URL)
		if !errors.Is(err, fedhttp.ErrClientCertificate) || !strings.Contains(err.Error(), "Config.Identity") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want ErrClientCertificate and %s", err, want)
		}
		if errors.Is(err, down) != (want == down.Error()) {
			t.Errorf("%v is the source's error: %v", err, want != down.Error())
		}
	}
}

// TestNoIdentity: without one, a server that asks is shown nothing.
func TestNoIdentity(t *testing.T) {
	t.Parallel()
	b, _, s := newB(t, nil)
	config := serverTLS(newWorkload(b.issue(t, registry)))
	config.ClientAuth = tls.RequestClientCert
	server := serve(t, config, false, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if n := len(r.TLS.PeerCertificates); n != 0 {
			t.Errorf("the server was shown %d certificates", n)
		}
	}))
	if _, err := get(t, baseOf(t, s, "org-b"), server.URL); err != nil {
		t.Error(err)
	}
}

// TestServerSide: the Source is what a server of ours verifies B's clients with.
func TestServerSide(t *testing.T) {
	t.Parallel()
	b, _, s := newB(t, nil)
	a := newCA(t, domainA)
	server := serve(t, tlsconfig.MTLSServerConfig(newWorkload(a.issue(t, client)), s, tlsconfig.AuthorizeMemberOf(domainB)), false, noContent)
	for name, tt := range map[string]struct {
		svid *x509svid.SVID
		ok   bool
	}{"of B": {b.issue(t, registry), true}, "of another authority": {newCA(t, domainB).issue(t, registry), false}} {
		caller := &http.Transport{TLSClientConfig: tlsconfig.MTLSClientConfig(newWorkload(tt.svid),
			x509bundle.FromX509Authorities(domainA, []*x509.Certificate{a.cert}), tlsconfig.AuthorizeID(client))}
		if _, err := get(t, caller, server.URL); (err == nil) != tt.ok {
			t.Errorf("a client %s: %v", name, err)
		}
		caller.CloseIdleConnections()
	}
}
