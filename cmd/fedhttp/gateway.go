package main

import (
	"context"
	"errors"
	"fmt"
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
	port      string // on which it listens
	remote    bool   // clients of other machines are served
	status    http.Handler
	proxy     *httputil.ReverseProxy
	client    *client // how it was called
}

// passage is what one request goes through the gateway with.
type passage struct {
	target *target
	url    *url.URL
	at     here
}

type passageKey struct{}

func passageOf(ctx context.Context) passage {
	p, _ := ctx.Value(passageKey{}).(passage)
	return p
}

func newGateway(t *fedhttp.Transport, peers []fedhttp.Peer, port string, remote bool, logger *slog.Logger, c *client) *gateway {
	g := &gateway{transport: t, port: port, remote: remote, status: fedstatus.Handler(t), client: c}
	g.setPeers(peers)
	g.proxy = &httputil.ReverseProxy{
		Transport:     t,
		FlushInterval: -1, // whatever a peer streams is there at once
		Rewrite:       outgoing,
		ModifyResponse: func(resp *http.Response) error {
			d, _ := fedhttp.DecisionFromResponse(resp)
			if err := unfinished(resp, d); err != nil {
				return err
			}
			p := passageOf(resp.Request.Context())
			if d.Peer != p.target.id { // the file of peers has changed in between
				return fmt.Errorf("the origin is peer %s's by now, which has answered", quote(d.Peer))
			}
			p.target.rewrite(resp, p.at)
			resp.Header.Set(decisionHeader, decisionField(d))
			return nil
		},
		ErrorHandler: g.failure,
		ErrorLog:     log.New(logWriter{logger}, "", 0),
	}
	return g
}

func (g *gateway) setPeers(peers []fedhttp.Peer) {
	targets := targetsOf(peers)
	g.targets.Store(&targets)
}

// knows reports whether there is a peer with the ID.
func (g *gateway) knows(id string) bool { return (*g.targets.Load())[id] != nil }

// outgoing makes the request for the peer. ReverseProxy has removed hop-by-hop
// fields but for "TE: trailers".
func outgoing(r *httputil.ProxyRequest) {
	p := passageOf(r.In.Context())
	r.Out.URL, r.Out.Host = p.url, p.url.Host
	h := r.Out.Header
	removePrefixed(h, ownWord)
	removePrefixed(h, "X-Forwarded")
	removePrefixed(h, "X-Envoy-") // it can tell an Envoy on the way to send again
	delete(h, "Te")
	h.Add("Via", fmt.Sprintf("%d.%d fedhttp", r.In.ProtoMajor, r.In.ProtoMinor)) // RFC 9110, section 7.6.3
	r.Out.Trailer = nil                                                          // a client's is not passed on
}

// failure answers for a call that has no response to pass on.
func (g *gateway) failure(w http.ResponseWriter, r *http.Request, err error) {
	var e *fedhttp.Error
	if errors.As(err, &e) {
		p := problemOf(e)
		p.Detail += g.client.remedy(e.Decision)
		p.write(w, e.Decision.RetryAt)
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
		w.Header().Set("X-Content-Type-Options", "nosniff")
		health(w, r)
		return
	case statusPath:
		w.Header().Set("X-Content-Type-Options", "nosniff")
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
	case !g.remote && r.Host != "" && !isLoopback(r.Host):
		// A name that somebody else has pointed at this machine. (Only clients of
		// HTTP/1.0 leave it out, which no browser is.)
		return refuse(http.StatusMisdirectedRequest, "this gateway answers to names of this machine only, and "+quote(r.Host)+" is none")
	case !strings.HasPrefix(r.URL.Path, "/"):
		return refuse(http.StatusBadRequest, "want a path /{peer}/path")
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "none" && site != "same-origin" {
			return refuse(http.StatusForbidden, "a browser asks for another site")
		}
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

func health(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "want GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}

// displayed refuses what a browser would show or run. To it all peers are one site, so
// that the page of one could act for us towards the others.
func displayed(h http.Header) *problem {
	for _, use := range h["Sec-Fetch-Dest"] {
		if use != "empty" { // what a script fetches
			return refuse(http.StatusForbidden, "a browser would use the answer as "+quote(use)+"; the gateway is for programs")
		}
	}
	if len(h["Upgrade-Insecure-Requests"]) > 0 {
		return refuse(http.StatusForbidden, "a browser would show the answer; the gateway is for programs")
	}
	return nil
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
	u.ForceQuery = r.URL.ForceQuery
	if p := displayed(r.Header); p != nil {
		return p
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
	if name := t.routes.evaded(r.Header); name != "" {
		return refuse(http.StatusForbidden, name+" can make another request of it than the routes in the file of peers go by")
	}
	if field := t.routes.overridden(r.Method, u, task); field != "" {
		return refuse(http.StatusForbidden, plain(field)+" is not what the file of peers says of this request")
	}
	if g.client.policiesFile == "" { // no policy can come
		task.PolicyDeadline, given = time.Now(), true
	}
	ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	through := passage{t, u, here{r.Host, g.port, g.remote}}
	ctx = context.WithValue(ctx, passageKey{}, through)
	if given {
		ctx = fedhttp.ContextWithTask(ctx, task)
	}
	// The answer may begin before the request has ended.
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always can
	g.proxy.ServeHTTP(peerWriter{w, through}, r.WithContext(ctx))
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
