package fedtest

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
)

// headerExchange carries the number of an exchange from the routing layer to
// an engine of its own. It shows in no log.
const headerExchange = "X-Fedtest-Exchange"

type exchangeKey struct{}

// exchange is one request at the routing layer: what a Step finds in the
// request's context, and what travels with it to the policy engine. It belongs
// to the handler that serves the request.
type exchange struct {
	peer    *Peer
	number  uint64
	entry   *Entry           // nil at a well-known path: such a request is not logged
	serve   http.HandlerFunc // what Pass does
	hidden  Signal
	verdict *Verdict // what the engine is told to decide; nil: it decides itself

	handedOver bool // to the engine, and so counted as delivered
}

func exchangeOf(r *http.Request) *exchange {
	x, ok := r.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		panic("fedtest: this Step works only in the script of a Peer")
	}
	return x
}

// Routing is a peer's routing layer, its front door: [Peer.Routing].
type Routing struct {
	peer    *Peer
	journal journal
}

// Log returns the requests that reached the routing layer so far, oldest
// first. Requests to the well-known paths are not in it.
func (l *Routing) Log() []Entry { return l.journal.Log() }

// ServeHTTP takes a request as the routing layer does: by the next step of the
// script, or in the ordinary way.
func (l *Routing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := l.peer
	if !p.begin() {
		panic(http.ErrAbortHandler)
	}
	defer p.end()

	r.Header.Del(headerExchange)
	x := &exchange{peer: p, serve: l.pass}
	switch r.URL.Path {
	case AnchorPath:
		x.serve = p.serveAnchor
		p.mu.Lock()
		p.anchor.fetches++
		p.anchor.since++
		p.mu.Unlock()
	case CapabilitiesPath:
		x.serve = p.serveCapabilities
	default:
		x.entry = l.journal.add(p.newEntry(r))
		p.mu.Lock()
		p.books.arrived(x.entry)
		p.mu.Unlock()
		r = recordBody(r, &l.journal, x.entry)
	}
	step := p.nextStep(r, x)
	step(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
}

// pass is the ordinary way.
func (l *Routing) pass(w http.ResponseWriter, r *http.Request) {
	if l.peer.stale(r) {
		l.refuseStale(w, r)
		return
	}
	l.deliver(w, r)
}

func (l *Routing) refuseStale(w http.ResponseWriter, r *http.Request) {
	x := exchangeOf(r)
	l.peer.sign(w, x).set(SignalAnchorIssuedAt, HeaderAnchorIssuedAt, formatTime(l.peer.Anchor().IssuedAt))
	l.refuse(w, r, l.peer.cfg.StaleStatus)
}

// refuse answers for the routing layer: the request went no further.
func (l *Routing) refuse(w http.ResponseWriter, r *http.Request, status int) {
	drain(r)
	x := exchangeOf(r)
	id := l.peer.sign(w, x).author(LayerRouting, "false")
	l.correlated(x, id)
	writeProblem(w, problem{Status: status, CorrelationID: id})
}

func (l *Routing) correlated(x *exchange, id string) {
	if x.entry != nil {
		l.journal.update(func() { x.entry.CorrelationID = id })
	}
}

// deliver hands the request to the policy engine.
func (l *Routing) deliver(w http.ResponseWriter, r *http.Request) {
	p, x := l.peer, exchangeOf(r)
	if p.proxy == nil && p.engine.isDown() {
		l.refuse(w, r, http.StatusBadGateway)
		return
	}
	l.handOver(x)
	if p.proxy == nil {
		p.Engine.ServeHTTP(w, r)
		return
	}
	p.mu.Lock()
	p.lastExchange++
	x.number = p.lastExchange
	atEngine := *x // an engine of its own may still be at it when this handler has ended
	p.exchanges[x.number] = &atEngine
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.exchanges, x.number)
		p.mu.Unlock()
	}()
	p.proxy.ServeHTTP(w, r)
}

func (l *Routing) handOver(x *exchange) {
	if x.entry == nil || x.handedOver {
		return
	}
	x.handedOver = true
	l.peer.mu.Lock()
	l.peer.books.delivered(x.entry, 1)
	l.peer.mu.Unlock()
}

func (l *Routing) takeBack(x *exchange) {
	if !x.handedOver {
		return
	}
	x.handedOver = false
	l.peer.mu.Lock()
	l.peer.books.delivered(x.entry, -1)
	l.peer.mu.Unlock()
}

// newProxy returns the routing layer's way to an engine of its own, over HTTP.
func (p *Peer) newProxy() *httputil.ReverseProxy {
	errorLog := p.cfg.ErrorLog
	if errorLog == nil {
		errorLog = log.Default()
	}
	return &httputil.ReverseProxy{
		ErrorLog:      errorLog,
		FlushInterval: -1,
		// A connection for each request: net/http sends a request again where a
		// pooled connection dies, and the engine would count what no client sent.
		Transport: &http.Transport{DialContext: p.dialEngine, DisableKeepAlives: true, DisableCompression: true},
		Rewrite: func(pr *httputil.ProxyRequest) {
			pr.Out.URL.Scheme, pr.Out.URL.Host = "http", "engine"
			pr.Out.URL.RawQuery = pr.In.URL.RawQuery
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if values, ok := pr.In.Header[name]; ok {
					pr.Out.Header[name] = values
				}
			}
			pr.Out.Header.Set(headerExchange, strconv.FormatUint(exchangeOf(pr.In).number, 10))
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			x := exchangeOf(r)
			var dial *net.OpError
			if errors.As(err, &dial) && dial.Op == "dial" {
				p.Routing.takeBack(x)
			} else {
				// The engine may have seen it, so the routing layer must not say that
				// policy was not evaluated.
				x.hidden |= SignalEvaluated | SignalCorrelationPrefix
			}
			if r.Context().Err() != nil {
				panic(http.ErrAbortHandler) // nobody waits for an answer
			}
			p.Routing.refuse(w, r, http.StatusBadGateway)
		},
	}
}

func (p *Peer) dialEngine(ctx context.Context, _, _ string) (net.Conn, error) {
	return p.engine.dial(ctx)
}
