package fedhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
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
	pool := &http2Pool{maker: maker}
	maker.Proxy, maker.DialTLS, maker.DialTLSContext = nil, nil, takeOver //nolint:staticcheck // net/http still heeds it
	maker.TLSNextProto, maker.ForceAttemptHTTP2 = nil, true
	maker.Clone() // which makes it ready for use, so that it shows what it offers
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
	hosts sync.Map // host:port to *http2Host
}

// http2Host has those to one host.
type http2Host struct {
	pool *http2Pool
	mu   sync.Mutex
	all  []*http2Conn
	made sync.Mutex // one is made at a time, so that the others see it
}

type http2Conn struct {
	*http.ClientConn
	under net.Conn
	taken bool // a request was sent, or is about to be; under http2Host.mu
}

// http2First is asked by net/http before it dials. That it is a struct with one field,
// an exported one, is how net/http finds whose CloseIdleConnections to call as well.
type http2First struct{ Pool *http2Pool }

// RoundTrip implements http.RoundTripper.
func (p http2First) RoundTrip(req *http.Request) (*http.Response, error) {
	known, ok := p.Pool.hosts.Load(hostPort(req))
	if !ok {
		return nil, http.ErrSkipAltProtocol
	}
	conn, reused := known.(*http2Host).reserve()
	if conn == nil {
		return nil, http.ErrSkipAltProtocol
	}
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GetConn != nil {
		trace.GetConn(hostPort(req))
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
	p.hosts.Range(func(_, host any) bool {
		host.(*http2Host).closeIdle()
		return true
	})
}

// add takes over a connection to a host:port that net/http has dialed, and returns
// what it then sends over.
func (p *http2Pool) add(hostPort string, under *tls.Conn) http.RoundTripper {
	known, _ := p.hosts.LoadOrStore(hostPort, &http2Host{pool: p})
	h := known.(*http2Host)
	h.made.Lock()
	defer h.made.Unlock()
	if h.available() {
		go under.Close() // another one has come meanwhile; TLS takes its time
		return &http2Dialed{host: h}
	}
	cc, err := p.maker.NewClientConn(context.WithValue(context.Background(), takenOver{}, under), "https", hostPort)
	if err != nil {
		go under.Close()
		return http2Failed{err}
	}
	made := &http2Conn{ClientConn: cc, under: under}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, made)
	return &http2Dialed{host: h, made: made}
}

// available reports whether a connection takes another request.
func (h *http2Host) available() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.all, h.takes)
}

// takes reports whether the connection takes another request. h.mu is held.
func (h *http2Host) takes(c *http2Conn) bool {
	return c.Available() > 0 && !(c.taken && h.pool.maker.DisableKeepAlives)
}

// reserve returns a connection that takes the next request, nil where there is none, and
// whether it has taken others. It forgets those that have ended.
func (h *http2Host) reserve() (found *http2Conn, reused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ended := false
	for _, c := range h.all {
		if h.takes(c) && c.Reserve() == nil {
			found, reused, c.taken = c, c.taken, true
			break
		}
		ended = ended || c.Err() != nil
	}
	if ended {
		h.forget()
	}
	return found, reused
}

// forget lets go of the connections that have ended. h.mu is held.
func (h *http2Host) forget() {
	kept := h.all[:0]
	for _, c := range h.all {
		if c.Err() == nil {
			kept = append(kept, c)
		}
	}
	clear(h.all[len(kept):])
	h.all = kept
}

func (h *http2Host) closeIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.all {
		if c.InFlight() == 0 {
			c.Close()
		}
	}
	h.forget()
}

// roundTrip sends over the connection, which was reserved or has ended.
func (c *http2Conn) roundTrip(req *http.Request, reused bool) (*http.Response, error) {
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c.under, Reused: reused, WasIdle: reused && c.InFlight() == 1})
	}
	return c.RoundTrip(req)
}

// http2Dialed is what net/http sends over once it has dialed a connection to the host,
// and later where it thinks that it has one.
type http2Dialed struct {
	host *http2Host
	made *http2Conn // nil: another was there
	used atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (d *http2Dialed) RoundTrip(req *http.Request) (*http.Response, error) {
	first := !d.used.Swap(true) && d.made != nil
	if conn, reused := d.host.reserve(); conn != nil {
		return conn.roundTrip(req, reused)
	}
	if first && d.made.InFlight() == 0 {
		// It has ended before it took anything, and says why. To dial once more is for
		// the retry policy.
		return d.made.roundTrip(req, false)
	}
	return nil, errHTTP2None
}

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
