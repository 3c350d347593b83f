package fedspiffe

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/fedhttp/fedhttp"
)

// Source holds the bundles of the peers' trust domains. It is a
// [fedhttp.AnchorSource], and the source of what go-spiffe verifies with:
// handed to tlsconfig.MTLSServerConfig, it lets a server of ours verify the
// peers' clients as well.
//
// It is safe for concurrent use, fetches only when it is asked to, and keeps no
// connection and, between fetches, no goroutine, so there is nothing to close.
type Source struct {
	peers   map[string]*peer
	domains map[spiffeid.TrustDomain]*domain
}

var (
	_ fedhttp.AnchorSource = (*Source)(nil)
	_ spiffebundle.Source  = (*Source)(nil)
	_ x509bundle.Source    = (*Source)(nil)
)

type peer struct {
	domain *domain
	base   *http.Transport
}

// domain is a trust domain: its bundle, and where that comes from.
type domain struct {
	name     spiffeid.TrustDomain
	url      string
	client   *http.Client  // nil: what it has is all that it will have
	fetching chan struct{} // held by the one fetch at a time
	newest   uint64        // the spiffe_sequence of current; by who holds fetching
	numbered bool          // there is one
	current  atomic.Pointer[spiffebundle.Bundle]

	mu   sync.Mutex
	next *flight // the fetch that has not begun yet; nil: nobody waits for one
}

// New makes a Source, which has fetched nothing yet. The error names every fault
// of cfg, each by its peer and field and with what is wanted.
func New(cfg Config) (*Source, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	s := &Source{peers: make(map[string]*peer), domains: make(map[spiffeid.TrustDomain]*domain)}
	template := cfg.template()
	for id, p := range cfg.Peers {
		d := s.domain(p.TrustDomain)
		if d.client == nil {
			d.url = p.Endpoint.URL
			d.client = newClient(template, s.endpointTLS(p.Endpoint))
		}
		s.peers[id] = &peer{domain: d, base: newBase(template, p, d, cfg.Identity)}
	}
	return s, nil
}

// domain returns the trust domain of that name, a new one where there is none.
func (s *Source) domain(name spiffeid.TrustDomain) *domain {
	d := s.domains[name]
	if d == nil {
		d = &domain{name: name, fetching: make(chan struct{}, 1)}
		s.domains[name] = d
	}
	return d
}

// seed gives the trust domain the bundle to begin with.
func (d *domain) seed(b *spiffebundle.Bundle) {
	d.newest, d.numbered = b.SequenceNumber()
	d.current.Store(b.Clone())
}

// FetchAnchor fetches the bundle of the peer's trust domain, and adopts it where
// it passes; see the package documentation. From then on handshakes are verified
// under it. The bundles of one trust domain are fetched one after the other, each
// for all who asked before it began. When ctx ends, the others still wait; a fetch
// that nobody waits for ends.
//
// The anchor's Version has the bundle's spiffe_sequence and a digest of its X.509
// authorities, which are its Roots; it expires when the last of those does. Its
// RefreshHint is spiffe_refresh_hint, but at least 5 s and at most 24 h, and 5
// minutes where there is none, as the specification recommends. IssuedAt is zero:
// bundles do not say. Certificates are nil: an anchor that another replica has
// fetched would not reach this Source, so each replica fetches its own.
//
// An error leaves everything as it was. A peer that is not in the Config is one.
func (s *Source) FetchAnchor(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	p := s.peers[peer]
	if p == nil {
		return fedhttp.Anchor{}, fmt.Errorf("fedspiffe: peer %q is not configured", peer)
	}
	a, err := p.domain.refresh(ctx)
	if err != nil {
		return fedhttp.Anchor{}, fmt.Errorf("fedspiffe: the bundle of trust domain %q: %w", p.domain.name.Name(), err)
	}
	return a, nil
}

// GetBundleForTrustDomain returns a copy of the bundle that is held for the trust
// domain: the one adopted last, else Endpoint.Bootstrap. It is an error where
// there is none. What was fetched can be kept across restarts by a caller that
// writes it down after each FetchAnchor, and is given as Bootstrap again.
func (s *Source) GetBundleForTrustDomain(name spiffeid.TrustDomain) (*spiffebundle.Bundle, error) {
	b, err := s.held(name)
	if err != nil {
		return nil, err
	}
	return b.Clone(), nil
}

// GetX509BundleForTrustDomain is GetBundleForTrustDomain, with the X.509
// authorities only.
func (s *Source) GetX509BundleForTrustDomain(name spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	b, err := s.held(name)
	if err != nil {
		return nil, err
	}
	return b.X509Bundle(), nil
}

func (s *Source) held(name spiffeid.TrustDomain) (*spiffebundle.Bundle, error) {
	d := s.domains[name]
	if d == nil {
		return nil, fmt.Errorf("fedspiffe: trust domain %.256q is not configured", name.Name())
	}
	return d.held()
}

func (d *domain) held() (*spiffebundle.Bundle, error) {
	b := d.current.Load()
	if b == nil {
		return nil, fmt.Errorf("fedspiffe: no bundle of trust domain %q has been fetched yet", d.name.Name())
	}
	return b, nil
}
