package fedhttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
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
	open  atomic.Int64 // connections
}

// retireTick is how often a generation that is over looks for connections that
// calls have given back to it.
const retireTick = time.Second

// retire closes the connections of a generation that is over, each once it is
// idle.
func (g *generation) retire() {
	g.base.CloseIdleConnections()
	if g.open.Load() > 0 {
		time.AfterFunc(retireTick, g.retire)
	}
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
	g := b.current.Load()
	switch {
	case g != nil && g.trust >= a.trust:
		return g.base
	case a.trust == 0 && b.certificate == nil:
		return b.base
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.current.Load()
	if old != nil && old.trust >= a.trust {
		return old.base
	}
	g = b.generation(a)
	b.current.Store(g)
	if old != nil {
		go old.retire() // closing may take its time, which is not the call's
	}
	return g.base
}

// generation makes one of the base. Nil roots leave it its own.
func (b *trustBase) generation(a *keptAnchor) *generation {
	t, maker := b.own.Clone(), b.own.Clone()
	g := &generation{trust: a.trust, base: t}
	dial := t.DialContext // of ownBase
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if counted, ok := conn.(*countedConn); ok {
			g.open.Add(1)
			counted.gone = sync.OnceFunc(func() { g.open.Add(-1) })
		}
		return conn, err
	}
	http2 := t.TLSNextProto["h2"] != nil
	if http2 {
		// It has its connections in one pool for all clones, whatever they were verified
		// under.
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
	if a.Roots != nil {
		cfg.RootCAs = a.Roots
		if cfg.InsecureSkipVerify {
			cfg.VerifyConnection = alsoUnder(a.Roots, cfg.VerifyConnection)
		}
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
	if http2 {
		speakHTTP2(t, maker)
	}
	return g
}

// alsoUnder is for a base that verifies by a callback of its own, as one for SPIFFE
// IDs does, which have no host name: whatever that looks at, the roots hold too.
func alsoUnder(roots *x509.CertPool, verify func(tls.ConnectionState) error) func(tls.ConnectionState) error {
	return func(s tls.ConnectionState) error {
		if verify != nil {
			if err := verify(s); err != nil {
				return err
			}
		}
		if len(s.PeerCertificates) == 0 {
			return errNoCertificate
		}
		between := x509.NewCertPool()
		for _, cert := range s.PeerCertificates[1:] {
			between.AddCert(cert)
		}
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		})
		return err
	}
}

var errNoCertificate = errors.New("the peer has shown no certificate")

// closeIdle closes the idle connections of the generation, if there is one.
func (b *trustBase) closeIdle() {
	if g := b.current.Load(); g != nil {
		g.base.CloseIdleConnections()
	}
}

// retire closes the generation's connections, each once it is idle.
func (b *trustBase) retire() {
	if g := b.current.Load(); g != nil {
		go g.retire()
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
