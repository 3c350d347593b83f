package fedtest

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Hostile is one way in which a server breaks the rules of HTTP, or what its
// clients rely on. [HostileServers] has them all; Start and StartTLS make a
// server of one.
type Hostile struct {
	// Name is unique and stable: "http1/reset-after-request".
	Name string
	// Doc says, in a sentence, what the server does.
	Doc string
	// HTTP2 tells which protocol it speaks: HTTP/2, else HTTP/1.1.
	HTTP2 bool
	// SaysRouting tells that it answers as a routing layer, so that a client may
	// send a request again, and is not at fault for a task that was seen twice.
	SaysRouting bool

	serve func(*hostileConn)
}

// HostileServers returns every Hostile there is, those of HTTP/1 first. The list
// is closed and its order stable. It belongs to the caller.
func HostileServers() []Hostile {
	all := slices.Concat(http1Hostiles(), http1Liars(), http2Hostiles(), http2Resets(), http2GoAways(), http2Liars(), http2Floods())
	slices.SortStableFunc(all, func(a, b Hostile) int {
		switch {
		case a.HTTP2 == b.HTTP2:
			return 0
		case b.HTTP2:
			return -1
		}
		return 1
	})
	return all
}

// HostileServer is a server that does what its [Hostile] says, to every
// connection and every request on it, until it is closed.
type HostileServer struct {
	// URL is the server's, without a trailing slash.
	URL string
	// Hostile is what it does.
	Hostile Hostile

	listener net.Listener
	tls      *tls.Config // nil: clear text
	closing  chan struct{}
	close    sync.Once
	active   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	log    []*HostileRequest
	conns  map[*hostileConn]struct{}
	dialed int
	fewer  chan struct{} // closed when a connection ends; nil: nobody waits
}

// HostileRequest is a request of which a [HostileServer] has read the header, or
// all.
type HostileRequest struct {
	// Task is the X-Fedtest-Task header, else the path.
	Task         string
	Method, Path string
	// Connection numbers the connections of the server from 1.
	Connection int
	// Whole tells that the body was read to its end as well.
	Whole bool
}

// Start returns a server of h that listens on a loopback port, in clear text. It
// panics where it cannot listen. The caller calls Close.
func (h Hostile) Start() *HostileServer { return h.start(nil) }

// StartTLS is Start with https. The certificate is the server's own:
// [HostileServer.Transport] trusts it.
func (h Hostile) StartTLS() *HostileServer {
	protocol := "http/1.1"
	if h.HTTP2 {
		protocol = "h2"
	}
	return h.start(&tls.Config{Certificates: []tls.Certificate{newCertificate()}, NextProtos: []string{protocol}})
}

func (h Hostile) start(config *tls.Config) *HostileServer {
	if h.serve == nil {
		panic("fedtest: a Hostile comes from HostileServers")
	}
	var listen net.ListenConfig
	l, err := listen.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		if l, err = listen.Listen(context.Background(), "tcp6", "[::1]:0"); err != nil {
			panic(fmt.Sprintf("fedtest: cannot listen on a loopback port: %v", err))
		}
	}
	s := &HostileServer{
		URL: "http://" + l.Addr().String(), Hostile: h, listener: l, tls: config,
		closing: make(chan struct{}), conns: make(map[*hostileConn]struct{}),
	}
	if config != nil {
		s.URL = "https://" + l.Addr().String()
	}
	s.active.Go(s.accept)
	return s
}

func (s *HostileServer) accept() {
	for {
		raw, err := s.listener.Accept()
		if err != nil {
			return // closed: by us
		}
		c := &hostileConn{Conn: raw, raw: raw, server: s}
		if s.tls != nil {
			c.Conn = tls.Server(raw, s.tls)
		}
		c.buf = bufio.NewReader(c.Conn)
		s.mu.Lock()
		s.dialed++
		c.number = s.dialed
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		s.active.Go(func() {
			defer s.ended(c)
			if s.closed() { // between Accept and the registration
				return
			}
			s.Hostile.serve(c)
		})
	}
}

func (s *HostileServer) closed() bool {
	select {
	case <-s.closing:
		return true
	default:
		return false
	}
}

func (s *HostileServer) ended(c *hostileConn) {
	_ = c.raw.Close() // whatever is left of it
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.fewer != nil {
		close(s.fewer)
		s.fewer = nil
	}
}

// Close closes the listener and all connections, and waits until nothing of the
// server runs. Closing again does nothing.
func (s *HostileServer) Close() {
	s.close.Do(func() {
		close(s.closing)
		_ = s.listener.Close()
		s.mu.Lock()
		for c := range s.conns {
			_ = c.raw.Close()
		}
		s.mu.Unlock()
	})
	s.active.Wait()
}

// Transport returns a new http.Transport for the server: it speaks its protocol
// and no other, and trusts its certificate. The caller may change it before its
// first use.
func (s *HostileServer) Transport() *http.Transport {
	t := &http.Transport{MaxIdleConnsPerHost: 100, Protocols: new(http.Protocols)}
	t.Protocols.SetHTTP1(!s.Hostile.HTTP2)
	t.Protocols.SetHTTP2(s.Hostile.HTTP2)
	t.Protocols.SetUnencryptedHTTP2(s.Hostile.HTTP2)
	if cert := s.Certificate(); cert != nil {
		roots := x509.NewCertPool()
		roots.AddCert(cert)
		t.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	return t
}

// Certificate returns the certificate that the server presents; nil without
// StartTLS.
func (s *HostileServer) Certificate() *x509.Certificate {
	if s.tls == nil {
		return nil
	}
	cert, err := x509.ParseCertificate(s.tls.Certificates[0].Certificate[0])
	if err != nil {
		panic("fedtest: cannot read back a certificate: " + err.Error())
	}
	return cert
}

// Requests returns how many whole requests the server has read.
func (s *HostileServer) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.log {
		if r.Whole {
			n++
		}
	}
	return n
}

// Sends returns how many requests of the task the server has read the header of,
// whether or not the rest came.
func (s *HostileServer) Sends(task string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.log {
		if r.Task == task {
			n++
		}
	}
	return n
}

// Log returns the requests that the server has read the header of, oldest first.
func (s *HostileServer) Log() []HostileRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]HostileRequest, len(s.log))
	for i, r := range s.log {
		out[i] = *r
	}
	return out
}

// Connections returns how many connections are open now. The server notices the
// end of one when it next reads or writes: see [HostileServer.Drained].
func (s *HostileServer) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Drained waits until no connection is open, or the context ends, and then
// returns its error. Every Hostile reads on, or writes, for as long as a
// connection lasts, so a client that closes its end is noticed. (net/http does
// not always: it loses track of an HTTP/2 connection that got a GOAWAY about when
// its first request began. What it also does is close idle connections a moment
// after the call that used them, so CloseIdleConnections may be needed again.)
func (s *HostileServer) Drained(ctx context.Context) error {
	for {
		s.mu.Lock()
		if len(s.conns) == 0 {
			s.mu.Unlock()
			return nil
		}
		if s.fewer == nil {
			s.fewer = make(chan struct{})
		}
		fewer := s.fewer
		s.mu.Unlock()
		select {
		case <-fewer:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// arrived notes a request whose header was read.
func (s *HostileServer) arrived(r HostileRequest) *HostileRequest {
	if r.Task == "" {
		r.Task = r.Path
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, &r)
	return &r
}

func (s *HostileServer) whole(r *HostileRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Whole = true
}

// hostileConn is one connection of a server, for the function that misuses it.
// Its methods report false once the connection is over; the function then
// returns.
type hostileConn struct {
	net.Conn          // through TLS, where there is TLS
	raw      net.Conn // the socket
	buf      *bufio.Reader
	server   *HostileServer
	number   int
}

// send writes the bytes as they are.
func (c *hostileConn) send(text string) bool {
	_, err := c.Write([]byte(text))
	return err == nil
}

const (
	dripWait   = 5 * time.Millisecond
	floodBytes = 16 << 20 // enough for the limits of any client that has some
)

// drip writes the bytes one at a time.
func (c *hostileConn) drip(text string) bool {
	for i := range len(text) {
		if !c.pause() || !c.send(text[i:i+1]) {
			return false
		}
	}
	return true
}

// flood writes the bytes so many times.
func (c *hostileConn) flood(text string, times int) bool {
	batch := min(times, 1+32<<10/len(text))
	text = strings.Repeat(text, batch)
	for sent := 0; sent < times; sent += batch {
		if !c.send(text) {
			return false
		}
	}
	return true
}

// floodLong writes the bytes over and over, floodBytes in all.
func (c *hostileConn) floodLong(text string) { c.flood(text, floodBytes/len(text)) }

func (c *hostileConn) pause() bool {
	timer := time.NewTimer(dripWait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.server.closing:
		return false
	}
}

// hangUp ends the connection as its protocol wants it.
func (c *hostileConn) hangUp() { _ = c.Close() }

// reset ends the connection with a TCP RST.
func (c *hostileConn) reset() {
	if tcp, ok := c.raw.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.raw.Close()
}

// halfClose ends our half of the connection.
func (c *hostileConn) halfClose() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
