package fedspiffe

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"

	"github.com/fedhttp/fedhttp"
)

// Base returns what the peer's Base is to be in its fedhttp.Peer: a transport
// that verifies the peer's servers under the bundle that the Source holds,
// accepts the SPIFFE IDs that the Config lists and no others, and shows our
// X.509-SVID. It speaks HTTP/2 where the peer does, unless Config.Base has
// Protocols without it.
//
// The same peer has the same Base each time, so that SetPeers keeps its
// connections. Its limits may be changed before it is used. Without a bundle no handshake succeeds. A peer that is not in the
// Config is an error.
func (s *Source) Base(peer string) (*http.Transport, error) {
	p := s.peers[peer]
	if p == nil {
		return nil, fmt.Errorf("fedspiffe: peer %q is not configured", peer)
	}
	return p.base, nil
}

func newBase(template *http.Transport, p Peer, d *domain, identity x509svid.Source) *http.Transport {
	servers := slices.Clone(p.Servers)
	v := &verifier{domain: d, refusal: fedhttp.ErrPeerUntrusted, accepts: func(id spiffeid.ID) bool {
		return p.AnyServer && id.Path() != "" || slices.Contains(servers, id)
	}}
	t := template.Clone()
	t.TLSClientConfig = v.config()
	if identity != nil {
		t.TLSClientConfig.GetClientCertificate = tlsconfig.GetClientCertificate(checkedIdentity{identity})
	}
	t.ForceAttemptHTTP2 = true // net/http gives it up where the TLS configuration is somebody's own
	return t
}

var errEndpointID = errors.New("the bundle endpoint is not the one of Endpoint.ID")

// endpointTLS returns the TLS configuration for a bundle endpoint.
func (s *Source) endpointTLS(e Endpoint) *tls.Config {
	if e.Profile == HTTPSWeb {
		return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: e.Roots}
	}
	d := s.domain(e.ID.TrustDomain())
	if e.Bootstrap != nil {
		d.seed(e.Bootstrap)
	}
	v := &verifier{domain: d, refusal: errEndpointID, accepts: func(id spiffeid.ID) bool { return id == e.ID }}
	return v.config()
}

// verifier verifies that a server has an X.509-SVID of the trust domain, and one
// that is accepted.
type verifier struct {
	domain  *domain
	accepts func(spiffeid.ID) bool
	refusal error // that an ID is not accepted
}

// config is tlsconfig.TLSClientConfig, but for one thing: that verifies in
// VerifyPeerCertificate, which crypto/tls does not call when a session is
// resumed. There is no session cache here, but whoever clones a transport can
// set one, and then a server would be trusted for as long as its tickets last,
// whatever became of the authority that it had.
//
// An X.509-SVID has no host name to verify, so InsecureSkipVerify turns off
// crypto/tls's own verification, as it does in go-spiffe.
func (v *verifier) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: v.verify}
}

func (v *verifier) verify(state tls.ConnectionState) error {
	bundle := &askedBundle{verifier: v}
	id, _, err := x509svid.Verify(state.PeerCertificates, bundle)
	switch {
	case err != nil && !bundle.asked:
		return fmt.Errorf("%w: the server has no X.509-SVID: %w", v.refusal, err)
	case err != nil:
		return err
	case !v.accepts(id):
		return fmt.Errorf("%w: the server has SPIFFE ID %.256q", v.refusal, id)
	}
	return nil
}

// askedBundle tells whether a verification came as far as the bundle. A certificate
// that it refuses before that is no X.509-SVID under any.
type askedBundle struct {
	*verifier
	asked bool
}

func (b *askedBundle) GetX509BundleForTrustDomain(name spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	b.asked = true
	return b.verifier.GetX509BundleForTrustDomain(name)
}

// GetX509BundleForTrustDomain is what go-spiffe asks for the bundle of the trust
// domain that a certificate claims. That of another one cannot be accepted,
// whatever it proves.
func (v *verifier) GetX509BundleForTrustDomain(name spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	if name != v.domain.name {
		return nil, fmt.Errorf("%w: the server is of trust domain %.256q, and not of %q", v.refusal, name.Name(), v.domain.name.Name())
	}
	b, err := v.domain.held()
	if err != nil {
		return nil, err
	}
	return b.X509Bundle(), nil
}

// checkedIdentity tells fedhttp that it is our own side that has nothing to show.
// It is asked on a goroutine of net/http, where nobody catches a panic: that of the
// source, and go-spiffe's at an SVID without certificates.
type checkedIdentity struct{ x509svid.Source }

func (c checkedIdentity) GetX509SVID() (svid *x509svid.SVID, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			svid, err = nil, fmt.Errorf("%w: Config.Identity panicked: %.256q", fedhttp.ErrClientCertificate, fmt.Sprint(fault))
		}
	}()
	svid, err = c.Source.GetX509SVID()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: Config.Identity: %w", fedhttp.ErrClientCertificate, err)
	case svid == nil || len(svid.Certificates) == 0:
		return nil, fmt.Errorf("%w: Config.Identity returned no X.509-SVID", fedhttp.ErrClientCertificate)
	}
	return svid, nil
}
