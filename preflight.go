package fedhttp

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// refusal is why a call does not go out; the zero value says that it may.
type refusal struct {
	outcome Outcome
	reason  Reason
	err     error // the cause, where there is more to say
}

func (r refusal) ok() bool { return r.outcome == OutcomeDelivered }

// preflight decides whether the task may be sent, holding it where its policy
// is pending.
func (c *call) preflight() refusal {
	if c.peer.RequireTask && c.task.Capability == "" {
		return refusal{outcome: OutcomeTaskRequired, reason: ReasonNoCapability}
	}
	r := c.authorize(time.Now())
	if r.outcome == OutcomePolicyUnresolved {
		r = c.hold(r)
	}
	return r
}

// authorize looks the task's policy up anew, before every send: what was agreed
// a moment ago may have been revoked, denied or have expired. It never waits.
func (c *call) authorize(now time.Time) refusal {
	auth, err := c.t.book.Authorize(c.peer.ID, c.task, c.peer.DefaultTerms, now)
	c.auth = auth
	if err == ErrTaskRequired { //nolint:errorlint // our own sentinel, as it is
		return refusal{outcome: OutcomeTaskRequired, reason: ReasonNoCapability}
	}
	// A denial comes before an unresolved policy: a task that was denied is not
	// worth waiting for.
	if c.task.Capability != "" {
		if c.peer.denials.spent(now, c.peer.Denial) {
			return refusal{outcome: OutcomeScopeDenied, reason: ReasonDenialBudget}
		}
		if c.peer.Denial.HoldOff >= 0 {
			if r := c.deniedBefore(); !r.ok() {
				return r
			}
		}
	}
	if err != nil {
		return refusal{outcome: OutcomePolicyUnresolved, reason: unresolvedReason(err)}
	}
	if auth.Basis != BasisNoObligation {
		c.peer.told.resolved(c.task.Capability)
	}
	return refusal{}
}

// unresolvedReason returns why the book has not authorized a task.
func unresolvedReason(err error) Reason {
	if unresolved, ok := err.(*unresolvedError); ok { //nolint:errorlint // the book's own, never wrapped
		return unresolved.reason
	}
	return ReasonNotAccepted
}

// deniedBefore asks the ledger. One that panics has not said that the task may
// go, so it may not.
func (c *call) deniedBefore() (r refusal) {
	defer func() {
		if fault := recover(); fault != nil {
			err := fmt.Errorf("the denial ledger panicked: %s", bounded(fmt.Sprint(fault)))
			r = refusal{OutcomeScopeDenied, ReasonLedgerFailed, err}
		}
	}()
	denial, denied := c.t.ledger.Denied(c.peer.ID, c.task, c.auth)
	if !denied {
		return refusal{}
	}
	c.decision.CorrelationID = denial.CorrelationID
	c.decision.PolicyReason = denial.PolicyReason
	return refusal{outcome: OutcomeScopeDenied, reason: ReasonDeniedBefore}
}

// recordDenial keeps a rejection, so that later tasks that it covers are not sent.
func (c *call) recordDenial() {
	now := time.Now()
	c.peer.denials.add(now, c.peer.Denial.Budget)
	holdOff := max(0, c.peer.Denial.HoldOff)
	status := 0
	if resp := c.last.resp; resp != nil {
		status = resp.StatusCode
		if status == http.StatusTooManyRequests {
			if wait, present, ok := retryAfter(resp.Header, now); present && ok {
				holdOff = min(holdOff, wait)
			}
		}
	}
	c.record(Denial{
		Peer: c.peer.ID, Capability: c.task.Capability, Scope: c.task.Scope,
		Epoch: c.auth.Epoch, Digest: c.auth.Digest, TaskID: c.task.ID,
		Status: status, PolicyReason: c.decision.PolicyReason, CorrelationID: c.decision.CorrelationID,
		At: now, Until: now.Add(holdOff),
	})
}

func (c *call) record(d Denial) {
	defer func() {
		if fault := recover(); fault != nil {
			c.t.log().ErrorContext(c, "fedhttp: the denial ledger panicked", "peer", d.Peer, "fault", bounded(fmt.Sprint(fault)))
		}
	}()
	if err := c.t.ledger.Record(context.WithoutCancel(c), d); err != nil {
		c.t.log().ErrorContext(c, "fedhttp: the denial was not recorded", "peer", d.Peer, "error", sanitize(err.Error()))
	}
}
