package fedhttp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// ownBase returns a base that can prove what it delivered. An *http.Transport is
// cloned, with everything that its owner configured, and its connections count
// what is written to them. Any other base is used as it is.
func ownBase(base http.RoundTripper) http.RoundTripper {
	own := transportOf(base)
	if own == nil {
		return base
	}
	t, maker := own.Clone(), own.Clone()
	// net/http speaks HTTP/2 only where nobody has configured dialing or TLS, and
	// our dialer must not be what makes the difference. Cloning has made own ready
	// for use, so it shows what it speaks. (Its TLSClientConfig does not: HTTP/2
	// has put one there where there was none.)
	http2 := own.TLSNextProto["h2"] != nil && t.TLSNextProto == nil
	if http2 && t.Protocols == nil {
		t.ForceAttemptHTTP2 = true
	}
	dial := t.DialContext
	if dial == nil && t.Dial != nil { //nolint:staticcheck // see above
		old := t.Dial //nolint:staticcheck // see above
		dial = func(_ context.Context, network, addr string) (net.Conn, error) { return old(network, addr) }
	}
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil || conn == nil { // (nil, nil) is a fault that net/http has words for
			return nil, err
		}
		return &countedConn{Conn: conn}, nil
	}
	if http2 {
		speakHTTP2(t, maker)
	}
	return t
}

// passingBase returns a base for what goes to no peer: as the program has configured it,
// and with what net/http does by itself.
func passingBase(base http.RoundTripper) http.RoundTripper {
	if own := transportOf(base); own != nil {
		return own.Clone()
	}
	return base
}

// transportOf returns the transport that base is, the default one for none, and nil for
// a base of another kind.
func transportOf(base http.RoundTripper) *http.Transport {
	own, ok := base.(*http.Transport)
	if own != nil || base != nil && !ok {
		return own
	}
	if own, ok = http.DefaultTransport.(*http.Transport); ok {
		return own
	}
	return &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}
}

// countedConn is a connection that knows whether bytes have left, and that can
// be sealed so that none ever will.
type countedConn struct {
	net.Conn

	attempts atomic.Int32 // that have it, on HTTP/2, and have not ended

	mu      sync.Mutex
	started uint64 // writes begun
	writing int    // writes under way
	written uint64 // bytes that the connection below took
	heard   uint64 // what written was when something was read last, and more where a write was under way
	sealed  bool
	closed  bool
	http2   bool   // HTTP/2 is spoken on it: so said its first bytes, or the TLS above
	known   bool   // http2 is settled for the TLS above
	err     error  // the first error of a read or write
	mimics  bool   // one of them reads like net/http's own of HTTP/2
	gone    func() // told of each Close; nil: nobody asks
	begun   begun
}

// begun is what somebody waits for: that so many more writes were begun.
type begun struct {
	more uint64
	done chan struct{} // nil: nobody waits
}

var errSealed = errors.New("the connection was sealed: the request must not leave on it")

var http2Preface = []byte("PRI * HTTP/2")

func (c *countedConn) begin(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sealed {
		return errSealed
	}
	if c.started == 0 {
		c.http2 = bytes.HasPrefix(p, http2Preface)
	}
	c.started++
	c.writing++
	if c.begun.more--; c.begun.more == 0 {
		c.begun.tell()
	}
	return nil
}

// writes returns a channel that is closed when n more writes have begun or the
// connection was closed. One may wait at a time.
func (c *countedConn) writes(n uint64) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := make(chan struct{})
	c.begun = begun{n, done}
	if c.closed {
		c.begun.tell()
	}
	return done
}

func (b *begun) tell() {
	if b.done != nil {
		close(b.done)
		b.done = nil
	}
}

func (c *countedConn) end(n int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing--
	c.written += uint64(max(n, 0))
	c.note(err)
}

// note keeps the first error. c.mu is held.
func (c *countedConn) note(err error) {
	if err == nil {
		return
	}
	c.mimics = c.mimics || http2EndOf(err) != http2Other
	if c.err == nil {
		c.err = err
	}
}

// mimicsHTTP2 reports whether the connection has failed as if net/http had said so.
func (c *countedConn) mimicsHTTP2() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mimics
}

func (c *countedConn) Write(p []byte) (int, error) {
	if err := c.begin(p); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	c.end(int64(n), err)
	return n, err
}

// ReadFrom lets the connection below send a file by itself, as net/http would
// without us.
func (c *countedConn) ReadFrom(r io.Reader) (int64, error) {
	if err := c.begin(nil); err != nil {
		return 0, err
	}
	n, err := io.Copy(c.Conn, r)
	c.end(n, err)
	return n, err
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n > 0 {
		c.heard = c.written + uint64(c.writing)
	}
	c.note(err)
	return n, err
}

// Close remembers that it was called.
func (c *countedConn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.begun.tell()
	c.mu.Unlock()
	if c.gone != nil {
		c.gone()
	}
	return c.Conn.Close()
}

// CloseWrite is for those who have switched protocols on the connection.
func (c *countedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return fmt.Errorf("CloseWrite: %w", http.ErrNotSupported)
}

// NetConn returns the connection below, as tls.Conn's does.
func (c *countedConn) NetConn() net.Conn { return c.Conn }

func (c *countedConn) bytesWritten() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.written
}

// silent reports whether nothing has been read since the count stood at mark and
// something was written.
func (c *countedConn) silent(mark uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard <= mark
}

// seal lets nothing leave any more, and reports whether nothing has since the
// count stood at mark.
func (c *countedConn) seal(mark uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.writing > 0 || c.written != mark {
		return false
	}
	c.sealed = true
	return true
}

// poison lets nothing leave any more, whatever has.
func (c *countedConn) poison() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
}

// ending returns what ended the connection, which net/http has closed and knows
// as top; nil where nothing shows it. What the peer said in TLS, an alert or a
// goodbye, the connection below did not understand, but TLS keeps it.
func (c *countedConn) ending(top net.Conn) error {
	c.mu.Lock()
	closed, first := c.closed, c.err
	c.mu.Unlock()
	if secure, ok := top.(*tls.Conn); ok && closed {
		if _, err := secure.Read(make([]byte, 1)); err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return first
}

// countedConnOf finds the connection that counts below conn, nil where there is
// none, and whether conn speaks HTTP/2.
func countedConnOf(conn net.Conn) (counted *countedConn, http2 bool) {
	top, ok := conn.(*tls.Conn)
	for below := top; ok; below, ok = conn.(*tls.Conn) {
		conn = below.NetConn() // an HTTPS proxy's is the second
	}
	if counted, ok = conn.(*countedConn); ok {
		return counted, counted.speaksHTTP2(top)
	}
	return nil, top != nil && negotiatedHTTP2(top)
}

// negotiatedHTTP2 is not inlined: a ConnectionState is large, and most connections
// are not asked.
//
//go:noinline
func negotiatedHTTP2(c *tls.Conn) bool { return c.ConnectionState().NegotiatedProtocol == "h2" }

// speaksHTTP2 asks the TLS at the top, if any, once, since it takes its time to
// answer; and without holding c.mu, since TLS writes with its own mutex held.
func (c *countedConn) speaksHTTP2(top *tls.Conn) bool {
	c.mu.Lock()
	http2, known := c.http2, c.known || top == nil
	c.mu.Unlock()
	if known {
		return http2
	}
	http2 = negotiatedHTTP2(top)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.http2, c.known = http2, true
	return http2
}
