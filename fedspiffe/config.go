package fedspiffe

import (
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
)

// Config configures a [Source].
type Config struct {
	// Peers are the peers by the ID that they have as a fedhttp.Peer. At least one.
	// Those of one trust domain share its bundle, and so name the same Endpoint.
	Peers map[string]Peer
	// Identity gives the X.509-SVID that is shown to a peer that asks for a client
	// certificate, such as a *workloadapi.X509Source. It is asked at each
	// handshake, by several goroutines at once; where it has none, the call ends with
	// fedhttp.ErrClientCertificate. Nil: none is shown. Bundle endpoints never see
	// it; the specification forbids them to ask. A fedhttp.Config.ClientCertificate
	// takes its place.
	Identity x509svid.Source
	// Base says how connections to peers and to bundle endpoints are made: its
	// dialer, proxy and limits are used, its TLSClientConfig is not. It must not
	// have a DialTLS or DialTLSContext of its own. Nil: http.DefaultTransport.
	Base *http.Transport
}

// Peer is one peer of a [Config].
type Peer struct {
	// TrustDomain is the one that the peer's servers belong to. Required.
	TrustDomain spiffeid.TrustDomain
	// Servers are the SPIFFE IDs that the peer's servers may have, exactly as they
	// are written. At least one, unless AnyServer.
	Servers []spiffeid.ID
	// AnyServer accepts every workload of the trust domain, in place of Servers.
	AnyServer bool
	// Endpoint is where the bundle of the trust domain is published.
	Endpoint Endpoint
}

// Endpoint is a SPIFFE bundle endpoint. Its parameters come from the peer's
// operators by a way that can be trusted: who can change them can be the peer.
type Endpoint struct {
	// URL is an https URL without userinfo. Required.
	URL string
	// Profile is how the endpoint is authenticated. Required: it cannot be told
	// from the URL.
	Profile Profile
	// Roots verify an endpoint of the HTTPSWeb profile. Nil: the system's.
	Roots *x509.CertPool
	// ID is the SPIFFE ID of an endpoint of the HTTPSSPIFFE profile, which requires
	// it.
	ID spiffeid.ID
	// Bootstrap is the bundle of the trust domain of ID, to begin with. HTTPSSPIFFE
	// requires it, unless that is the trust domain of another peer. Once a bundle
	// of that trust domain was fetched, that one verifies the endpoint. A process
	// that starts long after begins with this one again: what
	// [Source.GetBundleForTrustDomain] returns is what to keep for it.
	Bootstrap *spiffebundle.Bundle
}

// Profile is how a bundle endpoint is authenticated. It is a closed set, and has
// no default.
type Profile string

// The profiles of the SPIFFE Federation specification.
const (
	// HTTPSWeb authenticates the endpoint by its host name, as a browser does.
	HTTPSWeb Profile = "https_web"
	// HTTPSSPIFFE authenticates the endpoint by its SPIFFE ID.
	HTTPSSPIFFE Profile = "https_spiffe"
)

// faults collects what is wrong with a Config, so that one error has all of it.
type faults []string

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("fedspiffe: %d fault(s) in the configuration:\n%s", len(f), strings.Join(f, "\n"))
}

// template is what all connections are made like.
func (c *Config) template() *http.Transport {
	if c.Base != nil {
		return c.Base
	}
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		return t
	}
	return &http.Transport{Proxy: http.ProxyFromEnvironment}
}

// check returns everything that is wrong with the Config, in the order of the
// peers' IDs.
func (c *Config) check() error {
	var found faults
	if len(c.Peers) == 0 {
		found.add("Peers: want at least one")
	}
	//nolint:staticcheck // DialTLS is deprecated, and in use
	if t := c.template(); t.DialTLS != nil || t.DialTLSContext != nil {
		name := "Base: has"
		if c.Base == nil {
			name = "Base: is missing, and http.DefaultTransport has"
		}
		found.add("%s a DialTLS or DialTLSContext, which would take the place of the verification; set DialContext", name)
	}
	ids := slices.Sorted(maps.Keys(c.Peers))
	first := make(map[spiffeid.TrustDomain]string) // the peer of each trust domain
	for _, id := range slices.Backward(ids) {
		first[c.Peers[id].TrustDomain] = id
	}
	given := make(map[spiffeid.TrustDomain]string) // the peer with its bundle
	for _, id := range ids {
		p := c.Peers[id]
		fault := func(field, format string, args ...any) {
			found.add("Peers[%q]: %s: %s", id, field, fmt.Sprintf(format, args...))
		}
		if id == "" {
			fault("the key", "is empty; want the ID of a fedhttp.Peer")
		}
		if p.TrustDomain.IsZero() {
			fault("TrustDomain", "is missing; want the one of the peer's servers")
		} else if other := first[p.TrustDomain]; !p.Endpoint.equal(c.Peers[other].Endpoint) {
			fault("Endpoint", "differs from that of Peers[%q], which has the same trust domain; want one endpoint for both", other)
		}
		p.checkServers(fault)
		p.Endpoint.check(fault)
		b := p.Endpoint.Bootstrap
		if b == nil {
			if !p.Endpoint.ID.IsZero() && !c.begins(p.Endpoint, first) {
				fault("Endpoint.Bootstrap", "is missing; want the current bundle of trust domain %q, obtained from its operators", p.Endpoint.ID.TrustDomain().Name())
			}
			continue
		}
		if other, ok := given[b.TrustDomain()]; !ok {
			given[b.TrustDomain()] = id
		} else if !b.Equal(c.Peers[other].Endpoint.Bootstrap) {
			fault("Endpoint.Bootstrap", "differs from that of Peers[%q], which is of the same trust domain; want the same for both", other)
		}
	}
	return found.err()
}

// begins reports whether there is something to authenticate the endpoint with: a
// Bootstrap, or a bundle that another endpoint is the source of, for which the
// same holds.
func (c *Config) begins(e Endpoint, first map[spiffeid.TrustDomain]string) bool {
	for range c.Peers { // a longer chain goes round
		if e.Profile != HTTPSSPIFFE || e.Bootstrap != nil {
			return true
		}
		next, ok := first[e.ID.TrustDomain()]
		if !ok {
			return false
		}
		e = c.Peers[next].Endpoint
	}
	return false
}

func (p *Peer) checkServers(fault func(field, format string, args ...any)) {
	switch {
	case p.AnyServer && len(p.Servers) > 0:
		fault("AnyServer", "is set, and so is Servers; want one of them")
	case !p.AnyServer && len(p.Servers) == 0:
		fault("Servers", "is empty, so nobody would be accepted; list SPIFFE IDs, or set AnyServer")
	}
	for i, id := range p.Servers {
		switch {
		case id.Path() == "":
			fault(fmt.Sprintf("Servers[%d]", i), "%q is no SPIFFE ID of a workload; want one with a path", id)
		case !p.TrustDomain.IsZero() && !id.MemberOf(p.TrustDomain):
			fault(fmt.Sprintf("Servers[%d]", i), "%q is not of trust domain %q; correct one of them", id, p.TrustDomain.Name())
		}
	}
}

func (e *Endpoint) check(fault func(field, format string, args ...any)) {
	switch u, err := url.Parse(e.URL); {
	case e.URL == "":
		fault("Endpoint.URL", "is missing; want an https URL")
	case err != nil:
		fault("Endpoint.URL", "does not parse; want an https URL")
	case u.User != nil:
		fault("Endpoint.URL", "has userinfo, which the specification forbids; remove it")
	case u.Scheme != "https" || u.Hostname() == "":
		fault("Endpoint.URL", "has scheme %q and host %q; want an https URL", u.Scheme, u.Hostname())
	}
	switch e.Profile {
	case HTTPSWeb:
		if !e.ID.IsZero() || e.Bootstrap != nil {
			fault("Endpoint", "has an ID or a Bootstrap, which %s does not use; want %s or neither of them", HTTPSWeb, HTTPSSPIFFE)
		}
	case HTTPSSPIFFE:
		if e.Roots != nil {
			fault("Endpoint.Roots", "are set, which %s does not use; want %s or no Roots", HTTPSSPIFFE, HTTPSWeb)
		}
		e.checkIdentity(fault)
	default:
		fault("Endpoint.Profile", "%q is no profile; want %s or %s, as the peer's operators say", string(e.Profile), HTTPSWeb, HTTPSSPIFFE)
	}
}

func (e *Endpoint) checkIdentity(fault func(field, format string, args ...any)) {
	switch b := e.Bootstrap; {
	case e.ID.Path() == "":
		fault("Endpoint.ID", "%q is no SPIFFE ID of a workload; want that of the bundle endpoint", e.ID)
	case b == nil: // required or not, which depends on the other peers
	case b.TrustDomain() != e.ID.TrustDomain():
		fault("Endpoint.Bootstrap", "is the bundle of trust domain %q; want that of %q, which Endpoint.ID has", b.TrustDomain().Name(), e.ID.TrustDomain().Name())
	case len(b.X509Authorities()) == 0:
		fault("Endpoint.Bootstrap", "has no X.509 authority; want the current bundle of trust domain %q", b.TrustDomain().Name())
	}
}

// equal reports whether both are the same endpoint, authenticated alike.
func (e Endpoint) equal(o Endpoint) bool {
	return e.URL == o.URL && e.Profile == o.Profile && e.ID == o.ID && e.Bootstrap.Equal(o.Bootstrap) &&
		(e.Roots == o.Roots || e.Roots != nil && o.Roots != nil && e.Roots.Equal(o.Roots))
}
