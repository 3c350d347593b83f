package fedhttp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// HTTP/2 without resends. The pool that net/http has for HTTP/2 sends by itself again
// what a peer resets with PROTOCOL_ERROR or REFUSED_STREAM or disowns with GOAWAY, and
// does not show which. One connection of it alone, an http.ClientConn, never does, and
// returns the error. So a base of ours keeps its HTTP/2 connections itself. They are
// dialed, secured, counted and configured as before: net/http hands each over once TLS
// has negotiated HTTP/2 (TLSNextProto), and asks here first for the next request
// (RegisterProtocol), as it asks golang.org/x/net/http2.

// speakHTTP2 has t keep its HTTP/2 connections here. Both are clones of one transport
// that speaks HTTP/2 by net/http's own means, and neither has been used; maker becomes
// what makes the connections of t. Two things only net/http's own pool can: HTTP/2 in
// the clear, and StrictMaxConcurrentRequests. It stays where they are asked for.
func speakHTTP2(t, maker *http.Transport) {
	if t.Protocols != nil && t.Protocols.UnencryptedHTTP2() || t.HTTP2 != nil && t.HTTP2.StrictMaxConcurrentRequests {
		return
	}
	pool := &http2Pool{maker: maker, hosts: make(map[string]*http2Host)}
	maker.Proxy, maker.DialTLS, maker.DialTLSContext = nil, nil, takeOver //nolint:staticcheck // net/http still heeds it
	maker.TLSNextProto, maker.ForceAttemptHTTP2 = nil, true
	maker.IdleConnTimeout = t.IdleConnTimeout // a generation may have put one
	maker.Clone()                             // which makes it ready for use, so that it shows what it offers
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t.TLSClientConfig.NextProtos = maker.TLSClientConfig.NextProtos
	t.TLSNextProto = maps.Clone(t.TLSNextProto)
	if t.TLSNextProto == nil {
		t.TLSNextProto = make(map[string]func(string, *tls.Conn) http.RoundTripper)
	}
	t.TLSNextProto["h2"] = pool.add
	t.RegisterProtocol("https", http2First{pool})
}

type takenOver struct{}

// takeOver "dials" a connection that is there already.
func takeOver(ctx context.Context, _, _ string) (net.Conn, error) {
	return ctx.Value(takenOver{}).(*tls.Conn), nil
}

// http2Pool has the HTTP/2 connections of one *http.Transport.
type http2Pool struct {
	maker *http.Transport
	mu    sync.Mutex
	hosts map[string]*http2Host // by host:port; none without a connection
}

// http2Host has those to one host. All but made is under http2Pool.mu.
type http2Host struct {
	all    []*http2Conn
	made   sync.Mutex // one is made at a time, so that the others see it
	makers int        // how many hold made, or wait for it
}

type http2Conn struct {
	*http.ClientConn
	under net.Conn
	since time.Time
	// requests are those without an answer. InFlight has not all of them: one that waits
	// for a stream, as the peer lets it have fewer than when it came, is in between. And it
	// has others: those that were given up, until the peer answers a ping.
	requests atomic.Int32

	// Under http2Pool.mu:
	taken bool // a request was sent, or is about to be
	over  bool // it takes no more, and is closed
	idle  bool // and that because it was idle
}

// http2First is asked by net/http before it dials. That it is a struct with one field,
// an exported one, is how net/http finds whose CloseIdleConnections to call as well.
type http2First struct{ Pool *http2Pool }

// RoundTrip implements http.RoundTripper.
func (p http2First) RoundTrip(req *http.Request) (*http.Response, error) {
	at := hostPort(req)
	conn, reused := p.Pool.reserve(at)
	if conn == nil {
		return nil, http.ErrSkipAltProtocol
	}
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GetConn != nil {
		trace.GetConn(at)
	}
	return conn.roundTrip(req, reused)
}

// hostPort is the key that net/http has for where the request goes.
func hostPort(req *http.Request) string {
	if req.URL.Port() != "" {
		return req.URL.Host
	}
	return net.JoinHostPort(req.URL.Hostname(), "443")
}

// CloseIdleConnections closes the connections without requests.
func (p *http2Pool) CloseIdleConnections() {
	for _, c := range p.takeIdle() {
		c.Close() // which may take its time
	}
}

func (p *http2Pool) takeIdle() (idle []*http2Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.hosts {
		p.keep(at, func(c *http2Conn) bool {
			switch {
			case c.over || c.Err() != nil:
				return false
			case c.busy():
				return true
			}
			c.over, c.idle = true, true
			idle = append(idle, c)
			return false
		})
	}
	return idle
}

// keep lets go of the connections to a host that are not to be kept. p.mu is held.
func (p *http2Pool) keep(at string, kept func(*http2Conn) bool) {
	h := p.hosts[at]
	h.all = slices.DeleteFunc(h.all, func(c *http2Conn) bool { return !kept(c) })
	if len(h.all) == 0 && h.makers == 0 {
		delete(p.hosts, at)
	}
}

// busy reports whether the connection has a request, or an answer that is being read.
func (c *http2Conn) busy() bool {
	if counted, _ := countedConnOf(c.under); counted != nil {
		return c.requests.Load() > 0 || counted.attempts.Load() > 0
	}
	return c.requests.Load() > 0 || c.InFlight() > 0
}

// live reports whether the connection has a stream or takes one. It closes one that does
// neither, as after a GOAWAY that its peer leaves at that, or where the peer is silent; then
// what waits for a stream of it is unsent. The pool's mu is held.
func (c *http2Conn) live() bool {
	switch {
	case c.over || c.Err() != nil:
		return false
	case c.Available() > 0 || c.InFlight() > 0 && c.busy():
		return true
	}
	c.over = true
	go c.Close() // TLS takes its time
	return false
}

// add takes over a connection to a host:port that net/http has dialed, and returns
// what it then sends over.
func (p *http2Pool) add(hostPort string, under *tls.Conn) http.RoundTripper {
	dialed := time.Now()
	h := p.enter(hostPort)
	defer p.leave(hostPort)
	h.made.Lock()
	defer h.made.Unlock()
	if p.available(h) {
		go under.Close() // another one has come meanwhile; TLS takes its time
		return &http2Dialed{pool: p, at: hostPort}
	}
	settled := written(under, 2) // our preface, and that the peer's settings are heeded
	cc, err := p.maker.NewClientConn(context.WithValue(context.Background(), takenOver{}, under), "https", hostPort)
	if err != nil {
		go under.Close()
		return http2Failed{err}
	}
	if !p.await(settled, dialed) {
		go cc.Close()
		return http2Failed{errHTTP2Silent}
	}
	if cc.Err() != nil {
		<-written(under, math.MaxUint64) // the goodbye of TLS was; its end tells why
	}
	made := &http2Conn{ClientConn: cc, under: under, since: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	h.all = append(h.all, made)
	d := &http2Dialed{pool: p, at: hostPort}
	d.made.Store(made)
	return d
}

// written returns a channel that is closed when n more writes to the connection have begun,
// or it was closed. For one that is not counted it is closed already.
func written(under *tls.Conn, n uint64) <-chan struct{} {
	if counted, _ := countedConnOf(under); counted != nil {
		return counted.writes(n)
	}
	c := make(chan struct{})
	close(c)
	return c
}

// settingsTimeout is that of http.DefaultTransport for a handshake.
const settingsTimeout = 10 * time.Second

// await waits for the settings that a peer begins with (RFC 9113, section 3.4), for as long
// as its handshake might take, or for the end of the connection. Before that nothing is sent:
// in TLS 1.3 the peer has yet to accept our certificate, and it may allow fewer streams than
// it would get. That they have come net/http shows by what it writes alone.
func (p *http2Pool) await(settled <-chan struct{}, dialed time.Time) bool {
	limit := cmp.Or(p.maker.TLSHandshakeTimeout, settingsTimeout)
	timer := time.NewTimer(time.Until(dialed.Add(limit)))
	defer timer.Stop()
	select {
	case <-settled:
		return true
	case <-timer.C:
		return false
	}
}

// enter has the host remain while a connection to it is made. It is where those that
// have ended are forgotten, as hosts may be many, and not be asked for again.
func (p *http2Pool) enter(hostPort string) *http2Host {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at := range p.hosts {
		p.keep(at, (*http2Conn).live)
	}
	h := p.hosts[hostPort]
	if h == nil {
		h = &http2Host{}
		p.hosts[hostPort] = h
	}
	h.makers++
	return h
}

func (p *http2Pool) leave(hostPort string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hosts[hostPort].makers--
	p.keep(hostPort, (*http2Conn).live)
}

// available reports whether a connection to the host takes another request.
func (p *http2Pool) available(h *http2Host) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(h.all, func(c *http2Conn) bool { return c.Err() == nil && c.Available() > 0 && !p.spent(c) })
}

// spent reports whether the connection has had all that it takes. p.mu is held.
func (p *http2Pool) spent(c *http2Conn) bool {
	return c.over || c.taken && p.maker.DisableKeepAlives
}

// reserve returns a connection to a host:port that takes the next request, nil where
// there is none, and whether it has taken others.
func (p *http2Pool) reserve(hostPort string) (found *http2Conn, reused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[hostPort]
	if h == nil {
		return nil, false
	}
	ended := false
	for _, c := range h.all {
		if !p.spent(c) && c.Reserve() == nil {
			found, reused, c.taken = c, c.taken, true
			c.requests.Add(1)
			break
		}
		ended = ended || !c.live()
	}
	if ended {
		p.keep(hostPort, (*http2Conn).live)
	}
	return found, reused
}

// http2Fresh is how long a connection that ends unused is news for a request, as it is
// in net/http's pool. Later a request that it was not dialed for may have found it.
const http2Fresh = 5 * time.Second

// stillborn reports whether the connection, which takes nothing, never has, and not
// since it was idle. It will not then.
func (p *http2Pool) stillborn(c *http2Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	age, idle := time.Since(c.since), p.maker.IdleConnTimeout
	if c.taken || c.idle || age >= http2Fresh || idle > 0 && age >= idle {
		return false
	}
	c.over = true
	c.requests.Add(1)
	return true
}

// roundTrip sends over the connection, which was reserved or is closed.
func (c *http2Conn) roundTrip(req *http.Request, reused bool) (*http.Response, error) {
	defer c.requests.Add(-1)
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c.under, Reused: reused, WasIdle: reused && c.InFlight() == 1})
	}
	if err := req.Context().Err(); err != nil { // as where the attempt was refused the connection
		c.Release()
		closeBody(req.Body)
		return nil, err
	}
	return c.RoundTrip(req)
}

// http2Dialed is what net/http sends over once it has dialed a connection to the host,
// and later where it thinks that it has one.
type http2Dialed struct {
	pool *http2Pool
	at   string                    // host:port
	made atomic.Pointer[http2Conn] // until the first request; nil: another was there
}

// RoundTrip implements http.RoundTripper.
func (d *http2Dialed) RoundTrip(req *http.Request) (*http.Response, error) {
	made := d.made.Swap(nil)
	if conn, reused := d.pool.reserve(d.at); conn != nil {
		return conn.roundTrip(req, reused)
	}
	if made != nil && d.pool.stillborn(made) {
		// It says why, at once as it is closed. To dial once more is for the retry policy.
		made.Close()
		return made.roundTrip(req, false)
	}
	return nil, errHTTP2None
}

var errHTTP2Silent = errors.New("no HTTP/2 settings within the TLS handshake's timeout")

var errHTTP2None = noHTTP2Conn{errors.New("no HTTP/2 connection takes another request")}

// noHTTP2Conn has net/http dial.
type noHTTP2Conn struct{ error }

// IsHTTP2NoCachedConnError marks it as that for net/http.
func (noHTTP2Conn) IsHTTP2NoCachedConnError() {}

// http2Failed is a connection that could not be taken over.
type http2Failed struct{ err error }

// RoundTrip implements http.RoundTripper.
func (f http2Failed) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// RoundTripErr has net/http take it for a failed dial.
func (f http2Failed) RoundTripErr() error { return f.err }
