package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"time"
)

// edge is B's way in with real certificates. B's registry and the gateway of its
// records are an origin each. B's authority is rotated while A works: the gateway
// has its certificate from the next one then, the registry still from the first,
// and B's bundle has both. An A that holds the bundle of the day before reaches
// the one, and breaks off the handshake of the other.
type edge struct {
	registry, gateway *front
	bundle            *httptest.Server // over plain http: it is on loopback
	first             authority

	mu      sync.Mutex
	pem     []byte
	fetches int // of the bundle, since the rotation
}

func openEdge(ctx context.Context, backend string) (*edge, error) {
	first, err := newAuthority("B, first")
	if err != nil {
		return nil, err
	}
	e := &edge{first: first, pem: first.pem()}
	if e.registry, err = openFront(ctx, backend, first); err != nil {
		return nil, err
	}
	if e.gateway, err = openFront(ctx, backend, first); err != nil {
		e.registry.close()
		return nil, err
	}
	e.bundle = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.fetches++
		w.Header().Set("Content-Type", "application/pem-certificate-chain")
		_, _ = w.Write(e.pem) // a client that has gone needs no bundle
	}))
	return e, nil
}

// rotate gives the gateway a certificate from another authority, which joins the
// bundle.
func (e *edge) rotate() error {
	next, err := newAuthority("B, next")
	if err != nil {
		return err
	}
	cert, err := next.issue()
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.pem, e.fetches = append(e.first.pem(), next.pem()...), 0
	e.gateway.cert.Store(cert)
	return nil
}

func (e *edge) fetched() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fetches
}

// pool is the bundle at hand.
func (e *edge) pool() *x509.CertPool {
	e.mu.Lock()
	defer e.mu.Unlock()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(e.pem)
	return pool
}

func (e *edge) close() {
	e.registry.close()
	e.gateway.close()
	e.bundle.Close()
}

// front ends the TLS of what comes in and hands on what is in it.
type front struct {
	url     string
	cert    atomic.Pointer[tls.Certificate]
	refused atomic.Int64 // handshakes that the client broke off

	listener net.Listener
	conns    sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]bool // nil: closed
}

func openFront(ctx context.Context, backend string, by authority) (*front, error) {
	cert, err := by.issue()
	if err != nil {
		return nil, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &front{url: "https://" + l.Addr().String(), listener: l, open: make(map[net.Conn]bool)}
	f.cert.Store(cert)
	config := &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.cert.Load(), nil },
	}
	f.conns.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			f.conns.Go(func() { f.serve(ctx, tls.Server(conn, config), backend) })
		}
	})
	return f, nil
}

func (f *front) serve(ctx context.Context, in *tls.Conn, backend string) {
	defer in.Close()
	if !f.track(in) {
		return
	}
	defer f.forget(in)
	if in.HandshakeContext(ctx) != nil {
		f.refused.Add(1)
		return
	}
	out, err := new(net.Dialer).DialContext(ctx, "tcp", backend)
	if err != nil {
		return // which the client sees
	}
	defer out.Close()
	if !f.track(out) {
		return
	}
	defer f.forget(out)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(out, in)
		out.Close()
	}()
	_, _ = io.Copy(in, out)
	in.Close()
	<-done
}

// track has conn closed when the front is, and reports false where that is over.
func (f *front) track(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open == nil {
		conn.Close()
		return false
	}
	f.open[conn] = true
	return true
}

func (f *front) forget(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, conn)
}

func (f *front) close() {
	f.listener.Close()
	f.mu.Lock()
	open := f.open
	f.open = nil
	f.mu.Unlock()
	for conn := range open {
		conn.Close()
	}
	f.conns.Wait()
}

// authority is a certificate authority.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(name string) (authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return authority{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return authority{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return authority{cert, key}, err
}

// issue makes a server's certificate for loopback.
func (a authority) issue() (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "B"},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func (a authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}
