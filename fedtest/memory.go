package fedtest

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
)

// Transport returns a new http.Transport that reaches the peers in memory:
// without a socket, over real HTTP on pipes, and so with everything that
// net/http does (connection reuse, events of net/http/httptrace, sending again
// on its own where a reused connection dies). It reaches no other address: an
// attempt to connect there is refused. It trusts the peers' certificates as
// they are now, and speaks HTTP/2 alone where one of the peers has Config.HTTP2.
//
// It works in a testing/synctest bubble if the peers were made there. The
// caller may change it before its first use, as any other http.Transport.
// [Peer.Close] closes its connections to the peer.
func Transport(peers ...*Peer) *http.Transport {
	t := &http.Transport{MaxIdleConnsPerHost: 100}
	roots := x509.NewCertPool()
	endpoints := make([]*endpoint, 0, 2*len(peers))
	for _, p := range peers {
		p.routing.addCert(roots)
		endpoints = append(endpoints, p.routing)
		if p.proxy != nil {
			endpoints = append(endpoints, p.engine)
		}
		if p.cfg.HTTP2 {
			t.Protocols = new(http.Protocols)
			t.Protocols.SetHTTP2(true)
			t.Protocols.SetUnencryptedHTTP2(true)
		}
	}
	t.TLSClientConfig = &tls.Config{RootCAs: roots}
	t.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) {
		for _, e := range endpoints {
			if e.address() == addr {
				return e.dialMemory(ctx)
			}
		}
		return nil, refused(addr)
	}
	return t
}

// Transport returns [Transport] for this peer.
func (p *Peer) Transport() *http.Transport { return Transport(p) }

var errRefused = errors.New("connection refused")

func refused(addr string) error {
	return &net.OpError{Op: "dial", Net: "memory", Addr: memoryAddr(addr), Err: errRefused}
}

type memoryAddr string

func (a memoryAddr) Network() string { return "memory" }
func (a memoryAddr) String() string  { return string(a) }

// memoryListener is a net.Listener whose connections are pipes.
type memoryListener struct {
	addr    memoryAddr
	conns   chan net.Conn
	closing chan struct{}
	close   sync.Once
	dialed  atomic.Uint64
}

func newMemoryListener(addr string) *memoryListener {
	return &memoryListener{addr: memoryAddr(addr), conns: make(chan net.Conn), closing: make(chan struct{})}
}

func (l *memoryListener) Addr() net.Addr { return l.addr }

func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closing:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.close.Do(func() { close(l.closing) })
	return nil
}

func (l *memoryListener) dial(ctx context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	client := memoryAddr(fmt.Sprintf("memory:%d", l.dialed.Add(1)))
	select {
	case l.conns <- &memoryConn{Conn: far, local: l.addr, remote: client}:
		return &memoryConn{Conn: near, local: client, remote: l.addr}, nil
	case <-l.closing:
		return nil, refused(string(l.addr))
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: "memory", Addr: l.addr, Err: ctx.Err()}
	}
}

// memoryConn is an end of a pipe that has addresses.
type memoryConn struct {
	net.Conn
	local, remote memoryAddr
}

func (c *memoryConn) LocalAddr() net.Addr  { return c.local }
func (c *memoryConn) RemoteAddr() net.Addr { return c.remote }
