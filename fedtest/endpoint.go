package fedtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// endpoint is an HTTP server of a peer: in memory, from the first connection
// on, and on a loopback socket once listen was called.
type endpoint struct {
	peer   *Peer
	server *http.Server

	mu            sync.Mutex // guards what follows
	addr          string     // host:port
	tls           bool
	socket        net.Listener // nil: not listening
	memory        *memoryListener
	refuse        int // attempts to connect in memory that are still to fail
	down          bool
	resumesSocket bool // it was on a socket when it was taken down
	closed        bool
}

// unused numbers the addresses of endpoints that have no socket.
var unused atomic.Uint32

func (p *Peer) newEndpoint(handler http.Handler) *endpoint {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(p.cfg.HTTP2)
	protocols.SetUnencryptedHTTP2(p.cfg.HTTP2)
	n := unused.Add(1)
	return &endpoint{
		peer: p,
		server: &http.Server{
			Handler: handler, Protocols: protocols, ErrorLog: p.cfg.ErrorLog,
			BaseContext: func(net.Listener) context.Context { return p.ctx },
		},
		addr: fmt.Sprintf("127.%d.%d.%d:1", n>>16&0x7f|0x80, n>>8&0xff, n&0xff),
	}
}

func (e *endpoint) address() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.addr
}

func (e *endpoint) isDown() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.down
}

func (e *endpoint) refuseNext(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refuse = n
}

// listen opens the socket and serves it.
func (e *endpoint) listen() {
	var config net.ListenConfig
	socket, err := config.Listen(e.peer.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		if socket, err = config.Listen(e.peer.ctx, "tcp6", "[::1]:0"); err != nil {
			panic(fmt.Sprintf("fedtest: cannot listen on a loopback port: %v", err))
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.socket, e.addr = socket, socket.Addr().String()
	e.serve(socket)
}

// serve accepts connections until the listener is closed. e.mu is held.
func (e *endpoint) serve(l net.Listener) {
	secure := e.tls
	e.peer.active.Go(func() {
		// Both end with an error that says the listener was closed: by us.
		if secure {
			_ = e.server.ServeTLS(l, "", "")
		} else {
			_ = e.server.Serve(l)
		}
	})
}

// dial connects to the endpoint: over its socket, or else in memory.
func (e *endpoint) dial(ctx context.Context) (net.Conn, error) {
	e.mu.Lock()
	socket, addr := e.socket != nil, e.addr
	e.mu.Unlock()
	if socket {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	}
	return e.dialMemory(ctx) // which refuses where a socket was taken down
}

// dialMemory connects to the endpoint in memory, whether or not it has a
// socket.
func (e *endpoint) dialMemory(ctx context.Context) (net.Conn, error) {
	l, err := e.listenMemory()
	if err != nil {
		return nil, err
	}
	return l.dial(ctx)
}

func (e *endpoint) listenMemory() (*memoryListener, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down || e.closed {
		return nil, refused(e.addr)
	}
	if e.refuse > 0 {
		e.refuse--
		return nil, refused(e.addr)
	}
	if e.memory == nil {
		e.memory = newMemoryListener(e.addr)
		e.serve(e.memory)
	}
	return e.memory, nil
}

// stop takes the endpoint down; the connections that it has go on.
func (e *endpoint) stop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = true
	e.closeListeners()
}

// resume ends what stop began. A socket's port may be another's by now, so it
// opens a new one.
func (e *endpoint) resume() {
	e.mu.Lock()
	again := e.down && !e.closed && e.resumesSocket
	e.down, e.resumesSocket = false, false
	e.mu.Unlock()
	if again {
		e.listen()
	}
}

func (e *endpoint) close() {
	e.mu.Lock()
	e.closed = true
	e.closeListeners()
	e.mu.Unlock()
	_ = e.server.Close()
}

// closeListeners is called with e.mu held.
func (e *endpoint) closeListeners() {
	if e.socket != nil {
		_ = e.socket.Close()
		e.socket, e.resumesSocket = nil, true
	}
	if e.memory != nil {
		_ = e.memory.Close()
		e.memory = nil
	}
}

// useTLS has the endpoint serve TLS. It is called before anything listens.
func (e *endpoint) useTLS(base *tls.Config) {
	if base == nil {
		base = &tls.Config{}
	}
	config := base.Clone()
	if len(config.Certificates) == 0 {
		config.Certificates = []tls.Certificate{newCertificate()}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tls, e.server.TLSConfig = true, config
}

func (e *endpoint) addCert(pool *x509.CertPool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.tls {
		return
	}
	for _, c := range e.server.TLSConfig.Certificates {
		if leaf, err := x509.ParseCertificate(c.Certificate[0]); err == nil {
			pool.AddCert(leaf)
		}
	}
}
