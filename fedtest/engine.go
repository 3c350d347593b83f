package fedtest

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
)

// ReasonQuarantined is the policy reason of every denial that comes of a
// quarantine.
const ReasonQuarantined = "QUARANTINED"

// Request is what a policy decides on.
type Request struct {
	Client, Task, Capability string
	Method, Path             string
	Header                   http.Header
	// AskedDigest and AskedEpoch are the policy digest and the negotiation epoch
	// that the request named; empty where it named none.
	AskedDigest, AskedEpoch string
	// RunsUnder and Terms are the policy that it runs under if it is allowed,
	// and Agreed whether that was agreed with the client, see [Peer.Agree].
	RunsUnder string
	Terms     map[string]string
	Agreed    bool
}

// Verdict is what a policy decided. The zero value allows.
type Verdict struct {
	// Deny refuses the request.
	Deny bool
	// Status of the refusal; 0 is 403.
	Status int
	// Reason of the refusal, such as "SCOPE_NARROWED" or "POLICY_UNRESOLVED":
	// sent as X-Federation-Policy-Reason and as the detail of the body. Optional.
	Reason string
	// Header is put into the answer, refused or not, in place of the values that
	// it would have: Retry-After, or a signal that lies. Optional.
	Header http.Header
}

// Engine is a peer's policy engine: [Peer.Engine].
type Engine struct {
	peer    *Peer
	journal journal
}

// Log returns the requests that reached the policy engine so far, oldest
// first.
func (l *Engine) Log() []Entry { return l.journal.Log() }

// ServeHTTP evaluates a request. Those that reach the engine by itself, past
// the routing layer, are counted and answered like any other.
func (l *Engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := l.peer
	if !p.begin() {
		panic(http.ErrAbortHandler)
	}
	defer p.end()

	x := p.exchangeAtEngine(r)
	e := p.newEntry(r)
	p.runsUnder(e)
	p.mu.Lock()
	quarantined := p.books.evaluated(e)
	p.mu.Unlock()
	l.journal.add(e)
	r = recordBody(r, &l.journal, e)

	req := Request{
		Client: e.Client, Task: e.Task, Capability: e.Capability,
		Method: e.Method, Path: e.Path, Header: e.Header.Clone(),
		AskedDigest: e.AskedDigest, AskedEpoch: e.AskedEpoch,
		RunsUnder: e.RanDigest, Terms: maps.Clone(e.RanTerms), Agreed: e.Agreed,
	}
	var verdict Verdict
	switch {
	case quarantined:
		verdict = Verdict{Deny: true, Reason: ReasonQuarantined}
	case x.verdict != nil:
		verdict = *x.verdict
	case p.cfg.Policy != nil:
		verdict = p.cfg.Policy(req)
	}
	if verdict.Deny {
		p.mu.Lock()
		p.books.denied(e, quarantined, p.cfg.QuarantineAt, p.cfg.Now())
		p.mu.Unlock()
	}
	l.answer(w, r, x, e, req, verdict)
}

func (l *Engine) answer(w http.ResponseWriter, r *http.Request, x *exchange, e *Entry, req Request, verdict Verdict) {
	s := l.peer.sign(w, x)
	id := s.author(LayerPolicy, "true")
	l.journal.update(func() {
		e.CorrelationID = id
		e.Verdict = "allow"
		if verdict.Deny {
			e.Verdict, e.Reason = "deny", verdict.Reason
			e.RanDigest, e.RanTerms, e.Agreed = "", nil, false // it did not run
		}
	})
	if !verdict.Deny {
		receipt := req.RunsUnder
		if l.peer.cfg.Receipt != nil {
			receipt = l.peer.cfg.Receipt(req)
		}
		s.set(SignalReceipt, HeaderPolicyDigest, receipt)
		override(w.Header(), verdict.Header)
		if l.peer.cfg.Handler == nil {
			drain(r)
			defaultHandler(w)
			return
		}
		l.peer.cfg.Handler.ServeHTTP(w, r)
		return
	}
	drain(r)
	s.set(SignalReason, HeaderPolicyReason, verdict.Reason)
	p := problem{Status: verdict.Status, CorrelationID: id}
	if p.Status == 0 {
		p.Status = http.StatusForbidden
	}
	if s.hidden&SignalDetail == 0 {
		p.Detail = verdict.Reason
	}
	override(w.Header(), verdict.Header)
	writeProblem(w, p)
}

// override puts the values in place of those that the header has.
func override(header, values http.Header) {
	for name, v := range values {
		header[http.CanonicalHeaderKey(name)] = slices.Clone(v)
	}
}

// exchangeAtEngine finds the exchange that the routing layer began for the
// request: in its context, or, at an engine of its own, by the number that the
// routing layer gave it.
func (p *Peer) exchangeAtEngine(r *http.Request) *exchange {
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		return x
	}
	if n, err := strconv.ParseUint(r.Header.Get(headerExchange), 10, 64); err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if x := p.exchanges[n]; x != nil {
			return x
		}
	}
	return &exchange{peer: p}
}
