package fedhttp

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Peer is another organisation's registry: where it is reached, how its
// answers are read, and what may be asked of it. The zero value of every field
// but ID and Origins is a documented default.
type Peer struct {
	// ID names the peer in tasks, spans, errors and the PolicyBook. Required,
	// at most 256 bytes of printable ASCII.
	ID string
	// Origins are where the peer is reached: "https://registry.b.example", the
	// port optional. At least one, and none that another peer claims. Plain
	// http is accepted for loopback only, unless AllowPlaintext, and a connection
	// that leads elsewhere, by the resolver's doing or a proxy's, is refused.
	Origins []string
	// Base sends this peer's requests, as Config.Base does the others'. Nil:
	// Config.Base. Peers that name the same *http.Transport share one clone of it
	// while they are configured.
	Base http.RoundTripper
	// DefaultTerms are what the peer's own default policy grants. A task whose
	// obligations they grant needs no agreement. Nil: nothing is granted.
	DefaultTerms Terms
	// Routes give requests that carry no Task one, or complete theirs, so that
	// existing code needs no change. The most specific pattern wins.
	Routes []Route
	// RequireTask refuses a request that has no capability.
	RequireTask bool
	// Signals says how the peer shows who authored a failure.
	Signals Signals
	// Retry bounds what is sent again.
	Retry RetryPolicy
	// Breaker stops calls to a peer that fails.
	Breaker BreakerPolicy
	// Hold is how tasks wait for their policy.
	Hold HoldPolicy
	// Denial is how rejections narrow what later tasks may ask.
	Denial DenialPolicy
	// Receipt is how the digest that a response was produced under is checked.
	Receipt ReceiptMode
	// Propagation is what of the trace context crosses the boundary.
	Propagation Propagation
	// AllowPlaintext accepts plain http origins beyond loopback. Signals and
	// tasks can then be read and forged on the way.
	AllowPlaintext bool
	// RequireAnchor never sends to this peer without a valid anchor.
	RequireAnchor bool
}

// Route gives the requests that match a pattern their Task defaults.
type Route struct {
	// Pattern is a pattern of http.ServeMux without a host: "POST /v1/tasks/{id}".
	// Paths match letter for letter. What a peer may take for another spelling of
	// one (other letter case, "/v1/tasks;x") needs a route that matches it too; "/"
	// matches whatever no other does.
	Pattern string
	// Task completes the request's own: fields that it leaves open are taken
	// from here, and obligations add up.
	Task Task
}

// UnlistedPolicy is what happens to requests to no configured peer. It is a
// closed set; the zero value is RefuseUnlisted.
type UnlistedPolicy uint8

// The policies for unlisted origins.
const (
	// RefuseUnlisted fails them with ErrUnknownPeer.
	RefuseUnlisted UnlistedPolicy = iota
	// PassUnlisted hands them to the base unchanged and undecided: to a clone of its own
	// of an *http.Transport, with its own connections and net/http's own resends. Refused all the
	// same are a URL whose origin cannot be read, since it may be a peer's, and a
	// task with obligations, since nobody has agreed to them.
	PassUnlisted
)

var unlistedNames = []string{"refuse", "pass"}

// String returns the policy's token, such as "refuse".
func (u UnlistedPolicy) String() string { return enumString(unlistedNames, "unlisted policy", u) }

// MarshalText returns the policy's token, or an error for a value outside the set.
func (u UnlistedPolicy) MarshalText() ([]byte, error) {
	return enumMarshal(unlistedNames, "unlisted policy", u)
}

// UnmarshalText parses a policy's token.
func (u *UnlistedPolicy) UnmarshalText(text []byte) error {
	return enumUnmarshal(unlistedNames, "unlisted policy", u, text)
}

// peer is a Peer made ready for use, with its defaults in place. It is never
// changed: SetPeers makes a new one around the same peerState.
type peer struct {
	Peer
	trust   *trustBase
	origins []origin
	signals signalTable
	strip   *fieldSet // of the caller's header: what this transport sets, or keeps on this side
	routes  *routeTable
	clocks  *attemptClocks // of all peers with the same AttemptTimeout
	*peerState
}

// task returns the Task of the request: its own, completed by its route's.
func (p *peer) task(req *http.Request) *Task {
	task := carriedTask(req)
	if p.routes != nil {
		task = p.routes.complete(task, req)
	}
	return task
}

// peerTable finds a request's peer. It is immutable.
type peerTable struct {
	peers    []*peer
	byOrigin map[origin]*place
	// byHost answers for the usual spellings of each scheme without normalising
	// anything.
	byHost map[string]map[string]*place
	// byName has the peers of a host, whatever the port.
	byName map[string][]*peer
	// nowhere is where a request goes that goes to no peer.
	nowhere *place
}

// place is one origin of a peer.
type place struct {
	t    *Transport
	peer *peer // nil: nowhere
	origin
	portNumber int
}

// find returns the peer that the request goes to and the origin of it, nowhere
// where there is none. A request whose Host says another host than its URL goes to the
// peer of the URL. Where that host is another peer's, it is no peer's: a server
// that both are behind would answer for the other, and what was agreed with the one
// is not what holds there.
func (t *peerTable) find(req *http.Request) (*place, Reason) {
	at, unknown := t.lookup(req.URL)
	if unknown != ReasonBadURL && req.Host != "" && req.Host != req.URL.Host && !t.consistent(req.Host, at) {
		return t.nowhere, ReasonBadURL
	}
	return at, unknown
}

// consistent reports whether a request with the Host can be one to the place.
func (t *peerTable) consistent(hostport string, at *place) bool {
	host, _, err := splitHostPort(hostport)
	if err == nil {
		host, err = normalHost(host)
	}
	if err != nil {
		return false // net/http may make a peer's of it
	}
	others := t.byName[host]
	return len(others) == 0 || slices.Contains(others, at.peer)
}

// lookup returns the peer that u belongs to and the origin of it, nowhere where
// there is none.
func (t *peerTable) lookup(u *url.URL) (*place, Reason) {
	if u != nil && u.Opaque == "" {
		if at := t.byHost[u.Scheme][u.Host]; at != nil {
			return at, ReasonNone
		}
	}
	o, err := originOf(u)
	if err != nil {
		return t.nowhere, ReasonBadURL
	}
	if at := t.byOrigin[o]; at != nil {
		return at, ReasonNone
	}
	return t.nowhere, ReasonUnlistedOrigin
}

// compilePeers validates peers and makes them ready. Faults that were found
// before join those that it finds. state returns what outlives a change of
// configuration.
func compilePeers(peers []Peer, found faults, state func(Peer) *peerState) (*peerTable, error) {
	t := &peerTable{byOrigin: make(map[origin]*place), byHost: map[string]map[string]*place{"http": {}, "https": {}}, byName: make(map[string][]*peer), nowhere: &place{}}
	ids := make(map[string]int, len(peers))
	for i, cfg := range peers {
		fault := func(field, format string, args ...any) {
			found.add(&ConfigError{i, cfg.ID, field, format, args})
		}
		if first, dup := ids[cfg.ID]; dup {
			fault("ID", "is that of %v too", ConfigValue{Field: fmt.Sprintf("Peers[%d]", first)})
		}
		ids[cfg.ID] = i
		p := compilePeer(cfg, fault)
		for j, o := range p.origins {
			if o == (origin{}) {
				continue // it has a fault
			}
			if other := t.byOrigin[o]; other != nil {
				if other.peer != p {
					fault(fmt.Sprintf("Origins[%d]", j), "%s is claimed by peer %s too", o,
						ConfigValue{fmt.Sprintf("Peers[%d].ID", slices.Index(t.peers, other.peer)), quote(other.peer.ID)})
				}
				continue
			}
			at := &place{peer: p, origin: o}
			at.portNumber, _ = strconv.Atoi(o.port) // a port by its making
			t.byOrigin[o] = at
			t.byName[o.host] = append(t.byName[o.host], p)
			text := o.String()
			host := text[len(o.scheme)+len("://"):]
			t.byHost[o.scheme][host] = at
			if o.port == defaultPort(o.scheme) {
				t.byHost[o.scheme][host+":"+o.port] = at
			}
		}
		t.peers = append(t.peers, p)
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	// Only now, with everything known to be valid, is state made or taken over.
	clocks := make(map[time.Duration]*attemptClocks)
	for _, p := range t.peers {
		p.peerState = state(p.Peer)
		limit := p.Retry.AttemptTimeout
		if clocks[limit] == nil {
			clocks[limit] = newAttemptClocks(limit)
		}
		p.clocks = clocks[limit]
	}
	return t, nil
}

func compilePeer(cfg Peer, fault func(field, format string, args ...any)) *peer {
	if !isPeerID(cfg.ID) {
		fault("ID", "want 1 to %d bytes of printable ASCII", ConfigValue{Value: maxPeerID})
	}
	p := &peer{Peer: cfg}
	p.Origins = slices.Clone(cfg.Origins)
	p.DefaultTerms = maps.Clone(cfg.DefaultTerms)
	if len(cfg.Origins) == 0 {
		fault("Origins", "want at least one, such as \"https://registry.b.example\"")
	}
	p.origins = make([]origin, len(cfg.Origins))
	for i, s := range cfg.Origins {
		field := fmt.Sprintf("Origins[%d]", i)
		o, err := parseOrigin(s)
		switch {
		case err != nil:
			fault(field, "%v; want scheme://host or scheme://host:port", err)
			continue
		case o.scheme == "http" && !o.loopback() && !cfg.AllowPlaintext:
			fault(field, "%s is plain http beyond loopback; use https or set AllowPlaintext", o)
			continue
		}
		p.origins[i] = o
	}
	p.signals = cfg.Signals.compile(fault)
	p.routes = compileRoutes(cfg.Routes, fault)
	p.Retry = cfg.Retry.withDefaults(fault)
	p.Breaker = cfg.Breaker.withDefaults(fault)
	p.Hold = cfg.Hold.withDefaults(fault)
	p.Denial = cfg.Denial.withDefaults(fault)
	if int(cfg.Receipt) >= len(receiptNames) {
		fault("Receipt", "%d is no receipt mode; want one of "+enumChoices(receiptNames), cfg.Receipt)
	}
	if int(cfg.Propagation) >= len(propagationNames) {
		fault("Propagation", "%d is no propagation; want one of "+enumChoices(propagationNames), cfg.Propagation)
	}
	return p
}

const maxPeerID = 256

func isPeerID(id string) bool { return id != "" && len(id) <= maxPeerID && isPlain(id) }

// orDefault returns d, or standard where d is zero, and reports a negative d.
func orDefault(d, standard time.Duration, field string, fault func(field, format string, args ...any)) time.Duration {
	if d < 0 {
		fault(field, "%v is negative; want a positive one, or none for the default", d)
	}
	if d == 0 {
		return standard
	}
	return d
}

// rateOrDefault is orDefault for rates and ratios.
func rateOrDefault(r, standard float64, field string, fault func(field, format string, args ...any)) float64 {
	if r < 0 || math.IsNaN(r) || math.IsInf(r, 0) {
		fault(field, "%v is no rate; want a finite number, not negative", r)
	}
	if r == 0 {
		return standard
	}
	return r
}

// routeTable matches requests as http.ServeMux does. It looks the pattern up
// and not the handler: for a path that a server would clean first, ServeMux
// names the pattern that the clean path has, and so "//v1/./tasks" cannot dodge
// the obligations of "/v1/tasks".
type routeTable struct {
	mux   *http.ServeMux
	tasks map[string]*Task
}

func compileRoutes(routes []Route, fault func(field, format string, args ...any)) *routeTable {
	if len(routes) == 0 {
		return nil
	}
	t := &routeTable{mux: http.NewServeMux(), tasks: make(map[string]*Task, len(routes))}
	first := make(map[string]int, len(routes))
	for i, r := range routes {
		field := fmt.Sprintf("Routes[%d]", i)
		if why := usable(r.Pattern); why != "" {
			fault(field+".Pattern", "%v; want [METHOD ]/path, without a host", fmt.Errorf("%s is not usable: %s", quote(r.Pattern), why))
		} else if other, why := conflict(t.mux, r.Pattern); why != "" {
			fault(field+".Pattern", "%s conflicts with %v: %s", quote(r.Pattern),
				ConfigValue{Field: fmt.Sprintf("Routes[%d].Pattern", first[other])}, ConfigValue{"Routes", why})
		} else {
			first[r.Pattern] = i
		}
		if len(r.Task.Obligations) > 0 && r.Task.Capability == "" {
			fault(field+".Task.Capability", "is empty, and Obligations need one")
		}
		task := r.Task
		task.Obligations = maps.Clone(task.Obligations)
		t.tasks[r.Pattern] = &task
	}
	return t
}

// usable returns why a pattern can be no route's, "" where it can.
func usable(pattern string) (why string) {
	path := pattern
	if end := strings.IndexAny(pattern, " \t"); end > 0 {
		path = strings.TrimLeft(pattern[end:], " \t")
	}
	if !strings.HasPrefix(path, "/") {
		return "its path does not begin with /"
	}
	return sanitize(handle(http.NewServeMux(), pattern))
}

// conflict adds a usable pattern to mux, or returns the one that is there already
// and conflicts with it, and why.
func conflict(mux *http.ServeMux, pattern string) (other, why string) {
	text := handle(mux, pattern)
	if text == "" {
		return "", ""
	}
	// Where in this file they were registered is of no use to anybody.
	_, rest, _ := strings.Cut(text, ") conflicts with pattern ")
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		other, _ = strconv.Unquote(quoted)
	}
	_, why, _ = strings.Cut(rest, "):\n")
	return other, cmp.Or(sanitize(strings.ReplaceAll(why, "\n", " ")), "a request can match both")
}

// handle registers pattern. ServeMux panics on what it does not accept; that is
// what handle returns.
func handle(mux *http.ServeMux, pattern string) (fault string) {
	defer func() {
		if v := recover(); v != nil {
			fault = fmt.Sprint(v)
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return ""
}

// complete gives task the defaults of the request's route. A peer may read a request in
// more than one way: what an escaped slash stands for divides the path or does not, dot
// segments lead up or are names like others, and a method in small letters is the one in
// capitals or is not. Where those lead to several routes the obligations of all hold.
func (t *routeTable) complete(task *Task, req *http.Request) *Task {
	task = t.completeAs(req.Method, task, req.URL)
	if capitals := strings.ToUpper(req.Method); capitals != req.Method {
		task = t.completeAs(capitals, task, req.URL)
	}
	return task
}

func (t *routeTable) completeAs(method string, task *Task, to *url.URL) *Task {
	if to.RawPath != "" {
		dots := strings.NewReplacer("%2e", ".", "%2E", ".")
		task = t.completeBy(method, task, url.URL{Path: to.Path, RawPath: dots.Replace(to.EscapedPath())})
	}
	return t.completeBy(method, task, url.URL{Path: to.Path})
}

// completeBy takes the path with its dots as they are. ServeMux removes dot segments, but
// not where they are escaped.
func (t *routeTable) completeBy(method string, task *Task, u url.URL) *Task {
	task = task.withDefaults(t.match(method, u))
	if strings.Contains(u.Path, "/.") {
		u.RawPath = strings.ReplaceAll(u.EscapedPath(), ".", "%2E")
		task = task.withDefaults(t.match(method, u))
	}
	return task
}

// match asks ServeMux with a server's view of the request: the target is in the
// URL's path, and the host, which no pattern has, is left out.
func (t *routeTable) match(method string, u url.URL) *Task {
	probe := &http.Request{Method: method, URL: &u}
	if method == "" {
		probe.Method = http.MethodGet
	}
	if u.Path == "" {
		u.Path = "/"
	}
	if method == http.MethodConnect {
		probe.URL = u.JoinPath() // which ServeMux leaves as it is, and another server cleans
	}
	_, pattern := t.mux.Handler(probe)
	if method == http.MethodConnect && strings.HasSuffix(pattern, "/") {
		// Where a slash is missing at the end, that may be no pattern but the path with it.
		probe.URL = u.JoinPath("/")
		_, pattern = t.mux.Handler(probe)
	}
	if task := t.tasks[pattern]; task != nil {
		return task
	}
	return &noTask
}
