package fedspiffe_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/federation"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/fedhttp/fedhttp/fedspiffe"
)

var (
	domainA  = spiffeid.RequireTrustDomainFromString("a.example")
	domainB  = spiffeid.RequireTrustDomainFromString("b.example")
	client   = spiffeid.RequireFromString("spiffe://a.example/caller")
	registry = spiffeid.RequireFromString("spiffe://b.example/registry")
	bundler  = spiffeid.RequireFromString("spiffe://b.example/bundles")
)

// ca is an X.509 authority of a trust domain.
type ca struct {
	td   spiffeid.TrustDomain
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

var serial atomic.Int64

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// newCA returns an authority that is valid from an hour ago for a day.
func newCA(t testing.TB, td spiffeid.TrustDomain) *ca {
	t.Helper()
	return newCAFrom(t, td, -time.Hour, 24*time.Hour)
}

// newCAFrom returns one that is valid from and until then, as seen from now.
func newCAFrom(t testing.TB, td spiffeid.TrustDomain, from, until time.Duration) *ca {
	t.Helper()
	c := &ca{td: td, key: newKey(t)}
	c.cert = sign(t, &x509.Certificate{
		Subject:   pkix.Name{CommonName: td.Name()}, // the same in each: only the key tells them apart
		NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(until),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, URIs: []*url.URL{td.ID().URL()},
	}, c, &c.key.PublicKey)
	return c
}

// sign has the authority sign the template; its own, where it has no certificate yet.
func sign(t testing.TB, template *x509.Certificate, by *ca, public any) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(serial.Add(1))
	parent := by.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// issue returns a certificate with that SPIFFE ID, which need not be one that the
// authority should sign.
func (c *ca) issue(t testing.TB, id spiffeid.ID) *x509svid.SVID {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if !id.IsZero() {
		template.URIs = []*url.URL{id.URL()}
	}
	return &x509svid.SVID{ID: id, Certificates: []*x509.Certificate{sign(t, template, c, &key.PublicKey)}, PrivateKey: key}
}

// bundleOf returns the bundle of the first authority's trust domain.
func bundleOf(sequence uint64, cas ...*ca) *spiffebundle.Bundle {
	b := spiffebundle.New(cas[0].td)
	b.SetSequenceNumber(sequence)
	for _, c := range cas {
		b.AddX509Authority(c.cert)
	}
	return b
}

// workload is a source of X.509-SVIDs that change, as one that is connected to a
// Workload API.
type workload struct{ svid atomic.Pointer[x509svid.SVID] }

func newWorkload(svid *x509svid.SVID) *workload {
	w := new(workload)
	w.svid.Store(svid)
	return w
}

func (w *workload) GetX509SVID() (*x509svid.SVID, error) { return w.svid.Load(), nil }

// publisher is what a bundle endpoint publishes, by go-spiffe's own handler.
type publisher struct {
	handler http.Handler
	bundle  atomic.Pointer[spiffebundle.Bundle]
	fetches atomic.Int64
}

func newPublisher(t testing.TB, b *spiffebundle.Bundle) *publisher {
	t.Helper()
	p := new(publisher)
	p.bundle.Store(b)
	handler, err := federation.NewHandler(b.TrustDomain(), p)
	if err != nil {
		t.Fatal(err)
	}
	p.handler = handler
	return p
}

func (p *publisher) GetBundleForTrustDomain(td spiffeid.TrustDomain) (*spiffebundle.Bundle, error) {
	return p.bundle.Load().GetBundleForTrustDomain(td)
}

func (p *publisher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.fetches.Add(1)
	p.handler.ServeHTTP(w, r)
}

// webEndpoint serves h as a bundle endpoint of the https_web profile.
func webEndpoint(t testing.TB, h http.Handler) (fedspiffe.Endpoint, *httptest.Server) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return fedspiffe.Endpoint{URL: s.URL + "/bundle", Profile: fedspiffe.HTTPSWeb, Roots: roots}, s
}

// server is an HTTPS server with a certificate of its own making.
type server struct {
	URL        string
	handshakes atomic.Int64 // begun
	http       *http.Server
}

// serve starts a server that speaks HTTP/2 as well, if http2, else HTTP/1 only.
func serve(t testing.TB, config *tls.Config, http2 bool, h http.Handler) *server {
	t.Helper()
	s := new(server)
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		s.handshakes.Add(1)
		return nil, nil
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(http2)
	s.http = &http.Server{
		Handler: h, TLSConfig: config, Protocols: protocols, ErrorLog: log.New(io.Discard, "", 0),
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.URL = "https://" + listener.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.http.ServeTLS(listener, "", "")
	}()
	t.Cleanup(func() {
		s.http.Close()
		<-done
	})
	return s
}

// fetch fetches the peer's anchor, and fails the test where it cannot.
func fetch(t testing.TB, s *fedspiffe.Source, peer string) {
	t.Helper()
	if _, err := s.FetchAnchor(t.Context(), peer); err != nil {
		t.Fatalf("FetchAnchor: %v", err)
	}
}

// newSource returns a Source for the one peer "org-b", of which it accepts the
// registry.
func newSource(t testing.TB, e fedspiffe.Endpoint, identity x509svid.Source) *fedspiffe.Source {
	t.Helper()
	s, err := fedspiffe.New(fedspiffe.Config{Identity: identity, Peers: map[string]fedspiffe.Peer{
		"org-b": {TrustDomain: domainB, Servers: []spiffeid.ID{registry}, Endpoint: e},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// baseOf returns the peer's base, for one test's use.
func baseOf(t testing.TB, s *fedspiffe.Source, peer string) *http.Transport {
	t.Helper()
	base, err := s.Base(peer)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(base.CloseIdleConnections)
	return base
}

// get sends a GET over a connection of its own. (CloseIdleConnections would not do:
// on HTTP/2 it may find the last stream not quite over.)
func get(t testing.TB, base http.RoundTripper, url string) (*http.Response, error) {
	t.Helper()
	return getOver(t, base, url, true)
}

// getOver sends a GET, over a connection that the base has, if it has one, and
// that it can use again unless last.
func getOver(t testing.TB, base http.RoundTripper, url string, last bool) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = last
	resp, err := base.RoundTrip(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return resp, err
}

// authorities returns what a Source holds for domain B.
func authorities(t testing.TB, s *fedspiffe.Source) *x509bundle.Bundle {
	t.Helper()
	b, err := s.GetX509BundleForTrustDomain(domainB)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
