package fedhttp

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/http"
	"testing"
	"time"
)

// someRoots returns a pool with an authority that nobody else has.
func someRoots(t *testing.T) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

// TestTakeRoots: roots count as trust where they differ, whatever the version
// says, and never go away.
func TestTakeRoots(t *testing.T) {
	t.Parallel()
	one, other := someRoots(t), someRoots(t)
	equal := one.Clone()
	for name, c := range map[string]struct {
		first, then Anchor
		result      refreshResult
		trust       uint64
	}{
		"none at all":           {Anchor{Version: "1"}, Anchor{Version: "2"}, refreshAdvanced, 0},
		"the first":             {Anchor{Version: "1"}, Anchor{Version: "2", Roots: one}, refreshAdvanced, 1},
		"the same":              {Anchor{Version: "1", Roots: one}, Anchor{Version: "1", Roots: one}, refreshConfirmed, 1},
		"equal ones":            {Anchor{Version: "1", Roots: one}, Anchor{Version: "2", Roots: equal}, refreshAdvanced, 1},
		"others":                {Anchor{Version: "1", Roots: one}, Anchor{Version: "2", Roots: other}, refreshAdvanced, 2},
		"others, same version":  {Anchor{Version: "1", Roots: one}, Anchor{Version: "1", Roots: other}, refreshAdvanced, 2},
		"empty ones":            {Anchor{Version: "1", Roots: one}, Anchor{Version: "2", Roots: x509.NewCertPool()}, refreshFailed, 1},
		"none any more":         {Anchor{Version: "1", Roots: one}, Anchor{Version: "2"}, refreshFailed, 1},
		"empty from the outset": {Anchor{Version: "1"}, Anchor{Version: "2", Roots: x509.NewCertPool()}, refreshFailed, 0},
	} {
		k := &anchorKeeper{}
		if _, err := k.take(c.first, time.Now()); err != nil {
			t.Fatal(err)
		}
		result, err := k.take(c.then, time.Now())
		if result != c.result || (err != nil) != (c.result == refreshFailed) || k.anchor().trust != c.trust {
			t.Errorf("%s: %v, %v, trust %d; want %v, trust %d", name, result, err, k.anchor().trust, c.result, c.trust)
		}
	}
}

// TestTakeCertificates: they stand for Roots where there are none.
func TestTakeCertificates(t *testing.T) {
	t.Parallel()
	one, other := newTestCA(t, "one").cert, newTestCA(t, "other").cert
	pool := x509.NewCertPool()
	pool.AddCert(one)
	for name, c := range map[string]struct {
		then   Anchor
		result refreshResult
		trust  uint64
	}{
		"the same": {Anchor{Version: "1", Certificates: []*x509.Certificate{one}}, refreshConfirmed, 1},
		"others":   {Anchor{Version: "1", Certificates: []*x509.Certificate{one, other}}, refreshAdvanced, 2},
		"none":     {Anchor{Version: "1", Certificates: []*x509.Certificate{}}, refreshFailed, 1},
		"nil":      {Anchor{Version: "1", Certificates: []*x509.Certificate{one, nil}}, refreshFailed, 1},
		"Roots count where both are there": {
			Anchor{Version: "1", Roots: pool, Certificates: []*x509.Certificate{other}}, refreshConfirmed, 1,
		},
	} {
		source := StaticAnchors{"": {Version: "1", Certificates: []*x509.Certificate{one}}}
		k := &anchorKeeper{source: source, lifetime: t.Context()}
		k.fly(make(chan struct{}), 0, 0)
		if !k.anchor().Roots.Equal(pool) {
			t.Fatalf("%v", k.last.err)
		}
		source[""] = c.then
		k.fly(make(chan struct{}), 0, 0)
		if k.last.result != c.result || k.anchor().trust != c.trust {
			t.Errorf("%s: %v, %v, trust %d; want %v, trust %d", name, k.last.result, k.last.err, k.anchor().trust, c.result, c.trust)
		}
	}
}

// TestTakeCopiesRoots: what a source does with its pool later changes nothing.
func TestTakeCopiesRoots(t *testing.T) {
	t.Parallel()
	pool := someRoots(t)
	k := &anchorKeeper{source: StaticAnchors{"": {Version: "1", Roots: pool}}, lifetime: t.Context()}
	k.fly(make(chan struct{}), 0, 0)
	before := k.anchor().Roots.Clone()
	pool.AppendCertsFromPEM([]byte("no certificate"))
	pool.AddCert(&x509.Certificate{Raw: []byte("another")})
	if !k.anchor().Roots.Equal(before) {
		t.Error("the anchor's roots have changed")
	}
}

// TestGeneration: a clone keeps what its base has, but for the roots, and the
// connections and sessions that were made under others.
func TestGeneration(t *testing.T) {
	t.Parallel()
	roots := someRoots(t)
	verified := func(tls.ConnectionState) error { return nil }
	base := ownBase(&http.Transport{
		MaxIdleConnsPerHost: 7,
		TLSClientConfig:     &tls.Config{ServerName: "b.example", VerifyConnection: verified, ClientSessionCache: tls.NewLRUClientSessionCache(0)},
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{"h2": nil},
	}).(*http.Transport)
	// As x/net's HTTP/2 leaves it, whose connections are in one pool for all clones.
	base.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{"h2": func(string, *tls.Conn) http.RoundTripper { return base }}
	b := &trustBase{base: base, own: base}
	g := b.under(&keptAnchor{Anchor: Anchor{Roots: roots}, trust: 1}).(*http.Transport)
	cfg := g.TLSClientConfig
	if g == base || !cfg.RootCAs.Equal(roots) || base.TLSClientConfig.RootCAs != nil {
		t.Error("the roots are not those of the clone alone")
	}
	if g.MaxIdleConnsPerHost != 7 || cfg.ServerName != "b.example" || cfg.VerifyConnection == nil || cfg.InsecureSkipVerify || g.DialContext == nil {
		t.Error("the clone has lost something")
	}
	ours, theirs := net.Pipe()
	theirs.Close()
	if g.TLSNextProto["h2"]("b.example:443", tls.Client(ours, cfg)) == base || !g.ForceAttemptHTTP2 {
		t.Error("the clone shares its base's HTTP/2 connections")
	}
	if cfg.ClientSessionCache == nil || cfg.ClientSessionCache == base.TLSClientConfig.ClientSessionCache {
		t.Error("the clone has no TLS sessions of its own")
	}
	if g.IdleConnTimeout != idleLimit {
		t.Errorf("idle connections are kept for %v", g.IdleConnTimeout)
	}
	if again := b.under(&keptAnchor{Anchor: Anchor{Roots: roots}, trust: 1}); again != g {
		t.Error("one anchor has two generations")
	}
	if late := b.under(&noAnchor); late != g {
		t.Error("an attempt from before the first roots goes out over the base")
	}
	next := b.under(&keptAnchor{Anchor: Anchor{Roots: someRoots(t)}, trust: 2})
	if next == g || b.under(&keptAnchor{Anchor: Anchor{Roots: roots}, trust: 1}) != next {
		t.Error("a late attempt has brought the old roots back")
	}
}

// TestSpeakHTTP2Idle: connections of HTTP/2 end as long after they are idle as others of
// the generation, which may have got its limit after it was cloned.
func TestSpeakHTTP2Idle(t *testing.T) {
	t.Parallel()
	g, maker := &http.Transport{IdleConnTimeout: idleLimit}, &http.Transport{}
	speakHTTP2(g, maker)
	if maker.IdleConnTimeout != idleLimit {
		t.Errorf("HTTP/2 connections end after %v, others after %v", maker.IdleConnTimeout, idleLimit)
	}
}
