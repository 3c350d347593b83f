package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/fedhttp/fedhttp"
)

// problemBase is where the types of problems are described.
const problemBase = "https://github.com/fedhttp/fedhttp/blob/main/docs/cli.md#"

// problem is the body (RFC 9457) of an answer that the gateway makes itself.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`

	Outcome       string `json:"outcome"`
	Reason        string `json:"reason,omitempty"`
	Peer          string `json:"peer,omitempty"`
	Capability    string `json:"capability,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
	Resends       int    `json:"resends"`
	// Sent is "no", "yes" or "perhaps": whether the peer may have the request.
	Sent string `json:"sent"`
	// SafeToResend says that the peer has not processed the request.
	SafeToResend bool `json:"safe_to_resend"`
}

// titles are what the outcomes are called. They follow fedhttp's errors.
var titles = map[fedhttp.Outcome]string{
	fedhttp.OutcomeRejected:         "Rejected by the peer's policy engine",
	fedhttp.OutcomeRoutingFailed:    "Not delivered by the routing layer",
	fedhttp.OutcomeAmbiguous:        "Failed at the boundary; the author cannot be told",
	fedhttp.OutcomePolicyUnresolved: "Policy pending; not sent",
	fedhttp.OutcomeScopeDenied:      "Denied before; not sent",
	fedhttp.OutcomePeerUnavailable:  "Peer unavailable; not sent",
	fedhttp.OutcomeUnknownPeer:      "No configured peer; not sent",
	fedhttp.OutcomeTaskRequired:     "A capability is required; not sent",
	fedhttp.OutcomePolicyMismatch:   "Answered under another policy; answer withheld",
	fedhttp.OutcomeCanceled:         "Ended on our side",
}

// statusOf is the status of the answer that stands for a call without a response.
func statusOf(d fedhttp.Decision, cause error) int {
	switch d.Outcome {
	case fedhttp.OutcomeRejected, fedhttp.OutcomeScopeDenied:
		return http.StatusForbidden
	case fedhttp.OutcomePolicyUnresolved, fedhttp.OutcomePeerUnavailable:
		return http.StatusServiceUnavailable
	case fedhttp.OutcomeUnknownPeer:
		return http.StatusNotFound
	case fedhttp.OutcomeTaskRequired:
		return http.StatusBadRequest
	case fedhttp.OutcomeCanceled:
		switch d.Reason {
		case fedhttp.ReasonClosed:
			return http.StatusServiceUnavailable
		case fedhttp.ReasonBadRequest, fedhttp.ReasonBodyFailed:
			return http.StatusBadRequest
		}
	}
	var timeout interface{ Timeout() bool }
	if errors.Is(cause, context.DeadlineExceeded) || errors.As(cause, &timeout) && timeout.Timeout() {
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

// sent says whether the peer may have the request, and whether it is safe to
// submit it again.
func sent(d fedhttp.Decision) (answer string, safe bool) {
	switch {
	case d.Attempts == 0:
		return "no", true
	case d.Outcome == fedhttp.OutcomeRoutingFailed:
		return "no", true // whatever has left, no policy engine has seen it
	case d.Delivery == fedhttp.DeliveryNotDelivered:
		return "no", true
	case d.Delivery == fedhttp.DeliveryAnswered:
		return "yes", false
	}
	return "perhaps", false
}

// problemOf is the answer to a call that has no response.
func problemOf(e *fedhttp.Error) *problem {
	d := e.Decision
	p := &problem{
		Type: problemBase + d.Outcome.String(), Title: titles[d.Outcome], Status: statusOf(d, e.Err), Detail: plain(e.Error()),
		Outcome: d.Outcome.String(), Reason: d.Reason.String(), Peer: d.Peer, Capability: plain(d.Capability),
		CorrelationID: d.CorrelationID, Resends: max(0, d.Attempts-1),
	}
	p.Sent, p.SafeToResend = sent(d)
	return p
}

// refuse is the gateway's own answer to a request that it does not pass on.
func refuse(status int, detail string) *problem {
	return &problem{
		Type: problemBase + refused, Title: "Refused by the gateway; not sent", Status: status, Detail: detail,
		Outcome: refused, Sent: "no", SafeToResend: true,
	}
}

func (p *problem) write(w http.ResponseWriter, retryAt time.Time) {
	body, err := json.Marshal(p)
	if err != nil {
		http.Error(w, p.Title, p.Status)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set(decisionHeader, field(p.Outcome, p.Reason, p.Peer, p.Resends, p.CorrelationID))
	if wait := time.Until(retryAt); wait > 0 {
		h.Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client has gone, or has it
}
