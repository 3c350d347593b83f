package fedhttp_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// rotatingPeer is a registry that can change its certificate while it runs. It
// counts what reaches it.
type rotatingPeer struct {
	*httptest.Server
	cert atomic.Pointer[tls.Certificate]

	mu         sync.Mutex
	tasks      map[string]int // requests by path
	handshakes []tls.ConnectionState
	conns      map[net.Conn]http.ConnState
	changed    chan struct{} // closed, and made anew, at each change of conns
}

func newRotatingPeer(t *testing.T, ca *authority, http2 bool, change func(*tls.Config), handler http.Handler) *rotatingPeer {
	t.Helper()
	p := &rotatingPeer{tasks: make(map[string]int), conns: make(map[net.Conn]http.ConnState), changed: make(chan struct{})}
	p.rotate(ca)
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.tasks[r.URL.Path]++
		p.mu.Unlock()
		if handler != nil {
			handler.ServeHTTP(w, r)
		}
	}))
	p.EnableHTTP2 = http2
	p.Config.ErrorLog = quietLog
	p.Config.ConnState = func(c net.Conn, s http.ConnState) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.conns[c] = s
		close(p.changed)
		p.changed = make(chan struct{})
	}
	p.TLS = &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.cert.Load(), nil },
		VerifyConnection: func(s tls.ConnectionState) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.handshakes = append(p.handshakes, s)
			return nil
		},
	}
	if change != nil {
		change(p.TLS)
	}
	p.StartTLS()
	p.TLS.Certificates = nil // httptest's own
	t.Cleanup(p.Close)
	return p
}

func (p *rotatingPeer) rotate(ca *authority) {
	cert := ca.issue(time.Now().Add(time.Hour))
	p.cert.Store(&cert)
}

func (p *rotatingPeer) sent(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tasks[path]
}

func (p *rotatingPeer) handshook() []tls.ConnectionState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]tls.ConnectionState(nil), p.handshakes...)
}

// await waits until n connections are in the state.
func (p *rotatingPeer) await(t *testing.T, n int, state http.ConnState) {
	t.Helper()
	for limit := time.After(10 * time.Second); ; {
		p.mu.Lock()
		found, changed := 0, p.changed
		for _, s := range p.conns {
			if s == state {
				found++
			}
		}
		p.mu.Unlock()
		if found == n {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%d connections are %v, want %d", found, state, n)
		}
	}
}

// forget has the transport close its connections, which it does once it knows
// itself that they are idle.
func (p *rotatingPeer) forget(t *testing.T, tr *fedhttp.Transport) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		tr.CloseIdleConnections()
		p.mu.Lock()
		open := 0
		for _, s := range p.conns {
			if s != http.StateClosed {
				open++
			}
		}
		p.mu.Unlock()
		switch {
		case open == 0:
			return
		case time.Now().After(limit):
			t.Fatalf("%d connections are still open", open)
		}
	}
}

// anchorBox is a source whose anchors a test sets, for every peer by its ID.
type anchorBox struct {
	mu      sync.Mutex
	anchors map[string]fedhttp.Anchor
	fetches map[string]int
}

func (b *anchorBox) set(peer, version string, roots *x509.CertPool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.anchors == nil {
		b.anchors, b.fetches = make(map[string]fedhttp.Anchor), make(map[string]int)
	}
	b.anchors[peer] = fedhttp.Anchor{Version: version, Roots: roots}
}

func (b *anchorBox) fetched(peer string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fetches[peer]
}

func (b *anchorBox) FetchAnchor(_ context.Context, peer string) (fedhttp.Anchor, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fetches[peer]++
	return b.anchors[peer], nil
}

// rootsGet makes a call and reads its answer to the end.
func rootsGet(tr http.RoundTripper, url string) (fedhttp.Decision, error) {
	resp, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		var e *fedhttp.Error
		errors.As(err, &e)
		if e == nil {
			return fedhttp.Decision{}, err
		}
		return e.Decision, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	d, _ := fedhttp.DecisionFromResponse(resp)
	return d, err
}

// mustDeliver makes a call that is delivered after so many sends.
func mustDeliver(t *testing.T, tr http.RoundTripper, url string, attempts int) {
	t.Helper()
	if d, err := rootsGet(tr, url); err != nil || d.Outcome != fedhttp.OutcomeDelivered || d.Attempts != attempts {
		t.Fatalf("%s: %v (%v) after %d attempts, %v; want delivered after %d", url, d.Outcome, d.Reason, d.Attempts, err, attempts)
	}
}

func protocols(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	for _, http2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "HTTP1", true: "HTTP2"}[http2], func(t *testing.T) {
			t.Parallel()
			test(t, http2)
		})
	}
}
