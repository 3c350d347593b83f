package fedhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Config configures a [Transport]. Every field but Peers may be left zero.
type Config struct {
	// Peers are the registries that may be called.
	Peers []Peer
	// Base sends the requests. Nil: http.DefaultTransport. An *http.Transport is
	// cloned, and the clone used; see the package documentation for what another
	// base can prove.
	Base http.RoundTripper
	// Book is what is known of policies. Nil: nothing can ever be agreed. A task with
	// obligations that the peer's DefaultTerms do not grant is then refused at once,
	// and a Route with such a task is a fault.
	Book *PolicyBook
	// Anchors fetches trust anchors. Nil: nothing can be refreshed, so nothing
	// is ever resent.
	Anchors AnchorSource
	// Coordinator is told of unresolved policies. Nil: they are logged.
	Coordinator Coordinator
	// Escalator is told of what an operator must see. Nil: the call's line in the
	// log, an error, is all there is.
	Escalator Escalator
	// Denials keeps rejections. Nil: a NewDenialLedger of its own.
	Denials DenialLedger
	// ClientCertificate gives the certificate that is shown to a peer whose server
	// asks for one. It is called for each handshake, so a certificate that was
	// renewed is shown on the next connection; sessions are not resumed, since they
	// would go on under the one before. A nil certificate shows none. An error or a
	// panic ends the call as OutcomePeerUnavailable with ReasonClientCertificate,
	// unsent and not tried again. Needs bases that are an *http.Transport without
	// DialTLS. Nil: what the base has. It must be safe for concurrent use.
	ClientCertificate func(peer string, request *tls.CertificateRequestInfo) (*tls.Certificate, error)
	// Correlation looks up who minted a correlation id, where nothing else
	// spoke. Nil: only Signals.CorrelationPrefixes do.
	Correlation CorrelationResolver
	// Unlisted is what happens to requests to no configured peer. Zero: refused.
	Unlisted UnlistedPolicy
	// TracerProvider makes the spans. Nil: OpenTelemetry's global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the instruments. Nil: OpenTelemetry's global one. Two
	// Transports with one provider must not have a peer's ID in common: of the state
	// of its breaker, anchor and held tasks only one is shown.
	MeterProvider metric.MeterProvider
	// Propagator is what the program's own instrumentation writes trace contexts
	// with. The fields that it names do not cross to a peer, unless
	// Peer.Propagation says so. Nil: OpenTelemetry's global one, its fields as they
	// are at NewTransport.
	Propagator propagation.TextMapPropagator
	// Logger takes a line for each call that was not delivered, and what no sink
	// does. Of one peer and reason it gets 10 lines a minute and then the count of
	// the others. Levels: error for routing_failed, ambiguous and policy_mismatch;
	// info for policy_unresolved; debug for canceled; warning for the others. Nil:
	// slog.Default() at the time.
	Logger *slog.Logger
}

// Transport is an http.RoundTripper for calls to other organisations'
// registries. It sends a task only under an agreed policy, and sends a request
// again only where it did not reach a policy engine. Use one for all peers, and
// for the life of the process.
//
// It is safe for concurrent use. The zero value refuses every request.
type Transport struct {
	base        http.RoundTripper
	passing     http.RoundTripper // what requests to no peer go over; nil: they do not
	book        *PolicyBook
	noBook      bool // book is an empty one that nobody can write to
	anchors     AnchorSource
	ledger      DenialLedger
	unrecorded  memoryLedger // denials that the ledger failed to record
	correlation CorrelationResolver
	certificate func(string, *tls.CertificateRequestInfo) (*tls.Certificate, error)
	unlisted    UnlistedPolicy
	logger      *slog.Logger
	tracing     *tracing
	metrics     *metrics

	escalations notifier[Escalation]
	unresolved  notifier[Unresolved]

	lastEscalations recent[Escalation]
	lastDenials     recent[Denial]

	logged logLimit

	alarms alarms // of held tasks

	lifetime context.Context // ends with Close
	end      context.CancelFunc

	peers  atomic.Pointer[peerTable]
	update sync.Mutex                            // serialises SetPeers
	states map[string]*peerState                 // what outlives a change of peers; under update
	bases  map[*http.Transport]http.RoundTripper // the clones that peers' own bases have; under update
}

// maxRemoved is of how many peers the state is kept that are not configured any more.
const maxRemoved = 1000

// peerState is what a peer keeps when its configuration changes.
type peerState struct {
	breaker  atomic.Pointer[breaker]
	anchors  anchorKeeper
	denials  denialWindow
	budget   retryBudget
	told     toldSet
	pacer    pacer
	held     heldTasks
	inFlight atomic.Int64
	degraded atomic.Bool  // by SetDegraded
	raised   atomic.Int64 // when it was escalated last, in Unix nanoseconds; zero: never

	lastRefresh atomic.Pointer[refreshSpan]
	labels      labels
}

// disbelieved reports whether the peer's signals cannot be believed just now.
func (s *peerState) disbelieved() bool { return s.degraded.Load() || !s.breaker.Load().closed() }

// NewTransport makes a Transport. It validates all of cfg; the error names
// every fault, each by peer and field: a [*ConfigError] for each.
func NewTransport(cfg Config) (*Transport, error) {
	t := &Transport{
		base: ownBase(cfg.Base), book: cfg.Book, anchors: cfg.Anchors, ledger: cfg.Denials, correlation: cfg.Correlation,
		certificate: cfg.ClientCertificate, unlisted: cfg.Unlisted, logger: cfg.Logger,
		tracing: newTracing(cfg.TracerProvider, cfg.Propagator), states: make(map[string]*peerState),
	}
	if t.unlisted == PassUnlisted {
		t.passing = passingBase(cfg.Base)
	}
	if t.book == nil {
		t.book, t.noBook = &PolicyBook{}, true
	}
	if t.ledger == nil {
		t.ledger = NewDenialLedger()
	}
	t.escalations.log, t.unresolved.log = t.logEscalation, t.logUnresolved
	if cfg.Escalator != nil {
		t.escalations.sink = cfg.Escalator.Escalate
	}
	if cfg.Coordinator != nil {
		t.unresolved.sink = cfg.Coordinator.PolicyUnresolved
	}
	t.metrics = newMetrics(cfg.MeterProvider, func() []*peer {
		if table := t.peers.Load(); table != nil {
			return table.peers
		}
		return nil
	})
	t.lifetime, t.end = context.WithCancel(context.Background())
	var found faults
	if int(cfg.Unlisted) >= len(unlistedNames) {
		found.add(&ConfigError{Peer: -1, Field: "Unlisted", Format: "%d is no unlisted policy; want one of " + enumChoices(unlistedNames), Args: []any{cfg.Unlisted}})
	}
	if err := t.setPeers(cfg.Peers, found); err != nil {
		t.end()
		t.metrics.close()
		return nil, err
	}
	return t, nil
}

// SetPeers replaces the peers. Either all of them are valid and take effect at
// once, or the error names every fault and nothing changes. Calls that are in
// flight or held keep the configuration that they began with. A peer that keeps
// its ID keeps its anchor, denials, budget and degraded mark, and its breaker
// where the BreakerPolicy is the same, also where it was removed meanwhile.
// After Close it returns ErrClosed.
func (t *Transport) SetPeers(peers []Peer) error {
	if t.peers.Load() == nil {
		return errZero
	}
	if t.lifetime.Err() != nil {
		return ErrClosed
	}
	return t.setPeers(peers, nil)
}

func (t *Transport) setPeers(peers []Peer, found faults) error {
	for i, p := range peers {
		if p.RequireAnchor && t.anchors == nil {
			found.add(&ConfigError{Peer: i, PeerID: p.ID, Field: "RequireAnchor", Format: "nothing could be sent without Config.Anchors"})
		}
		if t.noBook {
			obligedWithoutBook(i, p, &found)
		}
		base := p.Base
		if base == nil {
			base = t.base
		}
		if t.certificate != nil && !clonable(base) {
			found.add(&ConfigError{Peer: i, PeerID: p.ID, Field: "Base", Format: "cannot show the certificate of Config.ClientCertificate; " + wantClonable})
		}
	}
	t.update.Lock()
	defer t.update.Unlock()
	kept := make(map[string]*peerState, len(peers))
	table, err := compilePeers(peers, found, func(cfg Peer) *peerState {
		s := t.states[cfg.ID]
		if s == nil {
			s = &peerState{anchors: anchorKeeper{peer: cfg.ID, source: t.anchors, lifetime: t.lifetime}}
			s.anchors.ended = func(r refreshResult) {
				defer func() { _ = recover() }() // a meter that panics, on a goroutine of ours
				t.metrics.refresh(t.lifetime, cfg.ID, r)
			}
		}
		if b := s.breaker.Load(); b == nil || b.policy != cfg.Breaker {
			s.breaker.Store(newBreaker(cfg.ID, cfg.Breaker))
		}
		kept[cfg.ID] = s
		return s
	})
	if err != nil {
		return err
	}
	for id, s := range t.states {
		// One that comes back finds what it had: calls of it may still be on their
		// way, and one that looked it up a moment ago is not counted anywhere.
		if kept[id] == nil && len(kept) < len(table.peers)+maxRemoved {
			kept[id] = s
		}
	}
	bases := make(map[*http.Transport]http.RoundTripper)
	type stripKey struct {
		of    Propagation
		named [3]string
	}
	strips := make(map[stripKey]*fieldSet) // alike for most peers
	before := make(map[string]*trustBase)
	if old := t.peers.Load(); old != nil {
		for _, p := range old.peers {
			before[p.ID] = p.trust
		}
	}
	for _, p := range table.peers {
		p.trust = t.trustOf(p, t.baseOf(p.Base, bases), before[p.ID])
		if p.trust == before[p.ID] {
			delete(before, p.ID)
		}
		own := [3]string{p.signals.policyDigest, p.signals.negotiationEpoch, p.signals.anchorVersion}
		key := stripKey{p.Propagation, own}
		if strips[key] == nil {
			strips[key] = newFieldSet(slices.Concat(t.tracing.stripped(p.Propagation), own[:])...)
		}
		p.strip = strips[key]
	}
	table.nowhere.t = t
	for _, at := range table.byOrigin {
		at.t = t
	}
	gone := t.bases
	t.states, t.bases = kept, bases
	t.peers.Store(table)
	for own, clone := range gone {
		if bases[own] == nil {
			closeIdle(clone)
		}
	}
	for _, b := range before {
		b.retire()
	}
	return nil
}

// trustOf returns the base that p has among those before, where it is the same:
// its generation and the connections of that go on.
func (t *Transport) trustOf(p *peer, base http.RoundTripper, before *trustBase) *trustBase {
	own, _ := base.(*http.Transport)
	if before != nil && own != nil && own == before.own {
		return before
	}
	return &trustBase{base: base, own: own, peer: p.ID, certificate: t.certificate}
}

// baseOf returns the base for a peer that has one of its own. t.update is held.
func (t *Transport) baseOf(base http.RoundTripper, bases map[*http.Transport]http.RoundTripper) http.RoundTripper {
	own, ok := base.(*http.Transport)
	switch {
	case base == nil:
		return t.base
	case !ok:
		return base
	case bases[own] == nil && t.bases[own] != nil:
		bases[own] = t.bases[own] // kept, with its connections
	case bases[own] == nil:
		bases[own] = ownBase(own)
	}
	return bases[own]
}

// SetDegraded says whether the peer's signals can be believed just now. While a
// peer is degraded, routing evidence from it is ambiguous and nothing is
// resent. A peer that was never configured is ignored; one that was removed has the
// mark should it come back.
func (t *Transport) SetDegraded(peer string, degraded bool) {
	t.update.Lock()
	defer t.update.Unlock()
	if s := t.states[peer]; s != nil {
		s.degraded.Store(degraded)
	}
}

// CloseIdleConnections closes the idle connections of every base that can do
// that.
func (t *Transport) CloseIdleConnections() {
	if t.base == nil {
		return
	}
	closeIdle(t.base)
	closeIdle(t.passing)
	for _, p := range t.peers.Load().peers {
		closeIdle(p.trust.base)
		p.trust.closeIdle()
	}
}

func closeIdle(base http.RoundTripper) {
	if c, ok := base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// Close releases with ErrClosed whatever waits unsent, for its policy or the peer's
// first anchor, and fails every later RoundTrip with it. Calls that are in flight go on,
// and sinks are still told. It returns nil, also when called again.
func (t *Transport) Close() error {
	if t.end != nil {
		t.end()
		t.alarms.ringAll() // after the end, so that a task that joins late sees it
		t.CloseIdleConnections()
		for _, p := range t.peers.Load().peers {
			p.trust.retire()
		}
		t.metrics.close()
		t.logged.flush(t.logSuppressed)
	}
	return nil
}

func (t *Transport) log() *slog.Logger {
	if t.logger != nil {
		return t.logger
	}
	return slog.Default()
}

// logAttrs writes a line. A handler that panics is contained: lines are written
// from goroutines that no caller could guard, and in the middle of things. There
// is nobody left to tell of it.
func (t *Transport) logAttrs(ctx context.Context, level slog.Level, message string, attrs ...slog.Attr) {
	defer func() { _ = recover() }()
	t.log().LogAttrs(ctx, level, message, attrs...)
}

// logs reports whether a line of the level would be written.
func (t *Transport) logs(ctx context.Context, level slog.Level) (enabled bool) {
	defer func() { _ = recover() }()
	return t.log().Enabled(ctx, level)
}

var errZero = errors.New("fedhttp: a Transport is made by NewTransport")

// RoundTrip sends req to its peer, if and when it may be sent. See the package
// documentation for what it returns.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	table := t.peers.Load()
	if table == nil {
		closeBody(req.Body)
		return nil, errZero
	}
	at, unknown := table.find(req)
	if unknown == ReasonUnlistedOrigin && t.passes(req) {
		return t.passing.RoundTrip(ofNoCall(req))
	}
	c, r := t.preflight(req, at, unknown)
	return c.run(r)
}

// What a call needs of the stack decides whether the goroutine of its caller has
// to find a larger one. So what is done with before the base sends is not inlined into
// what goes on meanwhile; and as a held task waits in preflight, nor is the rest into
// that.

// preflight decides whether the request may go to its peer, and makes the call of
// it: if only to say why it does not go out.
//
//go:noinline
func (t *Transport) preflight(req *http.Request, at *place, unknown Reason) (*call, refusal) {
	var pre preflight
	pre.begin(req, at)
	var callSpan span
	handed := false
	defer func() {
		if !handed { // something that the program has given us panics
			closeBody(req.Body)
			callSpan.End()
		}
	}()
	pre.Context, callSpan = t.tracing.startCall(pre.Context, pre.task.Capability)
	r, letters := pre.run(req, unknown)
	if r.outcome == OutcomeUnknownPeer {
		r.err = t.noPeer(req, unknown)
	}
	handed = true
	return newCall(&pre, req, callSpan, letters), r
}

// passes reports whether a request to no peer goes to the base as it is.
//
//go:noinline
func (t *Transport) passes(req *http.Request) bool {
	return t.unlisted == PassUnlisted && t.lifetime.Err() == nil && len(carriedTask(req).Obligations) == 0
}

// ofNoCall is req, which may have been made with the context of a response: the one
// to come must not be taken for that of the same call.
func ofNoCall(req *http.Request) *http.Request {
	if callOf(req.Context()) == nil {
		return req
	}
	return req.WithContext(context.WithValue(req.Context(), callKey{}, nil))
}
