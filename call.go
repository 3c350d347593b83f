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
	preflight
	in         *http.Request
	body       bodySource
	span       span
	room       *attributes  // for the attributes of its spans; nil: not yet
	ownRefresh *refreshSpan // the last that this call waited for

	values   [3][1]string // of the headers that this transport sets
	admitted slot         // for the send to come
	sends    int
	first    attempt
	last     *attempt
	stopped  refusal // why the loop ended short of a final verdict

	// How it ended, where nothing else here says it; see decision.
	refreshes int
	retryAt   int64 // Unix nanoseconds; zero: no breaker is open
	outcome   Outcome
	reason    Reason
	escalated bool
	resending bool // the loop was told to send again and has not yet
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
		c.refreshes++
		c.t.tracing.endRefresh(c, start, c.peer.anchors.lastResult(), c.Err() == nil)
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
	c.correlationID = peerText(a.reading.correlationID)
	if a.verdict != VerdictRejection {
		c.policyReason = "" // of a denial that forbade the resend
	}
	if own := c.ownDoing(a); own != ReasonNone {
		return refusal{OutcomeCanceled, own, c.failure(a)}
	}
	switch a.verdict {
	case VerdictNone:
		if why := checkReceipt(c.peer.Receipt, a.resp, c.peer.signals.receipt, c.task, a.auth); why != ReasonNone {
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
	c.outcome, c.reason = r.outcome, r.reason
	kind, escalated := c.escalation()
	c.escalated = escalated
	d := c.decision()
	if escalated {
		c.t.escalate(c.Context, Escalation{Kind: kind, Decision: d, At: time.Now()})
	}
	c.t.metrics.decision(c, &d)
	c.t.logDecision(c, &d, kind, r.err)
	c.t.tracing.endCall(c, &d)
	switch a := c.last; {
	case a == nil:
	case a.resp != nil:
		return a.handOver(), nil
	default:
		a.close()
	}
	return nil, &Error{Decision: d, Err: r.err}
}

// decision is what the call came to. It is put together when it is asked for:
// most of it is known anyway, and few ask.
func (c *call) decision() Decision {
	d := Decision{
		Capability: c.task.Capability, TaskID: c.task.ID, Outcome: c.outcome, Reason: c.reason,
		CorrelationID: c.correlationID, PolicyReason: c.policyReason, HeldFor: c.heldFor,
		Attempts: c.sends, Refreshes: c.refreshes, Escalated: c.escalated,
	}
	if c.peer != nil {
		d.Peer = c.peer.ID
	}
	if c.retryAt != 0 {
		d.RetryAt = time.Unix(0, c.retryAt)
	}
	auth := c.auth
	if a := c.last; a != nil {
		auth = a.auth
		d.Evidence, d.Delivery, d.AnchorVersion = a.reading.evidence, a.delivery, a.anchor.Version
	}
	d.PolicyDigest, d.Epoch, d.Basis = auth.Digest, auth.Epoch, auth.Basis
	return d
}

// degraded reports whether the peer was degraded: at its last attempt, or where
// nothing was sent now.
func (c *call) degraded() bool {
	if c.last != nil || c.peer == nil {
		return c.last != nil && c.last.degraded
	}
	return c.peer.degraded.Load() || !c.peer.breaker.Load().closed()
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
