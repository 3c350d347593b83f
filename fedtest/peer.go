package fedtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"
)

// Config says how a [Peer] behaves. The zero value is a peer that allows
// everything, checks the anchor of requests that name one, signs its answers
// with every signal, and never quarantines. A Config is copied by [NewPeer].
type Config struct {
	// Policy decides on the requests that reach the policy engine. It is called
	// concurrently. Nil: everything is allowed.
	Policy func(Request) Verdict
	// Handler is the application, run for each request that policy allows. The
	// signals are already in its header, and it may change them. Nil: 200 and a
	// small JSON.
	Handler http.Handler
	// SeparateEngine gives the policy engine a listener of its own, which the
	// routing layer reaches over HTTP, on a new connection for each request.
	// False: the routing layer calls the engine.
	SeparateEngine bool

	// ChecksAnchor says which requests the routing layer checks the anchor of.
	// Nil: all of them.
	ChecksAnchor func(*http.Request) bool
	// RequireAnchor makes a request without an anchor version stale. False: it
	// passes.
	RequireAnchor bool
	// StaleStatus is the status of the answer to a stale anchor. 0: 403.
	StaleStatus int
	// AnchorTTL is how long an anchor is valid after its issue. 0: the anchors
	// have no expiry. Expiry is told to the clients, and not enforced.
	AnchorTTL time.Duration

	// DefaultTerms is what the default policy grants, under which every request
	// runs that names no agreed policy. Nil: output-licensing is
	// internal-reuse-only.
	DefaultTerms map[string]string
	// DefaultDigest is the default policy's digest. Empty: Digest(DefaultTerms).
	DefaultDigest string
	// Receipt gives the policy digest that the answer to an allowed request
	// claims it ran under; empty for no receipt. Nil: Request.RunsUnder, the
	// truth.
	Receipt func(Request) string

	// QuarantineAt is how many denials put a client into quarantine: from then
	// on the policy engine denies it everything, and goes on counting. 0: never.
	QuarantineAt int

	// Hidden are the signals that no answer has. 0: all are shown. See
	// [Peer.Hide] and [Hiding].
	Hidden Signal
	// RoutingPrefix and PolicyPrefix begin the correlation ids of the two
	// layers. Empty: "rt-" and "pe-".
	RoutingPrefix, PolicyPrefix string

	// Task, Client and Capability say what a request is for. Nil: the header
	// HeaderTask, HeaderClient or HeaderCapability; where that is absent the
	// path, DefaultClient, and the path's first segment.
	Task, Client, Capability func(*http.Request) string

	// HTTP2 has the peer speak HTTP/2 as well: over TLS, and in clear text with
	// prior knowledge. Its own Client and Transport then speak nothing else.
	HTTP2 bool
	// TLS is what StartTLS starts from, for instance to ask for client
	// certificates. Where it has no certificate it gets one. Nil: an empty one.
	TLS *tls.Config
	// Now is the clock of logs, ledgers and anchors. Nil: time.Now, which in a
	// testing/synctest bubble is the bubble's.
	Now func() time.Time
	// ErrorLog gets what net/http has to say of broken connections and
	// panicking handlers. Nil: the standard logger.
	ErrorLog *log.Logger
}

// Peer is another organisation's registry, for tests: see the package's
// description. Make one with [NewPeer], [NewTLSPeer] or [NewUnstartedPeer].
type Peer struct {
	// URL of the routing layer, which clients call, without a trailing slash.
	// Start and StartTLS set it. Before, it is a loopback address where nothing
	// listens, unlike that of any other peer of the process, which
	// Peer.Transport and Transport reach in memory.
	URL string

	// Routing is the routing layer, and Engine the policy engine behind it.
	Routing *Routing
	Engine  *Engine

	cfg     Config
	routing *endpoint
	engine  *endpoint              // without SeparateEngine it only says whether it is down
	proxy   *httputil.ReverseProxy // nil without SeparateEngine
	ctx     context.Context        // of every request; ends with Close
	cancel  context.CancelFunc
	active  sync.WaitGroup // handlers, and loops that accept connections
	closing sync.Once

	mu           sync.Mutex // guards what follows; held for no I/O and no user's function but Now
	started      bool
	closed       bool
	client       *http.Client
	hidden       Signal
	degraded     bool
	correlations uint64
	authors      map[string]Layer
	anchor       anchorState
	script       script
	books        *books
	advertised   map[string]Advertisement
	agreed       map[agreement]map[string]string
	exchanges    map[uint64]*exchange
	lastExchange uint64
}

// NewPeer returns a peer that listens on a loopback port of the system's
// choice. It panics where it cannot listen. The caller calls Close.
func NewPeer(cfg Config) *Peer {
	p := NewUnstartedPeer(cfg)
	p.Start()
	return p
}

// NewTLSPeer is [NewPeer] with https.
func NewTLSPeer(cfg Config) *Peer {
	p := NewUnstartedPeer(cfg)
	p.StartTLS()
	return p
}

// NewUnstartedPeer returns a peer without a socket. It can be started, or used
// as it is, in memory, by [Peer.Transport]. The caller calls Close.
func NewUnstartedPeer(cfg Config) *Peer {
	cfg.setDefaults()
	p := &Peer{
		cfg:        cfg,
		hidden:     cfg.Hidden,
		authors:    map[string]Layer{},
		script:     script{byKey: map[string][]Step{}},
		books:      newBooks(),
		advertised: map[string]Advertisement{},
		agreed:     map[agreement]map[string]string{},
		exchanges:  map[uint64]*exchange{},
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.Routing, p.Engine = &Routing{peer: p}, &Engine{peer: p}
	p.routing, p.engine = p.newEndpoint(p.Routing), p.newEndpoint(p.Engine)
	if cfg.SeparateEngine {
		p.proxy = p.newProxy()
	}
	p.URL = "http://" + p.routing.address()
	p.Rotate()
	return p
}

func (c *Config) setDefaults() {
	if c.StaleStatus == 0 {
		c.StaleStatus = http.StatusForbidden
	}
	if c.DefaultTerms == nil {
		c.DefaultTerms = map[string]string{"output-licensing": "internal-reuse-only"}
	}
	c.DefaultTerms = maps.Clone(c.DefaultTerms)
	if c.DefaultDigest == "" {
		c.DefaultDigest = Digest(c.DefaultTerms)
	}
	if c.RoutingPrefix == "" {
		c.RoutingPrefix = "rt-"
	}
	if c.PolicyPrefix == "" {
		c.PolicyPrefix = "pe-"
	}
	if c.Task == nil {
		c.Task = defaultTask
	}
	if c.Client == nil {
		c.Client = defaultClient
	}
	if c.Capability == nil {
		c.Capability = defaultCapability
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

// Start has the peer listen on loopback, over plain HTTP. It panics where the
// peer was started or closed before, and where it cannot listen.
func (p *Peer) Start() { p.start(false) }

// StartTLS is [Peer.Start] with https. The certificate is the peer's own:
// [Peer.Client] and [Peer.Transport] trust it, others by [Peer.CertPool]. An
// engine of its own keeps to plain HTTP.
func (p *Peer) StartTLS() { p.start(true) }

func (p *Peer) start(secure bool) {
	p.mu.Lock()
	again := p.started || p.closed
	p.started, p.client = true, nil
	p.mu.Unlock()
	if again {
		panic("fedtest: the peer was started or closed before")
	}
	scheme := "http://"
	if secure {
		scheme = "https://"
		p.routing.useTLS(p.cfg.TLS)
	}
	p.routing.listen()
	if p.proxy != nil {
		p.engine.listen()
	}
	p.URL = scheme + p.routing.address()
}

// Close closes all listeners and connections, ends the context of every
// request, and waits until all handlers have ended, scripted ones that hang
// included. Closing again does nothing.
func (p *Peer) Close() {
	p.closing.Do(func() {
		p.mu.Lock()
		p.closed = true
		client := p.client
		p.mu.Unlock()
		p.cancel()
		p.routing.close()
		p.engine.close()
		if client != nil {
			client.CloseIdleConnections()
		}
		p.active.Wait()
	})
}

// begin notes that a handler runs; false where the peer is closed.
func (p *Peer) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.active.Add(1)
	return true
}

func (p *Peer) end() { p.active.Done() }

// EngineURL returns the URL of the policy engine's own listener, which
// StartEngine changes; empty without [Config].SeparateEngine.
func (p *Peer) EngineURL() string {
	if p.proxy == nil {
		return ""
	}
	return "http://" + p.engine.address()
}

// StopEngine takes the policy engine down: from now on the routing layer
// answers 502 for what it would deliver. A request that the engine is at is
// not broken off. Stopping it again does nothing.
func (p *Peer) StopEngine() { p.engine.stop() }

// StartEngine brings the policy engine back. It listens on another port.
func (p *Peer) StartEngine() { p.engine.resume() }

// RefuseConnections makes the next n attempts to connect to the routing layer
// in memory fail, as on a port where nothing listens. (For a refusal by a
// socket, use the URL of a closed peer.)
func (p *Peer) RefuseConnections(n int) { p.routing.refuseNext(n) }

// Client returns an HTTP client for the peer: over its socket where it was
// started, in memory where not. It trusts the peer's certificate, and Close
// closes its idle connections.
func (p *Peer) Client() *http.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client == nil {
		transport := Transport(p)
		if p.started {
			transport.DialContext = (&net.Dialer{}).DialContext
		}
		p.client = &http.Client{Transport: transport}
	}
	return p.client
}

// CertPool returns a pool with the certificate that the peer presents; empty
// without StartTLS.
func (p *Peer) CertPool() *x509.CertPool {
	pool := x509.NewCertPool()
	p.routing.addCert(pool)
	return pool
}
