package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"reflect"
	"slices"
	"time"
)

// attempt is one send of a call: what went out, and what is known of it.
type attempt struct {
	request http.Request // what the base gets
	shown   http.Request // what the caller sees as Response.Request
	trace   httptrace.ClientTrace
	room    *headerRoom     // nil: the request's header is the caller's
	body    io.ReadCloser   // the response's, as the base gave it
	parent  context.Context // of its own; see attemptContext
	end     endPointer
	clock   attemptClock
	slot    slot
	span    span

	warrant *warrant    // what it went out under,
	anchor  *keptAnchor // and which anchor
	mark    uint64      // fetches that begin after it have a higher number

	fence fence

	// What came of it. One of resp and err is nil.
	resp     *http.Response
	err      error
	reading  reading
	delivery Delivery
	early    bool // the answer was read before anything of the request was written; under fence.mu
	traced   bool // the fence is the trace of its context
	expired  bool // AttemptTimeout ended it
	degraded bool
	paid     bool // with a token of the retry budget
	verdict  Verdict
	reason   Reason
}

// admit asks the breaker for the slot that the next send uses.
func (c *call) admit() bool {
	b := c.peer.breaker.Load()
	slot, ok := b.admit(c.sends > 0)
	if !ok {
		c.detail().retryAt = b.retryAt(time.Now())
	}
	c.next.slot = slot
	return ok
}

// send makes the attempt to come, which was admitted, and leaves it, judged, in c.last.
// It reports false where that was taken back.
func (c *call) send() bool {
	p := c.peer
	a, before := c.next, c.last
	c.last = a
	c.sends++
	a.warrant, a.mark = c.warrant, p.anchors.mark()

	private := c.t.tracing.private(c.t.tracing.startAttempt(c, a, before), c.in.Context(), p.Propagation)
	ctx := a.open(private)
	copyRequest(ctx, &a.request, c.in)
	a.request.Body = nil // the call's, until it is handed over
	c.headers(ctx, a)
	c.body.hand(a)
	begun := p.clocks.start(a)

	a.resp, a.err = c.roundTrip(a) //nolint:bodyclose // handed over to the caller, or discarded
	metered, took := c.t.metrics.on(), time.Duration(0)
	if metered {
		took = p.clocks.now() - begun // until the response's header
	}
	if a.stopClock() {
		c.expire(a)
	}
	c.judge(a)
	c.t.tracing.classified(c, a)
	if a.lapsed() {
		c.takeBack(a, before)
		return false
	}
	if metered {
		c.t.metrics.attempt(ctx, c, a, took)
	}
	if a.resp == nil {
		a.span.End() // nothing of it goes on
	}
	return true
}

// lapsed reports whether preflight's word did not hold until the base had a connection.
func (a *attempt) lapsed() bool {
	if !a.unjudged() {
		return false
	}
	_, lapsed := errors.AsType[*lapsedError](a.err)
	return lapsed
}

// takeBack undoes a send of which nothing has left. The call is what it was before.
func (c *call) takeBack(a, before *attempt) {
	c.sends--
	c.mending.taken++
	c.last, c.next = before, &attempt{paid: a.paid}
	a.slot.release(tallyNeutral)
	a.close()
}

var (
	errNothing        = errors.New("the base RoundTripper returned neither a response nor an error")
	errAttemptTimeout = attemptTimeoutError{}
)

// attemptTimeoutError is an attempt that RetryPolicy.AttemptTimeout ended.
type attemptTimeoutError struct{}

func (attemptTimeoutError) Error() string { return "no response within the attempt timeout" }
func (attemptTimeoutError) Timeout() bool { return true }

// Is makes it a deadline, as net/http's own timeouts are.
func (attemptTimeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// expire is for an attempt whose time was up. A response that came all the same is
// given up: what its body is read with has ended, or is about to.
func (c *call) expire(a *attempt) {
	if a.expired = c.Err() == nil; a.resp != nil {
		closeBody(a.resp.Body)
		a.resp, a.err = nil, errAttemptTimeout
	}
}

// roundTrip calls the base and holds it to the RoundTripper contract.
func (c *call) roundTrip(a *attempt) (*http.Response, error) {
	resp, err := c.peer.trust.under(a.anchor).RoundTrip(&a.request)
	switch {
	case err != nil:
		if resp != nil {
			closeBody(resp.Body)
		}
		return nil, redacted(err)
	case resp == nil:
		return nil, errNothing
	case a.fence.isStopped():
		closeBody(resp.Body)
		return nil, errResendStopped
	case a.isEarly():
		a.fence.shut()
		closeBody(resp.Body)
		return nil, errEarlyAnswer
	case resp.Body == nil:
		resp.Body = http.NoBody
	}
	// The caller's request, and the call's context: what we say to the peer is not for
	// those whom the caller makes other requests to, and the attempt's own context ends
	// with the body and goes on fencing the base until then.
	copyRequest(c, &a.shown, c.in)
	resp.Request = &a.shown
	return resp, nil
}

// copyRequest makes to a shallow copy of from with another context. It allocates
// nothing, as WithContext is inlined; it is not inlined itself, so that no copy is on
// the stack while the base sends.
//
//go:noinline
func copyRequest(ctx context.Context, to, from *http.Request) { *to = *from.WithContext(ctx) }

// headers puts what this transport says into the header of the attempt, in place of
// whatever the caller said.
func (c *call) headers(ctx context.Context, a *attempt) {
	h := (*attemptHeader)(a)
	if a.request.Header == nil {
		h.own()
	}
	names := &c.peer.signals
	if c.peer.strip.letters&c.letters != 0 {
		h.strip(c.peer.strip, c.t.tracing.keeps(ctx, c.peer.Propagation))
	}
	if w := a.warrant; w.Digest != "" {
		own := h.own()
		own[names.policyDigest], own[names.negotiationEpoch] = w.digest[:], w.epoch[:]
	}
	if a.anchor.Version != "" {
		own := h.own()
		own[names.anchorVersion] = single(&a.room.anchor, a.anchor.Version)
	}
	c.t.tracing.propagate(ctx, c.peer.Propagation, h)
}

// judge finds out what the attempt came to.
func (c *call) judge(a *attempt) {
	p := c.peer
	a.degraded = p.disbelieved()
	f := facts{}
	if a.err != nil {
		a.delivery, a.reading.evidence, a.err = a.fence.judge(a.err, c.body.watched.failed() != nil, p.Retry.TrustHTTP2Refusal)
		a.reading.staleAnchor = a.delivery == DeliveryNotDelivered && unknownAuthority(a.err)
		a.expired = a.expired && !a.fence.isStopped()
	} else {
		a.delivery = DeliveryAnswered
		var now time.Time
		if len(a.resp.Header[p.signals.anchorIssuedAt]) > 0 {
			now = time.Now()
		}
		a.reading = p.signals.read(a.resp.Header, a.resp.StatusCode, a.anchor.IssuedAt, now)
		if _, announced := a.resp.Trailer[p.signals.policyEvaluated]; announced {
			// That word comes when all is decided, and may be another one.
			a.reading.evidence = append(a.reading.evidence, Evidence{Source: SourceHeader})
		}
		if len(p.signals.dialects) > 0 {
			c.listen(a)
		}
		a.degraded = a.degraded || a.reading.degraded
		f.status, f.failureStatus = a.resp.StatusCode, p.signals.isFailure(a.resp.StatusCode)
	}
	f.degraded, f.evidence = a.degraded, a.reading.evidence
	if own := c.ownDoing(a); !own.ok() {
		// Our own side ended it, so there is nothing to judge, and nothing is evidence.
		a.reason, a.reading.evidence = own.reason, nil
		c.mend().own = own
	} else {
		a.verdict, a.reason = classify(f)
	}
	if a.reason == ReasonNoSignal && a.reading.correlationID != "" {
		if layer := c.resolve(a.reading.correlationID); layer != LayerUnknown {
			a.reading.evidence = append(a.reading.evidence, Evidence{Source: SourceCorrelationResolver, Layer: layer})
			a.reading.weigh()
			f.evidence = a.reading.evidence
			a.verdict, a.reason = classify(f)
		}
	}
	if a.verdict == VerdictRejection && a.resp != nil {
		c.readPolicyReason(a)
	}
}

// ownDoing says how our own side ended the attempt, ReasonNone where it did not, and by
// what error where the attempt's does not say so. It is asked once: a moment later the
// caller may have walked away from what was judged, or what is canceled may be late.
// A deadline is not that: nobody has walked away, and what became of the request
// matters.
func (c *call) ownDoing(a *attempt) refusal {
	switch {
	case a.err == nil:
	case errors.Is(c.Err(), context.Canceled):
		return refusal{outcome: OutcomeCanceled, reason: ReasonContextEnded}
	case c.requestCanceled():
		return refusal{OutcomeCanceled, ReasonContextEnded, errRequestCanceled}
	case c.body.watched.failed() != nil:
		own := refusal{outcome: OutcomeCanceled, reason: ReasonBodyFailed}
		if a.fence.isStopped() || http2EndOf(a.err) == http2Reset {
			own.err = c.body.watched.failed() // a.err says what came of it, and not this
		}
		return own
	case a.fence.isHTTP2() && (!overHTTP2(c.in.Header) || http2EndOf(a.err) == http2TooLarge):
		return refusal{outcome: OutcomeCanceled, reason: ReasonBadRequest}
	case a.delivery != DeliveryNotDelivered:
	case errors.Is(a.err, ErrPeerUntrusted):
		return refusal{outcome: OutcomePeerUnavailable, reason: ReasonPeerUntrusted}
	case errors.Is(a.err, ErrClientCertificate):
		return refusal{outcome: OutcomePeerUnavailable, reason: ReasonClientCertificate}
	default:
		if lapsed, ok := errors.AsType[*lapsedError](a.err); ok { // while it waited for a connection
			return lapsed.refusal
		}
	}
	return refusal{}
}

// failure returns why the attempt got no response.
func (c *call) failure(a *attempt) error {
	switch {
	case a.err == nil:
		return nil
	case a.expired:
		// a.err says "canceled", which was our way to end the attempt and nobody's wish.
		return errAttemptTimeout
	case c.Err() != nil:
		return &joined{contextError(c), a.err}
	}
	return a.err
}

// joined says the first error and is both.
type joined struct{ err, also error }

func (j *joined) Error() string   { return j.err.Error() }
func (j *joined) Unwrap() []error { return []error{j.err, j.also} }
func (j *joined) Timeout() bool {
	var t interface{ Timeout() bool }
	return errors.As(j.err, &t) && t.Timeout()
}

// unjudged reports whether our own side ended the attempt: by what mending.own says.
func (a *attempt) unjudged() bool { return a.err != nil && a.verdict == VerdictNone }

// tally says how the attempt counts for the breaker.
func (a *attempt) tally() tally {
	switch {
	case a.unjudged():
		return tallyNeutral
	case a.verdict == VerdictRejection:
		return tallySuccess
	case a.verdict != VerdictNone, a.resp.StatusCode >= 500, a.resp.StatusCode < 100: // RFC 9110, section 15: no code, so as 5xx
		return tallyFailure
	case a.resp.StatusCode >= 400:
		return tallyNeutral
	}
	return tallySuccess
}

// rests reports whether the attempt's evidence has the source.
func (a *attempt) rests(s Source) bool {
	return slices.ContainsFunc(a.reading.evidence, func(e Evidence) bool { return e.Source == s })
}

const (
	drainBytes = 64 << 10
	drainTime  = time.Second
)

// discard gives up the response, reading what is left of a small body so that
// the connection can be used again, within bounds of bytes and time.
func (a *attempt) discard() {
	if a.resp != nil && a.resp.Body != http.NoBody {
		body := a.resp.Body
		// Closed as well as canceled: the body may be one that knows no context.
		timer := time.AfterFunc(drainTime, func() { a.cancel(); closeBody(body) })
		_, _ = io.CopyN(io.Discard, body, drainBytes+1)
		if timer.Stop() {
			closeBody(body)
		}
	}
	a.resp = nil
	a.close()
}

// close ends the attempt. Nothing of it is used any more.
func (a *attempt) close() {
	if a.parent != nil { // else its span could not be begun
		a.stopClock()
		a.cancel()
		a.fence.end()
	}
	a.slot.release(tallyFailure) // only a panic has left it to be released here
	a.span.End()
}

// responseBody ends the attempt when the response has been read or closed.
type responseBody attempt

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err != nil {
		(*attempt)(b).close()
	}
	return n, err
}

func (b *responseBody) Close() error {
	err := b.body.Close()
	(*attempt)(b).close()
	return err
}

// upgradedBody is the responseBody of a 101, which can be written to as well.
type upgradedBody struct {
	*responseBody
	io.Writer
}

// CloseWrite ends our side of the connection, as net/http's own body does.
func (b *upgradedBody) CloseWrite() error {
	if half, ok := b.Writer.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return fmt.Errorf("CloseWrite: %w", http.ErrNotSupported)
}

// bodyless reports whether there is nothing to read and nothing to close. Such a
// body has a type without any state: http.NoBody, and another one on HTTP/2. One
// that is merely empty may belong to a stream that goes on.
func (a *attempt) bodyless() bool { return reflect.TypeOf(a.resp.Body).Size() == 0 }

// handOver gives the response to the caller.
func (a *attempt) handOver() *http.Response {
	resp := a.resp
	a.body = resp.Body
	switch w, upgraded := resp.Body.(io.Writer); {
	case a.bodyless():
		a.close()
	case upgraded && resp.StatusCode == http.StatusSwitchingProtocols:
		resp.Body = &upgradedBody{(*responseBody)(a), w}
	default:
		resp.Body = (*responseBody)(a)
	}
	return resp
}
