package main

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedstatus"
)

// The gateway's own paths. The first segment of every other one is a peer's ID.
const (
	healthPath = "/healthz"
	statusPath = "/-/status"
)

// gateway passes requests for /{peer}/path on to the peer's first origin, through
// the transport.
type gateway struct {
	transport *fedhttp.Transport
	targets   atomic.Pointer[map[string]*target]
	remote    bool // clients of other machines are served
	stopping  atomic.Bool
	status    http.Handler
	proxy     *httputil.ReverseProxy
}

// passage is what one request goes through the gateway with.
type passage struct {
	target *target
	url    *url.URL
	host   string // that the client has asked
}

type passageKey struct{}

func passageOf(ctx context.Context) passage {
	p, _ := ctx.Value(passageKey{}).(passage)
	return p
}

func newGateway(t *fedhttp.Transport, peers []fedhttp.Peer, remote bool, logger *slog.Logger) *gateway {
	g := &gateway{transport: t, remote: remote, status: fedstatus.Handler(t)}
	g.setPeers(peers)
	g.proxy = &httputil.ReverseProxy{
		Transport:     t,
		FlushInterval: -1, // whatever a peer streams is there at once
		Rewrite:       outgoing,
		ModifyResponse: func(resp *http.Response) error {
			d, _ := fedhttp.DecisionFromResponse(resp)
			p := passageOf(resp.Request.Context())
			if err := p.target.rewrite(resp, p.host); err != nil {
				return err
			}
			resp.Header.Set(decisionHeader, decisionField(d))
			return nil
		},
		ErrorHandler: failure,
		ErrorLog:     log.New(logWriter{logger}, "", 0),
	}
	return g
}

func (g *gateway) setPeers(peers []fedhttp.Peer) {
	targets := targetsOf(peers)
	g.targets.Store(&targets)
}

// outgoing makes the request for the peer. ReverseProxy has removed hop-by-hop
// and forwarding headers.
func outgoing(r *httputil.ProxyRequest) {
	p := passageOf(r.In.Context())
	r.Out.URL, r.Out.Host = p.url, p.url.Host
	removeOwn(r.Out.Header)
	r.Out.Trailer = nil // a client's is not passed on
}

// failure answers for a call that has no response.
func failure(w http.ResponseWriter, r *http.Request, err error) {
	var e *fedhttp.Error
	if errors.As(err, &e) {
		problemOf(e).write(w, e.Decision.RetryAt)
		return
	}
	p := refuse(http.StatusBadGateway, plain(err.Error()))
	p.Title, p.Sent, p.SafeToResend = "The response cannot be passed on", "yes", false
	p.Peer = passageOf(r.Context()).target.id
	p.write(w, time.Time{})
}

// ServeHTTP serves the gateway's own paths, and passes everything else on or
// refuses it.
func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := g.foreign(r); p != nil {
		p.write(w, time.Time{})
		return
	}
	switch r.URL.Path {
	case healthPath:
		g.health(w, r)
		return
	case statusPath:
		if !isLoopback(r.RemoteAddr) {
			refuse(http.StatusForbidden, "the status page is for clients on this machine").write(w, time.Time{})
			return
		}
		g.status.ServeHTTP(w, r)
		return
	}
	if p := g.pass(w, r); p != nil {
		p.write(w, time.Time{})
	}
}

// foreign refuses what is not meant for a gateway like this: a forward proxy's
// requests, another host's, and those that a browser makes for another site.
func (g *gateway) foreign(r *http.Request) *problem {
	switch {
	case r.Method == http.MethodConnect:
		return refuse(http.StatusMethodNotAllowed, "this is no forward proxy: ask for /{peer}/path")
	case r.URL.IsAbs() || r.URL.Host != "":
		return refuse(http.StatusMisdirectedRequest, "this is no forward proxy: ask for /{peer}/path")
	case !strings.HasPrefix(r.URL.Path, "/"):
		return refuse(http.StatusBadRequest, "want a path /{peer}/path")
	case !g.remote && !isLoopback(r.Host):
		// A name that somebody else has pointed at this machine.
		return refuse(http.StatusMisdirectedRequest, "this gateway answers to names of this machine only, and "+quote(r.Host)+" is none")
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
		return refuse(http.StatusForbidden, "a browser asks for another site")
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return refuse(http.StatusForbidden, "a browser asks for another site")
		}
	}
	return nil
}

// isLoopback reports whether a host, with or without a port, is this machine by
// its very name.
func isLoopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

func (g *gateway) health(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "want GET or HEAD", http.StatusMethodNotAllowed)
	case g.stopping.Load():
		http.Error(w, "stopping", http.StatusServiceUnavailable)
	default:
		_, _ = w.Write([]byte("ok\n"))
	}
}

// pass passes the request on, or says why not.
func (g *gateway) pass(w http.ResponseWriter, r *http.Request) *problem {
	id, rest, ok := split(r.URL.EscapedPath())
	if !ok {
		return unknown("the path begins with no peer; want /{peer}/path")
	}
	t := (*g.targets.Load())[id]
	if t == nil {
		return unknown("no peer " + quote(id) + " is configured")
	}
	u, ok := t.at(rest, r.URL.RawQuery)
	if !ok {
		return refuse(http.StatusBadRequest, "the path has a \".\" or \"..\" between slashes, or control characters")
	}
	if upgrade := r.Header["Upgrade"]; len(upgrade) > 0 {
		if len(upgrade) != 1 || !strings.EqualFold(strings.TrimSpace(upgrade[0]), "h2c") {
			return refuse(http.StatusNotImplemented, "the gateway switches no protocols")
		}
		delete(r.Header, "Upgrade") // an offer, which a server may ignore
	}
	task, given, err := readTask(r.Header, time.Now())
	if err != nil {
		return refuse(http.StatusBadRequest, err.Error())
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx = context.WithValue(ctx, passageKey{}, passage{t, u, r.Host})
	if given {
		ctx = fedhttp.ContextWithTask(ctx, task)
	}
	// The answer may begin before the request has ended.
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always can
	g.proxy.ServeHTTP(earlyGuard{w}, r.WithContext(ctx))
	return nil
}

// unknown is the answer to a request for no configured peer.
func unknown(detail string) *problem {
	p := refuse(http.StatusNotFound, detail)
	o := fedhttp.OutcomeUnknownPeer
	p.Type, p.Title, p.Outcome, p.Reason = problemBase+o.String(), titles[o], o.String(), fedhttp.ReasonUnlistedOrigin.String()
	return p
}

// logWriter logs what net/http has to say of clients and their connections.
type logWriter struct{ logger *slog.Logger }

func (w logWriter) Write(line []byte) (int, error) {
	w.logger.Debug("net/http", slog.String("message", plain(strings.TrimSpace(string(line)))))
	return len(line), nil
}
