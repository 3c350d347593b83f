package fedhttp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A peer whose anchor has roots of its own, or to which the program shows a
// certificate, is reached over a generation of its base: a clone with TLS of its
// own, and so with connections and TLS sessions of its own. Another anchor's
// roots are another generation. Calls that are on their way over the one before
// end there.

// trustBase is the base of one peer, as its anchor has it.
type trustBase struct {
	base        http.RoundTripper
	own         *http.Transport // base, where it can be cloned
	peer        string
	certificate func(peer string, request *tls.CertificateRequestInfo) (*tls.Certificate, error)

	mu      sync.Mutex // serialises making a generation
	current atomic.Pointer[generation]
}

type generation struct {
	trust uint64 // the number of its roots among those that the peer has had
	base  *http.Transport
}

// idleLimit is how long a generation keeps connections that nobody uses, where
// its base says nothing: those that calls give back to an old one should end.
const idleLimit = 90 * time.Second

// wantClonable is what a base must be for TLS of its own.
const wantClonable = "want an *http.Transport that has no DialTLS, no DialTLSContext and does not skip verification"

// errRootsUnusable is why a base cannot verify under the roots of an anchor.
var errRootsUnusable = errors.New("the anchor has TLS roots, and the peer's base cannot verify under them; " + wantClonable)

// clonable reports whether the connections of a base are made, and verified, as
// its TLSClientConfig says.
func clonable(base http.RoundTripper) bool {
	t, ok := base.(*http.Transport)
	switch {
	case !ok:
		return false
	case t == nil: // the default one is used
		return true
	case t.DialTLSContext != nil, t.DialTLS != nil: //nolint:staticcheck // net/http still heeds it
		return false
	}
	cfg := t.TLSClientConfig
	return cfg == nil || !cfg.InsecureSkipVerify || cfg.VerifyPeerCertificate != nil || cfg.VerifyConnection != nil
}

// usable reports whether the base can send under the anchor.
func (b *trustBase) usable(a *keptAnchor) bool { return a.Roots == nil || clonable(b.base) }

// under returns what sends under the anchor, or under a later one. The anchor is
// usable.
func (b *trustBase) under(a *keptAnchor) http.RoundTripper {
	if a.trust == 0 && b.certificate == nil {
		return b.base
	}
	if g := b.current.Load(); g != nil && g.trust >= a.trust {
		return g.base
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.current.Load()
	if old != nil && old.trust >= a.trust {
		return old.base
	}
	g := &generation{a.trust, b.generation(a.Roots)}
	b.current.Store(g)
	if old != nil {
		old.base.CloseIdleConnections()
	}
	return g.base
}

// generation clones the base. Nil roots leave it its own.
func (b *trustBase) generation(roots *x509.CertPool) *http.Transport {
	t := b.own.Clone()
	if t.TLSNextProto["h2"] != nil {
		// An HTTP/2 that was configured from outside has its connections in one pool
		// for all clones, whatever they were verified under. net/http's own has not.
		t.TLSNextProto, t.ForceAttemptHTTP2 = nil, true
	}
	if t.IdleConnTimeout == 0 {
		t.IdleConnTimeout = idleLimit
	}
	cfg := t.TLSClientConfig
	if cfg == nil {
		cfg = &tls.Config{MinVersion: tls.VersionTLS12}
		t.TLSClientConfig = cfg
	}
	if roots != nil {
		cfg.RootCAs = roots
	}
	if b.certificate != nil {
		cfg.Certificates, cfg.GetClientCertificate = nil, b.clientCertificate
	}
	if cfg.ClientSessionCache != nil {
		// A session that was made under other roots is not resumed, nor one that
		// goes on under the certificate that we have shown at its beginning.
		cfg.ClientSessionCache = nil
		if b.certificate == nil {
			cfg.ClientSessionCache = tls.NewLRUClientSessionCache(0)
		}
	}
	return t
}

// closeIdle closes the idle connections of the generation, if there is one.
func (b *trustBase) closeIdle() {
	if g := b.current.Load(); g != nil {
		g.base.CloseIdleConnections()
	}
}

// clientCertificate asks the program for the certificate of a handshake.
func (b *trustBase) clientCertificate(request *tls.CertificateRequestInfo) (cert *tls.Certificate, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			cert, err = nil, fmt.Errorf("%w: Config.ClientCertificate panicked: %s", ErrClientCertificate, faultText(fault))
		}
	}()
	switch cert, err = b.certificate(b.peer, request); {
	case err != nil:
		return nil, fmt.Errorf("%w: Config.ClientCertificate: %w", ErrClientCertificate, err)
	case cert == nil:
		return &tls.Certificate{}, nil // none is shown
	}
	return cert, nil
}

// unknownAuthority reports whether a handshake failed because the roots at hand
// do not know who signed the peer's certificate, which only others can mend.
func unknownAuthority(err error) bool {
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &unknown)
}
