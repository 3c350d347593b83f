package fedhttp

import (
	"context"
	"net/http"
	"time"
)

// call is one RoundTrip, and the context of everything that it does: its
// attempts, and through [http.Response.Request] its response, find the call in
// their context.
type call struct {
	context.Context // the caller's, with the call's span
	preflight
	in         *http.Request
	body       bodySource
	span       span
	ownRefresh *refreshSpan // the last that this call waited for

	values    [3][1]string // of the headers that this transport sets
	admitted  slot         // for the send to come
	sends     int
	first     attempt
	last      *attempt
	resending bool    // the loop was told to send again and has not yet
	stopped   refusal // why the loop ended short of a final verdict

	decision Decision
}

type callKey struct{}

// Value makes the call findable in the contexts that derive from it.
func (c *call) Value(key any) any {
	if _, ok := key.(callKey); ok {
		return c
	}
	return c.Context.Value(key)
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
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
			c.admitted.release(tallyFailure)
			if c.last != nil {
				closeBody(c.last.request.Body)
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
	if c.t.anchors != nil {
		if r := c.obtainAnchor(); !r.ok() {
			return r
		}
	}
	if c.Err() != nil { // nothing has left yet, so it is not for the breaker or an operator
		return refusal{OutcomeCanceled, ReasonContextEnded, contextError(c)}
	}
	if p.RequireAnchor && !p.anchors.valid() { // it expired while the task was held
		return refusal{OutcomePeerUnavailable, ReasonAnchorRequired, &refreshError{errExpired}}
	}
	if !c.admit() {
		return refusal{outcome: OutcomePeerUnavailable, reason: ReasonBreakerOpen}
	}
	p.budget.earn(p.Retry.BudgetRatio)
	p.inFlight.Add(1)
	defer p.inFlight.Add(-1)
	c.send()
	c.loop()
	return c.conclude()
}

// obtainAnchor makes sure that the call goes out under an anchor, where one can
// be had. Fetching it takes time, so what preflight said is asked anew.
func (c *call) obtainAnchor() refusal {
	start := time.Now()
	waited, err := c.peer.anchors.ensure(c, c.peer.RequireAnchor, c.peer.Retry.MinRefreshInterval)
	if waited {
		c.decision.Refreshes++
		c.t.tracing.endRefresh(c, start, c.peer.anchors.lastResult())
	}
	switch {
	case c.Err() != nil:
		return refusal{OutcomeCanceled, ReasonContextEnded, contextError(c)}
	case err != nil && c.peer.RequireAnchor:
		return refusal{OutcomePeerUnavailable, ReasonAnchorRequired, &refreshError{err}}
	case waited:
		return c.clear()
	}
	return refusal{}
}

// conclude turns the last attempt's verdict into the outcome of the call.
func (c *call) conclude() refusal {
	a := c.last
	a.slot.release(c.tally(a))
	c.decision.CorrelationID = sanitize(a.reading.correlationID)
	if own := c.ownDoing(a); own != ReasonNone {
		return refusal{OutcomeCanceled, own, c.failure(a)}
	}
	switch a.verdict {
	case VerdictNone:
		if why := checkReceipt(c.peer.Receipt, a.resp, c.peer.signals.receipt, &c.task, a.auth); why != ReasonNone {
			a.discard()
			return refusal{outcome: OutcomePolicyMismatch, reason: why}
		}
		return refusal{}
	case VerdictRejection:
		c.recordDenial()
		return refusal{OutcomeRejected, a.reason, c.failure(a)}
	case VerdictRouting:
		// Why it was not resent says more than the failure that it could not mend.
		r := c.stopped
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
	d := &c.decision
	d.Capability, d.TaskID = c.task.Capability, c.task.ID
	d.Outcome, d.Reason = r.outcome, r.reason
	d.PolicyDigest, d.Epoch, d.Basis = c.auth.Digest, c.auth.Epoch, c.auth.Basis
	d.HeldFor = c.heldFor
	d.Attempts = c.sends
	if c.peer != nil {
		d.Peer = c.peer.ID
	}
	var resp *http.Response
	if a := c.last; a != nil {
		d.PolicyDigest, d.Epoch, d.Basis = a.auth.Digest, a.auth.Epoch, a.auth.Basis
		d.Evidence, d.Delivery, d.AnchorVersion = a.reading.evidence, a.delivery, a.anchor.Version
		resp = a.resp
	} else {
		d.CorrelationID, d.PolicyReason = c.deniedID, c.deniedReason
	}
	e := c.escalate()
	c.t.metrics.decision(c)
	c.t.logDecision(c, r.err, e)
	c.t.tracing.endCall(c)
	if resp != nil {
		return c.last.handOver(), nil
	}
	if c.last != nil {
		c.last.close()
	}
	return nil, &Error{Decision: *d, Err: r.err}
}

// escalate tells an operator of what nobody else can mend. It returns what was
// told, nil where there was nothing to.
func (c *call) escalate() *Escalation {
	d := &c.decision
	var kind EscalationKind
	switch {
	case d.Outcome == OutcomeAmbiguous:
		kind = EscalationAmbiguous
	case d.Outcome == OutcomePolicyMismatch:
		kind = EscalationPolicyMismatch
	case d.Outcome == OutcomeRoutingFailed && d.Reason == ReasonPeerDistrustsUs:
		kind = EscalationPeerDistrustsUs
	case d.Outcome == OutcomeRoutingFailed && d.Reason != ReasonPeerDegraded:
		kind = EscalationRoutingUnrepaired
	default:
		return nil
	}
	d.Escalated = true
	e := &Escalation{Kind: kind, Decision: *d, At: time.Now()}
	c.t.lastEscalations.add(*e)
	c.t.metrics.escalation(c, e)
	if c.t.escalations.sink != nil {
		c.t.escalations.notify(c, *e)
	}
	return e
}
