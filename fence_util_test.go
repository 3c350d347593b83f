package fedhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// rawServer accepts connections and hands each to serve. close waits until all
// of them are served, so a count that is read after it is final.
type rawServer struct {
	url      string
	addr     string
	accepted atomic.Int64

	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]struct{}
	closed   bool
}

// listenRaw starts a server on a loopback socket; config makes it one of TLS.
func listenRaw(tb testing.TB, config *tls.Config, serve func(net.Conn)) *rawServer {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &rawServer{listener: listener, addr: listener.Addr().String(), open: make(map[net.Conn]struct{})}
	s.url = "http://" + s.addr
	if config != nil {
		s.url = "https://" + s.addr
	}
	s.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if !s.track(conn) {
				continue
			}
			s.accepted.Add(1)
			s.wg.Go(func() {
				defer s.forget(conn)
				if config == nil {
					serve(conn)
					return
				}
				secure := tls.Server(conn, config)
				if secure.Handshake() == nil {
					serve(secure)
				}
			})
		}
	})
	tb.Cleanup(s.close)
	return s
}

func (s *rawServer) track(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return false
	}
	s.open[conn] = struct{}{}
	return true
}

func (s *rawServer) forget(conn net.Conn) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
}

// idler is a client that can close its idle connections.
type idler interface{ CloseIdleConnections() }

// drain waits until all that the clients have put on the wire is read, so that a
// count is final: it takes no new connection, and each at hand ends as its
// client ends it. An HTTP/2 connection is not idle at once after a response, so
// the clients are asked again and again.
func (s *rawServer) drain(clients ...idler) {
	s.listener.Close()
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		for _, c := range clients {
			c.CloseIdleConnections()
		}
		select {
		case <-done:
			return
		case <-again.C:
		}
	}
}

// close ends everything.
func (s *rawServer) close() {
	s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for conn := range s.open {
		conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func serverTLS(secure bool, protocols ...string) *tls.Config {
	if !secure {
		return nil
	}
	return &tls.Config{Certificates: []tls.Certificate{fenceServer()}, NextProtos: protocols}
}

// rawEnding is the way in which a peer ends a connection without an answer.
type rawEnding string

const (
	endGoodbye rawEnding = "goodbye" // as programs do: over TLS it says close_notify
	endAbrupt  rawEnding = "abrupt"  // without a word
	endReset   rawEnding = "reset"   // RST
)

func (e rawEnding) end(conn net.Conn) {
	below := conn
	if secure, ok := conn.(*tls.Conn); ok {
		below = secure.NetConn()
	}
	switch e {
	case endAbrupt:
		below.Close()
	case endReset:
		_ = below.(*net.TCPConn).SetLinger(0)
		below.Close()
	default:
		conn.Close()
	}
}

const rawNoContent = "HTTP/1.1 204 No Content\r\n\r\n"

// doomedPeer is an HTTP/1 server on which requests to /warm wait for each other,
// and all others are counted and get no answer.
type doomedPeer struct {
	*rawServer
	whole atomic.Int64 // doomed requests that arrived whole
	end   rawEnding

	mu    sync.Mutex
	names []string
	wait  int // warm requests still to come
	gate  chan struct{}
}

func newDoomedPeer(tb testing.TB, secure bool, end rawEnding) *doomedPeer {
	p := &doomedPeer{end: end}
	p.rawServer = listenRaw(tb, serverTLS(secure), p.serve)
	return p
}

func (p *doomedPeer) serve(conn net.Conn) {
	br := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if req.URL.Path != "/warm" {
			p.whole.Add(1)
			p.mu.Lock()
			p.names = append(p.names, req.Header.Get("X-Name"))
			p.mu.Unlock()
			p.end.end(conn)
			return
		}
		p.mu.Lock()
		gate := p.gate
		if p.wait--; p.wait == 0 {
			close(gate)
		}
		p.mu.Unlock()
		<-gate
		if _, err := io.WriteString(conn, rawNoContent); err != nil {
			return
		}
	}
}

// warm leaves n idle connections in the pool of rt, which n requests have used again.
// Once is not enough: net/http drops one whose request it does not know to be written
// some time after the answer is there, as on a busy machine.
func (p *doomedPeer) warm(tb testing.TB, rt http.RoundTripper, n int) {
	tb.Helper()
	for range 100 {
		before := p.accepted.Load()
		if err := p.tryWarm(rt, n); err != nil {
			tb.Fatalf("warming up: %v", err)
		}
		if p.accepted.Load() == before {
			return
		}
	}
	tb.Fatal("no connection is used again")
}

func (p *doomedPeer) tryWarm(rt http.RoundTripper, n int) error {
	p.mu.Lock()
	p.wait, p.gate = n, make(chan struct{})
	p.mu.Unlock()
	failed := make(chan error, n)
	for range n {
		go func() { failed <- rawGet(rt, p.url+"/warm") }()
	}
	var all []error
	for range n {
		all = append(all, <-failed)
	}
	return errors.Join(all...)
}

func rawGet(rt http.RoundTripper, url string) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return rawSend(rt, req)
}

// rawSend sends req and reads the response.
func rawSend(rt http.RoundTripper, req *http.Request) error {
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return err
}

// fenceEager returns a source of ever newer anchors: with it, whatever is taken for a
// routing failure is sent again.
func fenceEager() anchorFunc {
	var n atomic.Int64
	return func(context.Context, string) (fedhttp.Anchor, error) {
		return fedhttp.Anchor{Version: strconv.FormatInt(n.Add(1), 10)}, nil
	}
}

// fenceQuiet is a sink for escalations that nobody looks at.
var fenceQuiet = escalatorFunc(func(context.Context, fedhttp.Escalation) {})

// fenced returns a Transport over base for a peer at url, which sends again
// whatever it may.
func fenced(t *testing.T, base http.RoundTripper, url string) *fedhttp.Transport {
	t.Helper()
	return newTestTransport(t, fedhttp.Config{
		Base: base, Anchors: fenceEager(), Escalator: fenceQuiet, Peers: []fedhttp.Peer{testPeer("b", url)},
	})
}

// fenceDecision returns the decision of a call that got no response.
func fenceDecision(t *testing.T, err error) fedhttp.Decision {
	t.Helper()
	var failed *fedhttp.Error
	if !errors.As(err, &failed) {
		t.Fatalf("got %v, want a *fedhttp.Error", err)
	}
	return failed.Decision
}

// checkAmbiguous checks that the one send is known to be in doubt.
func checkAmbiguous(t *testing.T, err error) {
	t.Helper()
	d := fenceDecision(t, err)
	if d.Outcome != fedhttp.OutcomeAmbiguous || d.Delivery != fedhttp.DeliveryPossible || d.Attempts != 1 || !d.Escalated {
		t.Errorf("got %+v, want one attempt, possibly delivered, escalated as ambiguous", d)
	}
}

// tappedConn is a connection whose user's side a test looks at.
type tappedConn struct {
	net.Conn
	mu     sync.Mutex
	wrote  bytes.Buffer
	writes int
	// onWrite, where set, is asked before each write; what it does not let
	// through ends with its error after n bytes.
	onWrite func(p []byte) (n int, err error)
}

func (c *tappedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	on := c.onWrite
	c.mu.Unlock()
	if on != nil {
		if n, failure := on(p); failure != nil {
			c.record(p[:n])
			if n > 0 {
				_, _ = c.Conn.Write(p[:n])
			}
			return n, failure
		}
	}
	c.record(p)
	return c.Conn.Write(p)
}

func (c *tappedConn) record(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrote.Write(p)
	c.writes++
}

func (c *tappedConn) intercept(f func(p []byte) (int, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onWrite = f
}

// wireTap collects the connections that a base dials, and refuses those dials
// that it is told to, counted from 1.
type wireTap struct {
	refuse []int

	mu    sync.Mutex
	dials int
	conns []*tappedConn
}

func (d *wireTap) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dials++
	if slices.Contains(d.refuse, d.dials) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &tappedConn{Conn: conn}
	d.conns = append(d.conns, c)
	return c, nil
}

func (d *wireTap) dialed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dials
}

// oneIsPooled has the dials counted as from the connection that is in the pool.
func (d *wireTap) oneIsPooled() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dials = 1
}

func (d *wireTap) all() []*tappedConn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]*tappedConn(nil), d.conns...)
}

func (d *wireTap) last() *tappedConn {
	all := d.all()
	return all[len(all)-1]
}

// httptestHTTP2 starts a server of net/http that speaks HTTP/2 over TLS, and
// returns its URL.
func httptestHTTP2(tb testing.TB, handler http.Handler) string {
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2, server.TLS = true, serverTLS(true)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	tb.Cleanup(server.Close)
	return server.URL
}
