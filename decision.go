package fedhttp

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Outcome is how a call ended. It is a closed set; the zero value is
// OutcomeDelivered.
type Outcome uint8

// The outcomes. Every one but OutcomeDelivered has an error that it matches
// with errors.Is, see [Error].
const (
	// OutcomeDelivered: the peer's application answered, whatever the status.
	OutcomeDelivered Outcome = iota
	// OutcomeRejected: the peer's policy engine said no. Never sent again.
	OutcomeRejected
	// OutcomeRoutingFailed: the request did not reach a policy engine, and it
	// could not be sent again, or sending it again did not help.
	OutcomeRoutingFailed
	// OutcomeAmbiguous: it cannot be told whether a policy engine saw the
	// request. Never sent again; an operator is told.
	OutcomeAmbiguous
	// OutcomePolicyUnresolved: not sent; the policy for the task is pending.
	OutcomePolicyUnresolved
	// OutcomeScopeDenied: not sent; an earlier denial covers the task.
	OutcomeScopeDenied
	// OutcomePeerUnavailable: not sent; the peer's breaker is open, its anchor cannot
	// be had or used, or our side has refused the handshake.
	OutcomePeerUnavailable
	// OutcomeUnknownPeer: not sent; the URL belongs to no configured peer.
	OutcomeUnknownPeer
	// OutcomeTaskRequired: not sent; the request lacks a capability.
	OutcomeTaskRequired
	// OutcomePolicyMismatch: the peer answered under another policy than the
	// one that the task was sent under. The answer is withheld.
	OutcomePolicyMismatch
	// OutcomeCanceled: our own side ended the call: its context, its request
	// (malformed, or with a body that failed), or Close.
	OutcomeCanceled
)

var outcomeNames = []string{
	"delivered", "rejected", "routing_failed", "ambiguous", "policy_unresolved", "scope_denied",
	"peer_unavailable", "unknown_peer", "task_required", "policy_mismatch", "canceled",
}

// String returns the outcome's token, such as "delivered".
func (o Outcome) String() string { return enumString(outcomeNames, "outcome", o) }

// MarshalText returns the outcome's token, or an error for a value outside the set.
func (o Outcome) MarshalText() ([]byte, error) { return enumMarshal(outcomeNames, "outcome", o) }

// UnmarshalText parses an outcome's token.
func (o *Outcome) UnmarshalText(text []byte) error {
	return enumUnmarshal(outcomeNames, "outcome", o, text)
}

// Reason is the stable token that says why a call ended as it did. It is a
// closed set; the zero value is ReasonNone.
type Reason uint8

// The reasons, by the outcome that they explain.
const (
	// ReasonNone: nothing to explain; the call was delivered.
	ReasonNone Reason = iota

	// ReasonDenied: policy evidence on a denial status. [rejected]
	ReasonDenied

	// ReasonNoSignal: a failure without any evidence of its author. [ambiguous]
	ReasonNoSignal
	// ReasonContradictorySignals: evidence for both layers, or a signal whose
	// value is not understood. [ambiguous]
	ReasonContradictorySignals

	// ReasonPeerDegraded: the peer's signals cannot be believed just now
	// [ambiguous], or our own proof of non-delivery stands but a degraded peer
	// gets no resends [routing_failed].
	ReasonPeerDegraded
	// ReasonPeerDistrustsUs: the peer's anchor for us is stale; refreshing our
	// anchor for it mends nothing. [routing_failed]
	ReasonPeerDistrustsUs
	// ReasonBreakerOpen: the peer's breaker is not closed. [routing_failed: no
	// resend; peer_unavailable: nothing was sent]
	ReasonBreakerOpen
	// ReasonAttemptsExhausted: RetryPolicy.MaxAttempts sends were made. [routing_failed]
	ReasonAttemptsExhausted
	// ReasonBodyNotReplayable: the body was read and has no GetBody. [routing_failed]
	ReasonBodyNotReplayable
	// ReasonNoAnchorSource: Config.Anchors is nil. [routing_failed]
	ReasonNoAnchorSource
	// ReasonRefreshFailed: the anchor could not be fetched anew. [routing_failed]
	ReasonRefreshFailed
	// ReasonAnchorUnchanged: the failure was a stale anchor, and the refresh
	// brought no newer one. [routing_failed]
	ReasonAnchorUnchanged
	// ReasonRetryAfterTooLong: Retry-After is beyond RetryPolicy.MaxBackoff. [routing_failed]
	ReasonRetryAfterTooLong
	// ReasonRetryAfterInvalid: Retry-After does not parse, is negative or
	// overflows, so it cannot be obeyed. [routing_failed]
	ReasonRetryAfterInvalid
	// ReasonBudgetExhausted: the peer's retry budget is spent. [routing_failed]
	ReasonBudgetExhausted
	// ReasonDeadline: the wait does not fit the context's deadline. [routing_failed]
	ReasonDeadline

	// ReasonNotAdvertised: the peer advertises no such capability. [policy_unresolved]
	ReasonNotAdvertised
	// ReasonNotAccepted: the advertised digest is neither accepted nor under an
	// unexpired negotiation. [policy_unresolved]
	ReasonNotAccepted
	// ReasonTermsInsufficient: the policy is agreed, and its terms do not grant
	// the task's obligations. [policy_unresolved]
	ReasonTermsInsufficient
	// ReasonPoliciesStale: the book has not heard of its source for too long, see
	// [PolicyBook.SetStale]; what it knows may have been revoked. [policy_unresolved]
	ReasonPoliciesStale
	// ReasonHoldFull: HoldPolicy.Max tasks are held already. [policy_unresolved]
	ReasonHoldFull
	// ReasonPolicyDeadline: Task.PolicyDeadline passed. [policy_unresolved]
	ReasonPolicyDeadline
	// ReasonHoldTimeout: HoldPolicy.MaxWait passed. [policy_unresolved]
	ReasonHoldTimeout

	// ReasonDeniedBefore: an unexpired denial covers the task. [scope_denied]
	ReasonDeniedBefore
	// ReasonDenialBudget: the peer denied DenialPolicy.Budget times in the
	// window. [scope_denied]
	ReasonDenialBudget
	// ReasonLedgerFailed: the denial ledger panicked, so it cannot be known
	// that no denial covers the task. [scope_denied]
	ReasonLedgerFailed

	// ReasonAnchorRequired: Peer.RequireAnchor, and there is no valid anchor. [peer_unavailable]
	ReasonAnchorRequired

	// ReasonAnchorExpired: the peer's anchor has expired and no other could be
	// fetched. [peer_unavailable]
	ReasonAnchorExpired
	// ReasonRootsUnusable: the anchor has TLS roots, and the peer's base cannot
	// verify under them. [peer_unavailable]
	ReasonRootsUnusable
	// ReasonClientCertificate: our own certificate, which the peer asks for, could
	// not be had, see ErrClientCertificate; nothing was delivered. [peer_unavailable]
	ReasonClientCertificate
	// ReasonPeerUntrusted: our own side does not accept who the peer has shown
	// itself to be, see ErrPeerUntrusted; nothing was delivered. [peer_unavailable]
	ReasonPeerUntrusted

	// ReasonUnlistedOrigin: the URL's origin belongs to no peer. [unknown_peer]
	ReasonUnlistedOrigin
	// ReasonBadURL: the URL has no scheme and host to look up, or the request's Host
	// is another peer's than the URL's. [unknown_peer]
	ReasonBadURL

	// ReasonNoCapability: Peer.RequireTask, or obligations, without a capability. [task_required]
	ReasonNoCapability

	// ReasonReceiptDiffers: the peer ran the task under another digest. [policy_mismatch]
	ReasonReceiptDiffers
	// ReasonReceiptMissing: RequireReceipt, and a success without one. [policy_mismatch]
	ReasonReceiptMissing

	// ReasonContextEnded: the call's context ended, or its caller has closed the
	// request's Cancel. [canceled, policy_unresolved]
	ReasonContextEnded
	// ReasonClosed: the Transport was closed. [canceled, policy_unresolved]
	ReasonClosed
	// ReasonBadRequest: the request cannot be sent as it is: its method, path, query,
	// header or trailer is malformed, or its ContentLength or TransferEncoding is not
	// one that a body can have; or HTTP/2 does not send its header. [canceled]
	ReasonBadRequest
	// ReasonBodyFailed: reading the request's body failed, or it has not the length
	// that ContentLength says. Bytes may have left. [canceled]
	ReasonBodyFailed
)

var reasonNames = []string{
	"", "denied", "no_signal", "contradictory_signals",
	"peer_degraded", "peer_distrusts_us", "breaker_open", "attempts_exhausted", "body_not_replayable",
	"no_anchor_source", "refresh_failed", "anchor_unchanged", "retry_after_too_long", "retry_after_invalid",
	"budget_exhausted", "deadline",
	"not_advertised", "not_accepted", "terms_insufficient", "policies_stale", "hold_full", "policy_deadline", "hold_timeout",
	"denied_before", "denial_budget", "ledger_failed",
	"anchor_required", "anchor_expired", "roots_unusable", "client_certificate", "peer_untrusted",
	"unlisted_origin", "bad_url",
	"no_capability",
	"receipt_differs", "receipt_missing",
	"context_ended", "closed", "bad_request", "body_failed",
}

// String returns the reason's token, such as "no_signal"; "" for ReasonNone.
func (r Reason) String() string { return enumString(reasonNames, "reason", r) }

// MarshalText returns the reason's token, or an error for a value outside the set.
func (r Reason) MarshalText() ([]byte, error) { return enumMarshal(reasonNames, "reason", r) }

// UnmarshalText parses a reason's token.
func (r *Reason) UnmarshalText(text []byte) error {
	return enumUnmarshal(reasonNames, "reason", r, text)
}

// Decision is what the transport decided for one call, and on what grounds.
// It carries no secrets: what came from the peer is bounded and escaped.
type Decision struct {
	// Peer is the ID of the peer; "" where the URL belongs to none.
	Peer string
	// Capability and TaskID are the task's.
	Capability, TaskID string
	// Outcome and Reason say how the call ended and why.
	Outcome Outcome
	Reason  Reason
	// Evidence is what the last attempt showed, in the order in which it was read.
	Evidence []Evidence
	// Delivery is what is known about the last attempt; DeliveryNone when
	// nothing was sent.
	Delivery Delivery
	// CorrelationID is the peer's, bounded and escaped.
	CorrelationID string
	// PolicyReason is the peer's reason for a rejection, bounded and escaped.
	PolicyReason string
	// PolicyDigest, Epoch and Basis are those of the last authorization.
	PolicyDigest string
	Epoch        uint64
	Basis        Basis
	// AnchorVersion is the version of the anchor that the last attempt went out under.
	AnchorVersion string
	// Attempts counts the sends, Refreshes the anchor fetches that this call waited for.
	Attempts, Refreshes int
	// HeldFor is how long the task was held for its policy; zero when it was not.
	HeldFor time.Duration
	// RetryAt is when a call to the peer may be tried again, where the breaker
	// refused this one; else zero.
	RetryAt time.Time
	// Escalated tells whether an operator was told.
	Escalated bool
}

// Err returns nil for a delivered call, else an [*Error] that carries d.
func (d Decision) Err() error {
	if d.Outcome == OutcomeDelivered {
		return nil
	}
	return &Error{Decision: d}
}

// The errors that an [Error] matches with errors.Is, one for each outcome, and
// ErrStaleEpoch and ErrClosed.
var (
	ErrRejected         = errors.New("rejected by the peer's policy engine")
	ErrRouting          = errors.New("not delivered by the routing layer")
	ErrBoundary         = errors.New("failed at the boundary; the author cannot be told")
	ErrPolicyUnresolved = errors.New("policy pending; not sent")
	ErrScopeDenied      = errors.New("denied before; not sent")
	ErrPeerUnavailable  = errors.New("peer unavailable; not sent")
	ErrUnknownPeer      = errors.New("no configured peer; not sent")
	ErrPolicyMismatch   = errors.New("answered under another policy; answer withheld")
	ErrTaskRequired     = errors.New("a capability is required; not sent")
	ErrStaleEpoch       = errors.New("older negotiation epoch")
	ErrClosed           = errors.New("transport closed")
)

// ErrPeerUntrusted is for the TLS verification of a base: one that refuses who
// the peer has proven to be, by a policy of our own, returns an error that wraps
// it. That is never a routing failure: the call is not sent again, and ends as
// OutcomePeerUnavailable with ReasonPeerUntrusted. So does one over plain http to an
// origin of this machine whose connection leads to another.
var ErrPeerUntrusted = errors.New("the peer's identity is not accepted")

// ErrClientCertificate is for the TLS of a base whose own certificate, which the
// peer asks for, cannot be had: an error of its GetClientCertificate that wraps it
// is never a routing failure either. The call ends as OutcomePeerUnavailable with
// ReasonClientCertificate. What Config.ClientCertificate fails with is wrapped.
var ErrClientCertificate = errors.New("there is no client certificate to show")

var outcomeErrors = [...]error{
	OutcomeDelivered:        nil,
	OutcomeRejected:         ErrRejected,
	OutcomeRoutingFailed:    ErrRouting,
	OutcomeAmbiguous:        ErrBoundary,
	OutcomePolicyUnresolved: ErrPolicyUnresolved,
	OutcomeScopeDenied:      ErrScopeDenied,
	OutcomePeerUnavailable:  ErrPeerUnavailable,
	OutcomeUnknownPeer:      ErrUnknownPeer,
	OutcomeTaskRequired:     ErrTaskRequired,
	OutcomePolicyMismatch:   ErrPolicyMismatch,
	OutcomeCanceled:         nil, // the cause says whose doing it was: context.Canceled or ErrClosed
}

// err returns the error that stands for the outcome, nil where there is none.
func (o Outcome) err() error {
	if int(o) < len(outcomeErrors) {
		return outcomeErrors[o]
	}
	return nil
}

// Error is a call that was not delivered. RoundTrip returns it where nothing
// usable came back; [Decision.Err] makes one from a response's decision.
//
// errors.Is matches the error of the outcome (ErrRejected for
// OutcomeRejected, ...) and everything that Err wraps; for OutcomeCanceled that
// is the context's error and its cause, or ErrClosed.
type Error struct {
	Decision Decision
	// Err is the cause: the transport error of the last attempt, or the
	// context's cause. Nil where the decision says it all.
	Err error
}

// Error names the peer, the outcome, the reason and, where known, the
// correlation id and the cause.
func (e *Error) Error() string {
	d := &e.Decision
	var b strings.Builder
	b.WriteString("fedhttp: ")
	if d.Peer != "" {
		b.WriteString("peer ")
		b.WriteString(strconv.Quote(d.Peer))
		b.WriteString(": ")
	}
	if err := d.Outcome.err(); err != nil {
		b.WriteString(err.Error())
	} else {
		b.WriteString(d.Outcome.String())
	}
	if d.Reason != ReasonNone {
		b.WriteString(" (")
		b.WriteString(d.Reason.String())
		b.WriteString(")")
	}
	if d.Capability != "" {
		b.WriteString(", capability ")
		b.WriteString(quote(d.Capability))
	}
	if d.CorrelationID != "" {
		b.WriteString(", correlation id ")
		b.WriteString(d.CorrelationID)
	}
	if d.PolicyReason != "" {
		b.WriteString(", peer says ")
		b.WriteString(strconv.Quote(d.PolicyReason))
	}
	if !d.RetryAt.IsZero() {
		b.WriteString(", next trial at ")
		b.WriteString(d.RetryAt.UTC().Format(time.RFC3339Nano))
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(errorText(e.Err)) // net/http quotes what the peer sent, whole
	}
	return b.String()
}

// Unwrap returns the cause, nil where there is none.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether target is the error of the decision's outcome.
func (e *Error) Is(target error) bool {
	return target != nil && target == e.Decision.Outcome.err()
}

// Timeout reports whether a call that was sent ran into a time limit. A call
// that was never sent did not time out on the wire, so it is false for those,
// whatever ended their wait: nothing of preflight looks like a transport error.
func (e *Error) Timeout() bool {
	if e.Decision.Attempts == 0 {
		return false
	}
	var t interface{ Timeout() bool }
	return errors.As(e.Err, &t) && t.Timeout()
}

// DecisionFromResponse returns the decision of the call that obtained resp. It
// reports false for a response that no Transport of this package returned; but where
// its request was made with the context of one that did (Response.Request.Context), the
// decision is that one's. It is safe for concurrent use.
func DecisionFromResponse(resp *http.Response) (Decision, bool) {
	if resp == nil || resp.Request == nil {
		return Decision{}, false
	}
	c := callOf(resp.Request.Context())
	if c == nil {
		return Decision{}, false
	}
	d := c.decision()
	d.Evidence = slices.Clone(d.Evidence) // the caller's own
	return d, true
}
