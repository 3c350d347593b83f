package fedhttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// call is one RoundTrip, and the context of everything that it does: its
// attempts, and through [http.Response.Request] its response, find the call in
// their context.
type call struct {
	preflight
	in   *http.Request
	body bodySource
	span span

	first   attempt
	next    *attempt // the one to come, as far as it is made ready,
	last    *attempt // and the one that has been sent; nil: none
	mending *mending // nil: there has been nothing to mend

	// How it ended, where nothing else here says it; see decision.
	outcome   Outcome
	reason    Reason
	escalated bool
	resending bool // the loop was told to send again and has not yet
	sends     int32
	refreshes int32
	letters   uint32 // with which the request's fields begin
}

// mending is what a call has with which something is not as it should be.
type mending struct {
	refresh *refreshSpan // the last that it waited for; nil: none
	stopped refusal      // why the loop ended short of a final verdict
	own     refusal      // how our own side ended the last attempt
	taken   int          // sends that were taken back
}

// mend returns the mending, to be written to.
func (c *call) mend() *mending {
	if c.mending == nil {
		c.mending = &mending{}
	}
	return c.mending
}

type callKey struct{}

// Value makes the call findable in the contexts that derive from it.
func (c *call) Value(key any) any {
	if _, ok := key.(callKey); ok {
		return c
	}
	return c.Context.Value(key)
}

// String keeps what the call consists of out of logs.
func (c *call) String() string { return "fedhttp.call" }

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// newCall makes the call that pre has cleared.
//
//go:noinline
func newCall(pre *preflight, req *http.Request, callSpan span, letters uint32) *call {
	c := &call{preflight: *pre, in: req, span: callSpan, letters: letters}
	c.next = &c.first
	return c
}

// run takes the call from the end of its preflight to its own.
func (c *call) run(r refusal) (*http.Response, error) {
	c.body.open(c.in)
	defer c.body.finish()
	// Whatever happens below, a panic of the base included, the attempt ends,
	// its slot is free and the span is over.
	finished := false
	defer func() {
		if !finished {
			c.next.slot.release(tallyFailure)
			if c.last != nil {
				closeBody(c.last.request.Body)
				if c.last.resp != nil {
					closeBody(c.last.resp.Body)
				}
				c.last.close()
			}
			c.span.End()
		}
	}()
	if r.ok() {
		r = c.dispatch()
	}
	resp, err := c.end(r)
	finished = true
	return resp, err
}

// dispatch sends the call, or says why it does not go out after all.
func (c *call) dispatch() refusal {
	p := c.peer
	if r := c.ready(); !r.ok() {
		return r
	}
	p.inFlight.Add(1)
	defer p.inFlight.Add(-1)
	for !c.send() {
		if r := c.again(); !r.ok() {
			return r
		}
	}
	p.budget.earn(p.Retry.BudgetRatio)
	c.loop()
	return c.conclude()
}

// again asks anew what preflight said, of a call that was taken back: it may wait for its
// policy, if its body can be had once more.
func (c *call) again() refusal {
	if r := c.abandoned(); !r.ok() {
		return r
	}
	if err := c.resumable(); err != nil {
		taken := c.mending.own
		if taken.outcome == OutcomePolicyUnresolved {
			_ = c.consult(time.Now()) // for the decision
			c.tellCoordinator(taken.reason)
		}
		return refusal{taken.outcome, taken.reason, err}
	}
	c.peer.inFlight.Add(-1)
	defer c.peer.inFlight.Add(1)
	if r := c.clear(); !r.ok() {
		return r
	}
	return c.ready()
}

// maxTaken bounds how often a call is taken back. Each time it has had a connection made,
// and what a peer advertises may change as often as one is.
const maxTaken = 3

var (
	errBodyLost = errors.New("it was cleared, and not any more when it had a connection; its body cannot be had again, so it cannot wait")
	errUnsteady = fmt.Errorf("it was cleared, and not any more when it had a connection, %d times", maxTaken)
)

// resumable says why a call that was taken back is not sent after all.
func (c *call) resumable() error {
	switch {
	case c.mending.taken >= maxTaken:
		return errUnsteady
	case !c.body.rewind(c.in):
		return errBodyLost
	}
	return nil
}

// ready makes everything ready for the first send, or says why there is none.
func (c *call) ready() refusal {
	r := c.trust()
	if c.t.anchors != nil && (!r.ok() || c.next.anchor == &noAnchor) {
		if r = c.obtainAnchor(); r.ok() {
			r = c.trust()
		}
	}
	if r.outcome == OutcomePolicyUnresolved { // held, also where its context has ended that
		return r
	}
	if left := c.abandoned(); !left.ok() {
		return left
	}
	if r.ok() && !c.admit() {
		return refusal{outcome: OutcomePeerUnavailable, reason: ReasonBreakerOpen}
	}
	return r
}

// abandoned says that nobody waits any more for a call of which nothing has left, where
// that is so: it is not for the breaker or an operator.
func (c *call) abandoned() refusal {
	switch {
	case c.Err() != nil:
		return refusal{OutcomeCanceled, ReasonContextEnded, contextError(c)}
	case c.requestCanceled():
		return refusal{OutcomeCanceled, ReasonContextEnded, errRequestCanceled}
	case c.t.lifetime.Err() != nil:
		return refusal{OutcomeCanceled, ReasonClosed, ErrClosed}
	}
	return refusal{}
}

// trust settles what the next send goes out under, or says why nothing may be
// sent under what there is.
func (c *call) trust() refusal {
	p, k := c.peer, c.peer.anchors.current.Load()
	var reason Reason
	var err error
	switch {
	case k == nil && p.RequireAnchor:
		reason, err = ReasonAnchorRequired, errNoAnchorYet
	case k == nil:
		k = &noAnchor
	case k.expired():
		// It is not as if there had never been one: whoever could have had it replaced
		// by none, by keeping us from fetching, would choose what we trust.
		reason, err = ReasonAnchorExpired, errExpired
	case !p.trust.usable(k):
		return refusal{OutcomePeerUnavailable, ReasonRootsUnusable, errRootsUnusable}
	}
	if err != nil {
		_, failed := p.anchors.lastFetch()
		return refusal{OutcomePeerUnavailable, reason, &refreshError{cmp.Or(failed, err)}}
	}
	c.next.anchor = k
	return refusal{}
}

// obtainAnchor makes sure that the call goes out under an anchor, where one can
// be had. Fetching it takes time, so what preflight said is asked anew.
func (c *call) obtainAnchor() refusal {
	start, k := time.Now(), &c.peer.anchors
	required := c.peer.RequireAnchor || k.current.Load() != nil
	if !k.obtain(c, required, c.peer.Retry.MinRefreshInterval) {
		return refusal{}
	}
	c.refreshes++
	result, _ := k.lastFetch()
	c.t.tracing.endRefresh(c, start, result, c.Err() == nil)
	switch {
	case c.Err() != nil:
		return refusal{}
	case c.t.lifetime.Err() != nil: // it is why there is no anchor
		return refusal{OutcomeCanceled, ReasonClosed, ErrClosed}
	}
	return c.clear()
}

// conclude turns the last attempt's verdict into the outcome of the call.
func (c *call) conclude() refusal {
	a := c.last
	a.slot.release(a.tally())
	if a.unjudged() {
		own := c.mending.own
		if err := c.failure(a); own.err == nil {
			own.err = err
		} else {
			own.err = &joined{own.err, err}
		}
		return own
	}
	switch a.verdict {
	case VerdictNone:
		if why := checkReceipt(c.peer.Receipt, a.resp, c.peer.signals.receipt, c.task, a.warrant.Authorization); why != ReasonNone {
			err := receiptFault(why, a.resp, c.peer.signals.receipt, a.warrant.Authorization)
			a.discard()
			return refusal{OutcomePolicyMismatch, why, err}
		}
		return refusal{}
	case VerdictRejection:
		c.recordDenial()
		return refusal{OutcomeRejected, a.reason, c.failure(a)}
	case VerdictRouting:
		// Why it was not resent says more than the failure that it could not mend.
		r := c.mend().stopped
		switch err := c.failure(a); {
		case r.err == nil:
			r.err = err
		case err != nil:
			r.err = &joined{err, r.err}
		}
		return r
	default:
		return refusal{OutcomeAmbiguous, a.reason, c.failure(a)}
	}
}

// end makes the decision, tells whoever has to know, and returns what the
// RoundTripper contract asks for: a response that was obtained and is not
// withheld, else an error, never both.
func (c *call) end(r refusal) (*http.Response, error) {
	c.outcome, c.reason = r.outcome, r.reason
	if c.outcome != OutcomeDelivered {
		c.tell(r.err)
	}
	c.t.metrics.decision(c)
	c.t.tracing.endCall(c)
	c.in = nil // may be the request of another response, with all of its call
	switch a := c.last; {
	case a == nil:
	case a.resp != nil:
		return a.handOver(), nil
	default:
		a.close()
	}
	return nil, c.failed(r.err)
}

// What only a call needs that was not delivered stays out of line: room for it on
// the stack would have to be found for every call.

//go:noinline
func (c *call) failed(cause error) error { return &Error{Decision: c.decision(), Err: cause} }

// tell tells the operator and the log.
//
//go:noinline
func (c *call) tell(cause error) {
	kind, escalated := c.escalation()
	if c.escalated = escalated; escalated {
		d := c.decision()
		d.Evidence = slices.Clone(d.Evidence) // the sink's; the caller has its own
		now := time.Now()
		c.peer.raised.Store(now.UnixNano())
		c.t.escalate(c.Context, Escalation{Kind: kind, Decision: d, At: now})
	}
	c.t.logDecision(c, kind, cause)
}

// decision is what the call came to. It is put together when it is asked for:
// most of it is known anyway, and few ask.
func (c *call) decision() Decision {
	d := Decision{
		Capability: c.task.Capability, TaskID: c.task.ID, Outcome: c.outcome, Reason: c.reason,
		CorrelationID: c.correlationID(), PolicyReason: c.policyReason(),
		Attempts: int(c.sends), Refreshes: int(c.refreshes), Escalated: c.escalated,
	}
	if c.peer != nil {
		d.Peer = c.peer.ID
	}
	if c.details != nil {
		d.HeldFor, d.RetryAt = c.details.heldFor, c.details.retryAt
	}
	auth := c.warrant.auth()
	if a := c.last; a != nil {
		auth = a.warrant.auth()
		d.Evidence, d.Delivery, d.AnchorVersion = a.reading.evidence, a.delivery, a.anchor.Version
	}
	d.PolicyDigest, d.Epoch, d.Basis = auth.Digest, auth.Epoch, auth.Basis
	return d
}

// correlationID is the peer's, escaped: of the last answer, or else of the denial
// that covers the task.
func (c *call) correlationID() string {
	switch {
	case c.last != nil:
		return shown(c.last.reading.correlationID)
	case c.details != nil:
		return c.details.correlationID
	}
	return ""
}

// policyReason is what the peer said of why it denied: with the last answer, or where
// nothing was sent with the denial that covers the task. That of a denial that forbade
// a resend is not of this call's outcome.
func (c *call) policyReason() string {
	if c.details == nil || c.last != nil && c.last.verdict != VerdictRejection {
		return ""
	}
	return c.details.policyReason
}

// degraded reports whether the peer was degraded: at its last attempt, or where
// nothing was sent now.
func (c *call) degraded() bool {
	switch {
	case c.last != nil:
		return c.last.degraded
	case c.peer != nil:
		return c.peer.disbelieved()
	}
	return false
}

// escalation says which kind of escalation the outcome is, if it is one that
// nobody but an operator can mend.
func (c *call) escalation() (kind EscalationKind, escalated bool) {
	switch {
	case c.outcome == OutcomeAmbiguous:
		return EscalationAmbiguous, true
	case c.outcome == OutcomePolicyMismatch:
		return EscalationPolicyMismatch, true
	case c.outcome == OutcomeRoutingFailed && c.reason == ReasonPeerDistrustsUs:
		return EscalationPeerDistrustsUs, true
	case c.outcome == OutcomeRoutingFailed && c.reason != ReasonPeerDegraded:
		return EscalationRoutingUnrepaired, true
	}
	return 0, false
}
