package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"
)

// refusal is why a call does not go out; the zero value says that it may.
type refusal struct {
	outcome Outcome
	reason  Reason
	err     error // the cause, where there is more to say
}

func (r refusal) ok() bool { return r.outcome == OutcomeDelivered }

// preflight decides whether a task may be sent. It is a small value that lives
// on the stack until the task may go: a held task costs its goroutine and
// little else, and the rest of a call is made when there is one.
type preflight struct {
	context.Context // the caller's, with the call's span

	*place           // nowhere: the URL belongs to no peer
	task    *Task    // never changed
	warrant *warrant // nil: nobody has looked
	details *details // nil: none
}

// warrant is what a task was found to go out under, with the values of the fields
// that tell the peer. Each send has one of its own: what the send before says may
// still be on its way.
type warrant struct {
	Authorization
	digest, epoch [1]string
	room          headerRoom
}

// unsaid are those of which the peer is not told. They belong to nobody.
var unsaid = [...]warrant{
	BasisNone:         {Authorization: Authorization{Basis: BasisNone}},
	BasisNoObligation: {Authorization: Authorization{Basis: BasisNoObligation}},
}

func warrantOf(auth Authorization) *warrant {
	if auth.Digest == "" && int(auth.Basis) < len(unsaid) {
		return &unsaid[auth.Basis]
	}
	return &warrant{auth, [1]string{auth.Digest}, [1]string{strconv.FormatUint(auth.Epoch, 10)}, headerRoom{}}
}

// auth is the authorization of which the warrant is.
func (w *warrant) auth() Authorization {
	if w == nil {
		return Authorization{}
	}
	return w.Authorization
}

// details are what few calls have to tell.
type details struct {
	heldFor time.Duration
	retryAt time.Time // when an open breaker lets a trial through
	// What the peer said, bounded and escaped: with its rejection, or with the denial
	// that covers the task.
	correlationID, policyReason string
}

// detail returns the details, to be written to.
func (f *preflight) detail() *details {
	if f.details == nil {
		f.details = &details{}
	}
	return f.details
}

// begin finds out what the task of the request is.
//
//go:noinline
func (f *preflight) begin(req *http.Request, at *place) {
	f.Context, f.place = callersContext(req.Context()), at
	if f.peer == nil {
		f.task = carriedTask(req)
		return
	}
	f.task = f.peer.task(req)
}

// run decides whether the request may go to its peer at all. unknown is why there is
// no peer, where there is none. It returns the letters with which the request's fields
// begin.
func (f *preflight) run(req *http.Request, unknown Reason) (r refusal, letters uint32) {
	switch {
	case f.t.lifetime.Err() != nil:
		return refusal{OutcomeCanceled, ReasonClosed, ErrClosed}, 0
	case f.Err() != nil:
		return refusal{OutcomeCanceled, ReasonContextEnded, contextError(f.Context)}, 0
	case f.peer == nil:
		return refusal{outcome: OutcomeUnknownPeer, reason: unknown}, 0
	}
	letters, err := sendable(req)
	if err != nil {
		return refusal{OutcomeCanceled, ReasonBadRequest, err}, 0
	}
	return f.clear(), letters
}

// clear decides, holding the task where its policy is pending.
func (f *preflight) clear() refusal {
	if f.peer.RequireTask && f.task.Capability == "" {
		return refusal{OutcomeTaskRequired, ReasonNoCapability, errTaskRequired}
	}
	var now time.Time
	if f.task.Capability != "" { // nothing else depends on the time
		now = time.Now()
	}
	r := f.authorize(now)
	if r.outcome == OutcomePolicyUnresolved {
		r = f.hold(r)
	}
	return r
}

// authorize looks the task's policy up anew, before every send: what was agreed
// a moment ago may have been revoked, denied or have expired. It never waits.
func (f *preflight) authorize(now time.Time) refusal {
	err := f.consult(now)
	r := f.rule(f.warrant.Authorization, err, now)
	if r.ok() && f.warrant.Basis != BasisNoObligation {
		f.peer.told.resolved(f.task.Capability)
	}
	return r
}

// rule says whether a task may go out of which the book says auth and err.
func (f *preflight) rule(auth Authorization, err error, now time.Time) refusal {
	if err == ErrTaskRequired { //nolint:errorlint // our own sentinel, as it is
		return refusal{OutcomeTaskRequired, ReasonNoCapability, errObligedTask}
	}
	// A denial comes before an unresolved policy: a task that was denied is not
	// worth waiting for.
	if f.task.Capability != "" {
		if f.peer.denials.spent(now, f.peer.Denial) {
			return refusal{OutcomeScopeDenied, ReasonDenialBudget, &budgetSpentError{f.peer.Denial}}
		}
		if f.peer.Denial.HoldOff >= 0 && !f.t.noDenials() {
			if r := f.deniedBefore(auth); !r.ok() {
				return r
			}
		}
	}
	if err != nil {
		return refusal{outcome: OutcomePolicyUnresolved, reason: unresolvedReason(err)}
	}
	return refusal{}
}

// consult asks the book under what the task may go out, or may not yet.
func (f *preflight) consult(now time.Time) error {
	auth, err := f.ask(now)
	f.warrant = warrantOf(auth)
	return err
}

func (f *preflight) ask(now time.Time) (Authorization, error) {
	return f.t.book.Authorize(f.peer.ID, *f.task, f.peer.DefaultTerms, now)
}

// stillCleared asks once more what preflight did, when the base has a connection: it may
// have been waited for, and what was agreed may have been taken back meanwhile, or another
// task denied. Nothing has left yet, and nothing will on a connection of ours; of others
// nobody could tell, so there preflight's word stands.
func (a *attempt) stillCleared(conn net.Conn) error {
	c := callOf(a.parent)
	agreed := a.warrant.Basis > BasisNoObligation
	if !agreed && !c.deniable() {
		return nil
	}
	if counted, _ := countedConnOf(conn); counted == nil {
		return nil
	}
	f, now := c.preflight, time.Now()
	f.details = nil // what it finds is not for the decision
	auth, err := f.ask(now)
	switch r := f.rule(auth, err, now); {
	case !r.ok():
		return &lapsedError{r}
	case agreed && (auth.Digest != a.warrant.Digest || auth.Epoch != a.warrant.Epoch): // it has told the peer which
		return &lapsedError{refusal{outcome: OutcomePolicyUnresolved, reason: ReasonNotAccepted}}
	}
	return nil
}

// lapsedError is why a task that was cleared is not any more.
type lapsedError struct{ refusal }

func (e *lapsedError) Error() string {
	return e.outcome.err().Error() + " (" + e.reason.String() + ")"
}

// deniable reports whether a denial could forbid the task.
func (f *preflight) deniable() bool {
	return f.task.Capability != "" && (f.peer.Denial.Budget > 0 || f.peer.Denial.HoldOff >= 0 && !f.t.noDenials())
}

// unresolvedReason returns why the book has not authorized a task.
func unresolvedReason(err error) Reason {
	if unresolved, ok := err.(*unresolvedError); ok { //nolint:errorlint // the book's own, never wrapped
		return unresolved.reason
	}
	return ReasonNotAccepted
}

// noDenials reports whether the ledger is our own and empty, as it is nearly
// always: then it need not be asked, by value and under the guard of a panic.
func (t *Transport) noDenials() bool {
	own, ok := t.ledger.(*memoryLedger)
	return ok && own.size.Load() == 0 && t.unrecorded.size.Load() == 0
}

// deniedBefore asks the ledger. One that panics has not said that the task may
// go, so it may not.
func (f *preflight) deniedBefore(auth Authorization) (r refusal) {
	defer func() {
		if fault := recover(); fault != nil {
			err := fmt.Errorf("%w: %s", errLedgerPanicked, faultText(fault))
			r = refusal{OutcomeScopeDenied, ReasonLedgerFailed, err}
		}
	}()
	denial, denied := f.t.unrecorded.Denied(f.peer.ID, *f.task, auth)
	if !denied {
		denial, denied = f.t.ledger.Denied(f.peer.ID, *f.task, auth)
	}
	if !denied {
		return refusal{}
	}
	d := f.detail()
	d.correlationID, d.policyReason = denial.CorrelationID, denial.PolicyReason
	return refusal{OutcomeScopeDenied, ReasonDeniedBefore, &deniedError{f.task.Scope, denial.Until}}
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
		Epoch: c.last.warrant.Epoch, Digest: c.last.warrant.Digest, TaskID: c.task.ID,
		Status: status, PolicyReason: c.policyReason(), CorrelationID: c.correlationID(),
		At: now, Until: now.Add(holdOff),
	})
}

// record hands a denial to the ledger. One that fails to record it must not be
// the reason that the task is sent again: then it is kept here.
func (c *call) record(d Denial) {
	kept := d
	kept.Capability = shortened(d.Capability)
	kept.TaskID = shortened(d.TaskID)
	kept.Scope = shortened(d.Scope)
	c.t.lastDenials.add(kept)
	c.t.metrics.denial(c, d.Peer)
	err := errLedgerPanicked
	defer func() {
		if err == nil {
			return
		}
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%w: %s", err, faultText(fault))
		}
		_ = c.t.unrecorded.Record(c, d)
		c.t.logAttrs(c, slog.LevelError, "fedhttp: the ledger has not recorded a denial; it is kept in memory",
			slog.String("peer", d.Peer), slog.String("error", errorText(err)))
	}()
	err = c.t.ledger.Record(detached{context.WithoutCancel(c)}, d)
}

var errLedgerPanicked = errors.New("the denial ledger panicked")
