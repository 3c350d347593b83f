package fedhttp

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// RetryPolicy bounds what is sent again. Only a routing failure is, and only
// after the anchor was refreshed; no setting here makes anything else resent.
type RetryPolicy struct {
	// MaxAttempts is how often a call is sent, counting the first. Zero: 3.
	// 1: nothing is resent.
	MaxAttempts int
	// MinBackoff and MaxBackoff bound the full-jitter exponential wait before a
	// resend. Zero: 100 ms, and 5 s or MinBackoff where that is longer. A Retry-After beyond MaxBackoff forbids the
	// resend.
	MinBackoff, MaxBackoff time.Duration
	// MinRefreshInterval is how far apart fetches of the peer's anchor begin.
	// Zero: 1 s.
	MinRefreshInterval time.Duration
	// AttemptTimeout bounds the time from sending to the response's header, and
	// what this package itself reads of a body. It begins anew whenever net/http
	// reads from the request's body, so a long upload may take its time; one that has
	// nothing to read for so long is closed. (A body in memory of at most 64 KiB with a
	// GetBody is sent at once.) Zero: 1 min. An attempt that runs into it after bytes
	// may have left is ambiguous, so it should be longer than the peer may take.
	AttemptTimeout time.Duration
	// BudgetRatio is how many resends the peer's calls earn: 0.1 is one for ten
	// calls. Ten more are in reserve. Zero: 0.1. A resend after a newer anchor
	// was fetched is free: one refresh may have to repair all of the traffic.
	BudgetRatio float64
	// TrustHTTP2Refusal believes a peer that refuses an HTTP/2 stream, by
	// REFUSED_STREAM or a GOAWAY below it (RFC 9113, section 8.7), that it has not
	// processed the request: that is then routing evidence, good for one resend.
	// False: it is the peer's word only, and proves nothing. A GOAWAY is known as one
	// over TLS, where the base is an *http.Transport with net/http's own HTTP/2 and
	// without a DialTLSContext.
	TrustHTTP2Refusal bool
}

const defaultRefreshInterval = time.Second

func (p RetryPolicy) withDefaults(fault func(field, format string, args ...any)) RetryPolicy {
	if p.MaxAttempts < 0 {
		fault("Retry.MaxAttempts", "%d is negative; 1 resends nothing", p.MaxAttempts)
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = 3
	}
	p.MinBackoff = orDefault(p.MinBackoff, 100*time.Millisecond, "Retry.MinBackoff", fault)
	p.MaxBackoff = orDefault(p.MaxBackoff, max(5*time.Second, p.MinBackoff), "Retry.MaxBackoff", fault)
	if p.MinBackoff > p.MaxBackoff {
		fault("Retry.MinBackoff", "%v is longer than MaxBackoff, %v", p.MinBackoff, ConfigValue{"Retry.MaxBackoff", p.MaxBackoff})
	}
	p.MinRefreshInterval = orDefault(p.MinRefreshInterval, defaultRefreshInterval, "Retry.MinRefreshInterval", fault)
	p.AttemptTimeout = orDefault(p.AttemptTimeout, time.Minute, "Retry.AttemptTimeout", fault)
	p.BudgetRatio = rateOrDefault(p.BudgetRatio, 0.1, "Retry.BudgetRatio", fault)
	return p
}

// retryLoop is a retryablehttp client whose CheckRetry is the layer-aware policy. It
// has no state.
//
// The library sees none of the traffic. What it sends is a shell that carries
// the call in its context, and what it gets back is a shell as well; the real
// request and response stay in the call. So it has no body to buffer or rewind,
// no Location to follow, no Retry-After to obey, no URL to log, and no
// connections to close. It keeps the loop, and asks us at each turn of it.
var retryLoop = &retryablehttp.Client{
	HTTPClient: &http.Client{Transport: turn{}},
	RetryMax:   math.MaxInt,
	CheckRetry: checkRetry,
	Backoff:    func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return 0 },
}

// loop sends the call until its verdict is final. The first attempt has been
// made: a call that needs no resend does not pay for the library.
func (c *call) loop() {
	if c.last.verdict != VerdictRouting {
		return
	}
	shell := &http.Request{URL: shellURL, Header: http.Header{}}
	// The shells say all there is to say through the call; an error can only be
	// the context's, in the moment between the decision to resend and the send.
	_, _ = retryLoop.Do(&retryablehttp.Request{Request: shell.WithContext(c)}) //nolint:bodyclose // a shell has no body
	if c.resending {
		c.resending = false
		c.forgo()
		c.mend().stopped = c.ended()
	}
}

// ended is why the call stops when its context does: by the caller's own doing,
// or for want of time.
func (c *call) ended() refusal {
	switch {
	case errors.Is(c.Err(), context.Canceled):
		return refusal{OutcomeCanceled, ReasonContextEnded, contextError(c)}
	case c.requestCanceled():
		return refusal{OutcomeCanceled, ReasonContextEnded, errRequestCanceled}
	}
	return refusal{OutcomeRoutingFailed, ReasonDeadline, contextError(c)}
}

var shellURL = &url.URL{Scheme: "https", Host: "peer.invalid"}

// turn is one turn of the loop: the first hands over the attempt at hand, each
// further one makes another.
type turn struct{}

func (turn) RoundTrip(shell *http.Request) (*http.Response, error) {
	c := callOf(shell.Context())
	for c.resending {
		if c.resending = !c.send(); c.resending { // taken back
			c.mend().stopped = c.resendAgain()
			c.resending = c.mending.stopped.ok()
		}
	}
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: shell,
	}, nil
}

// checkRetry is the layer-aware policy, in the place of the library's. It does
// all that has to come before a resend, the wait included: the conditions that
// hold after the wait are checked while the response at hand is still whole.
func checkRetry(ctx context.Context, _ *http.Response, _ error) (bool, error) {
	c := callOf(ctx)
	if c.last.verdict != VerdictRouting || !c.mend().stopped.ok() {
		return false, nil
	}
	answered := time.Now()
	if stop := c.mayResend(); !stop.ok() {
		c.mend().stopped = stop
		return false, nil
	}
	c.last.span.endAt(answered) // and not after the refresh and the wait
	c.last.discard()
	c.resending = true
	return true, nil
}

// mayResend says why the call is not sent again after a routing failure, and
// makes everything ready where it is. The conditions are those of docs/design.md.
func (c *call) mayResend() refusal {
	a, p := c.last, c.peer
	switch {
	case a.reason != ReasonNone:
		return stop(a.reason)
	case c.Err() != nil, c.requestCanceled():
		return c.ended()
	case c.t.anchors == nil:
		return stop(ReasonNoAnchorSource)
	case int(c.sends) >= p.Retry.MaxAttempts || c.sends > 1 && a.rests(SourceHTTP2Refusal):
		c.refreshForOthers(a)
		return stop(ReasonAttemptsExhausted)
	case !c.body.rewind(c.in):
		c.refreshForOthers(a)
		if a.delivery == DeliveryAnswered {
			a.slot.release(tallyNeutral) // the refresh mends it for the next call
		}
		return stop(ReasonBodyNotReplayable)
	}
	now := time.Now()
	after, ok := time.Duration(0), true
	if a.resp != nil {
		after, _, ok = retryAfter(a.resp.Header, now)
	}
	switch {
	case !ok:
		return stop(ReasonRetryAfterInvalid)
	case after > p.Retry.MaxBackoff:
		return stop(ReasonRetryAfterTooLong)
	}

	result, r := c.refresh(a)
	if !r.ok() {
		return r
	}
	c.next = &attempt{}
	if result == refreshAdvanced {
		a.slot.release(tallyNeutral) // a stale anchor, repaired: it says nothing about the peer
	} else {
		a.slot.release(tallyFailure)
		if c.next.paid = p.budget.take(); !c.next.paid {
			return stop(ReasonBudgetExhausted)
		}
	}
	if r = c.pause(max(after, backoff(p.Retry, int(c.sends)))); r.ok() {
		r = c.clearResend()
	}
	if !r.ok() {
		c.forgo()
	}
	return r
}

// clearResend asks anew what has to hold right before a send, and says what does not. The
// call was sent, and failed, so all that this forbids is the resend.
func (c *call) clearResend() refusal {
	r := c.authorize(time.Now())
	switch {
	case r.outcome == OutcomePolicyUnresolved:
		r.err = c.missing(r.reason)
		c.tellCoordinator(r.reason)
	case r.ok() && c.peer.degraded.Load():
		return stop(ReasonPeerDegraded)
	case r.ok():
		r = c.trust()
	}
	switch {
	case !r.ok():
		r.outcome = OutcomeRoutingFailed
	case !c.admit():
		return stop(ReasonBreakerOpen)
	}
	return r
}

// stop is the refusal of a resend.
func stop(why Reason) refusal { return refusal{outcome: OutcomeRoutingFailed, reason: why} }

// resendAgain makes a resend ready that was taken back, or says why there is none.
func (c *call) resendAgain() refusal {
	var r refusal
	if c.Err() != nil || c.requestCanceled() {
		r = c.ended()
	} else if err := c.resumable(); err != nil {
		r = refusal{OutcomeRoutingFailed, c.mending.own.reason, err}
	} else {
		r = c.clearResend()
	}
	if !r.ok() {
		c.forgo()
	}
	return r
}

// forgo lets go of what the resend had been given that does not take place.
func (c *call) forgo() {
	c.next.slot.release(tallyNeutral)
	if c.next.paid {
		c.peer.budget.giveBack()
	}
}

// refresh waits until the peer's anchor was fetched after a was sent.
func (c *call) refresh(a *attempt) (refreshResult, refusal) {
	k, p := &c.peer.anchors, c.peer
	if a.outdatedBy(k.anchor()) {
		return refreshAdvanced, refusal{} // somebody else has fetched it meanwhile
	}
	if deadline, ok := c.Deadline(); ok && !k.nextFetch(p.Retry.MinRefreshInterval).Before(deadline) {
		return refreshFailed, refusal{outcome: OutcomeRoutingFailed, reason: ReasonDeadline}
	}
	start := time.Now()
	result, waited, err := k.refresh(c, a.mark, a.outdatedBy, p.Retry.MinRefreshInterval)
	if waited {
		c.refreshes++
		c.t.tracing.endRefresh(c, start, result, c.Err() == nil)
	}
	switch {
	case c.Err() != nil:
		return refreshFailed, c.ended()
	case result == refreshFailed:
		return result, refusal{OutcomeRoutingFailed, ReasonRefreshFailed, &refreshError{err}}
	case a.reading.staleAnchor && !a.outdatedBy(k.anchor()):
		return result, refusal{outcome: OutcomeRoutingFailed, reason: ReasonAnchorUnchanged}
	}
	return result, refusal{}
}

// outdatedBy reports whether the anchor is another than the one that the attempt
// went out under, as far as it matters: where that had roots, which did not know the
// authority of the peer's certificate, only others may.
func (a *attempt) outdatedBy(now *keptAnchor) bool {
	if a.anchor.Roots != nil && unknownAuthority(a.err) {
		return now.trust != a.anchor.trust
	}
	return now.differs(a.anchor)
}

// refreshError is why an anchor could not be fetched anew.
type refreshError struct{ err error }

func (e *refreshError) Error() string { return "anchor refresh: " + errorText(e.err) }
func (e *refreshError) Unwrap() error { return e.err }

// refreshForOthers has the anchor fetched after a failure that this call cannot
// be resent after: a peer that gets nothing but such calls would otherwise keep
// a stale anchor for ever.
func (c *call) refreshForOthers(a *attempt) {
	if !a.outdatedBy(c.peer.anchors.anchor()) {
		c.peer.anchors.kick(c.peer.Retry.MinRefreshInterval)
	}
}

// pause waits before a resend.
func (c *call) pause(wait time.Duration) refusal {
	if deadline, ok := c.Deadline(); ok && !time.Now().Add(wait).Before(deadline) {
		return refusal{outcome: OutcomeRoutingFailed, reason: ReasonDeadline}
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.Done():
	case <-c.in.Cancel: //nolint:staticcheck // see requestCanceled
		return c.ended()
	case <-c.t.lifetime.Done():
		return refusal{OutcomeCanceled, ReasonClosed, ErrClosed}
	}
	if c.Err() != nil || c.requestCanceled() { // also where both came at once
		return c.ended()
	}
	return refusal{}
}
