// Package fedhttp is an [http.RoundTripper] for clients that call other
// organisations' registries. It answers two questions that a plain client, a
// retry library and a circuit breaker get wrong across a trust boundary:
//
//   - May this task be sent at all? A peer's advertised capability is a claim. A
//     task with obligations goes out only under a policy digest that our side
//     has accepted, or a negotiation that has not expired. Else it is held,
//     unsent, or fails with [ErrPolicyUnresolved].
//   - May this request be sent again? A rejection by the peer's policy engine and
//     a failure of the routing in front of it look alike. A rejection is never
//     sent again. A routing failure is, but only after the trust anchor was
//     fetched anew. What cannot be told apart is never sent again, and goes to an
//     operator.
//
// Its promise: a request that a policy engine may have seen is on the wire once.
//
// # Use
//
// A [Transport] is put into an [http.Client]. Requests carry their [Task] in
// the context ([ContextWithTask]) or get one by the peer's [Route]. A
// [PolicyBook] knows what is advertised and agreed; an [AnchorSource] fetches
// trust anchors.
//
// # What a call returns
//
// A response that was obtained is returned with a nil error and its body
// untouched, whatever its status, and [DecisionFromResponse] says what was
// decided: [Decision.Err] makes it an error. An error from RoundTrip means that
// nothing usable came back: the task was refused before dispatch, no response
// came, or the one that came was produced under another policy. It is an
// [*Error], which errors.Is matches with the error of its outcome:
//
//	switch {
//	case errors.Is(err, fedhttp.ErrPolicyUnresolved): // pending: not sent, not a failure
//	case errors.Is(err, fedhttp.ErrRouting):          // never arrived: safe to submit later
//	case errors.Is(err, fedhttp.ErrBoundary):         // cannot be told: ask an operator, do not resend
//	}
//
// # Which base can prove what
//
// A base that is an [http.Transport] (or nil, a clone of the default one) is
// cloned, with everything that is configured on it (but for RegisterProtocol,
// which net/http does not clone); what its owner changes later has no effect. That nothing was delivered is proven where a connection
// was asked for and none came, and on HTTP/1 where no byte was written to the
// one that came. What net/http would send again by itself is stopped once
// anything may have left.
//
// A RoundTripper around an http.Transport that passes the request's context on
// is as safe: hidden resends are stopped. (It must not make requests of its own
// with that context; they would be taken for resends.) It counts no bytes, so only a
// connection that never came is proof. With a base that reports no connection
// events (net/http/httptrace) nothing is ever proven, so nothing is resent after
// an error, and what such a base sends again by itself is its own affair.
//
// # Ending a call
//
// A call ends with the context of its request. Request.Cancel, which is deprecated, is
// heeded as net/http does while the request is on its way, and before it is sent or
// sent again; a hold and a fetch of an anchor do not end with it.
//
// # Concurrency
//
// Everything exported is safe for concurrent use unless its documentation says
// otherwise. The package starts no goroutine that outlives what it was started
// for: a fetch of an anchor, a call of a resolver, a queue of notices.
package fedhttp
