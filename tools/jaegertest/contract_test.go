package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// outcomes are all that a call can have, and the reasons that each can have.
var outcomes = map[string][]string{
	"delivered": nil,
	"rejected":  {"denied"},
	"routing_failed": {
		"peer_degraded", "peer_distrusts_us", "breaker_open", "attempts_exhausted", "body_not_replayable",
		"no_anchor_source", "refresh_failed", "anchor_unchanged", "retry_after_too_long", "retry_after_invalid",
		"budget_exhausted", "deadline",
	},
	"ambiguous": {"no_signal", "contradictory_signals", "peer_degraded"},
	"policy_unresolved": {
		"not_advertised", "not_accepted", "terms_insufficient", "policies_stale", "hold_full", "policy_deadline", "hold_timeout",
		"context_ended", "closed",
	},
	"scope_denied":     {"denied_before", "denial_budget", "ledger_failed"},
	"peer_unavailable": {"breaker_open", "anchor_required"},
	"unknown_peer":     {"unlisted_origin", "bad_url"},
	"task_required":    {"no_capability"},
	"policy_mismatch":  {"receipt_differs", "receipt_missing"},
	"canceled":         {"context_ended", "closed", "bad_request", "body_failed"},
}

// verdicts are those of the last attempt of a call with the outcome, where it
// was sent at all. A call that was sent and is not sent again for want of a
// policy, say, had failed in the routing layer.
var verdicts = map[string][]string{
	"delivered":       {"none"},
	"policy_mismatch": {"none"},
	"rejected":        {"rejection"},
	"ambiguous":       {"ambiguous"},
	"canceled":        {"none", "routing", "ambiguous"},
}

// attr is what an attribute must be.
type attr struct {
	typ      pcommon.ValueType
	form     *regexp.Regexp // of its value as AsString gives it; nil: any
	optional bool
}

// text, boolean and number are attributes whose whole value has the form.
func text(form string) attr    { return attr{typ: pcommon.ValueTypeStr, form: whole(form)} }
func boolean(form string) attr { return attr{typ: pcommon.ValueTypeBool, form: whole(form)} }
func number(form string) attr  { return attr{typ: pcommon.ValueTypeInt, form: whole(form)} }

func whole(form string) *regexp.Regexp { return regexp.MustCompile("^(?:" + form + ")$") }

func (a attr) orNone() attr { a.optional = true; return a }

// The forms that values have in the example's job.
const (
	peerID        = `org-[bc]`
	taskID        = `[a-z0-9/-]+`
	scope         = `delegation-[1-7]`
	digest        = `sha256:[0-9a-f]{64}`
	basis         = `no_obligation|accepted|negotiated`
	positive      = `[1-9][0-9]*`
	correlationID = `(?:pe-)?[0-9]{8}`
	policyReason  = `SCOPE_NARROWED`
)

// attrs are the attributes of this library and error.type that a span may have
// and, but for the optional ones, must have.
type attrs map[string]attr

// check returns where the span is not so.
func (want attrs) check(s span) (problems []string) {
	complain := func(format string, args ...any) {
		problems = append(problems, title(s)+": "+fmt.Sprintf(format, args...))
	}
	for key, a := range want {
		v, ok := s.Attributes().Get(key)
		switch {
		case !ok && a.optional:
		case !ok:
			complain("%s is missing", key)
		case v.Type() != a.typ:
			complain("%s is of type %s, want %s", key, v.Type(), a.typ)
		case a.form != nil && !a.form.MatchString(v.AsString()):
			complain("%s is %q, want %s", key, v.AsString(), a.form)
		}
	}
	for key, v := range s.Attributes().All() {
		if _, ok := want[key]; !ok && (strings.HasPrefix(key, "federation.") || key == "error.type") {
			complain("%s is %q, want none", key, v.AsString())
		}
	}
	return problems
}

func (n *node) text(key string) string {
	v, ok := n.Attributes().Get(key)
	if !ok || v.Type() != pcommon.ValueTypeStr {
		return ""
	}
	return v.Str()
}

// wanted returns what the span's attributes must be, by its role and, for a
// call, by its outcome and what is below it.
func wanted(n *node) attrs {
	switch n.role {
	case roleCall:
		return wantedOfCall(n)
	case roleAttempt:
		return wantedOfAttempt(n)
	case roleRefresh:
		return attrs{
			"federation.peer.id":        text(peerID),
			"federation.anchor.result":  text(`failed|confirmed|advanced`),
			"federation.anchor.version": text(positive),
		}
	}
	return nil
}

func wantedOfCall(n *node) attrs {
	outcome, reason := n.text("federation.outcome"), n.text("federation.reason")
	attempts, refreshes := n.below(roleAttempt), n.below(roleRefresh)
	sent := len(attempts) > 0
	want := attrs{
		"federation.outcome":  text(oneOf(outcomeNames())),
		"federation.attempts": number(strconv.Itoa(len(attempts))),
		"federation.task.id":  text(taskID).orNone(),
	}
	if n := len(refreshes); n > 0 {
		want["federation.refreshes"] = number(strconv.Itoa(n))
	}
	if reason == "peer_degraded" || reason == "breaker_open" {
		want["federation.peer.degraded"] = boolean(`true`)
	}
	if escalates(outcome, reason) {
		want["federation.escalated"] = boolean(`true`)
	}
	if outcome != "delivered" {
		want["federation.reason"] = text(oneOf(outcomes[outcome]))
		want["error.type"] = text(outcome)
	}
	if outcome != "unknown_peer" {
		want["federation.peer.id"] = text(peerID)
	}
	capability, named := strings.CutPrefix(n.Name(), "federation ")
	if named = named && capability != "request"; named {
		want["federation.capability.id"] = text(regexp.QuoteMeta(capability))
		want["federation.task.id"] = text(taskID) // each task of the job has one
		want["federation.scope"] = text(scope).orNone()
	}
	if len(n.below(roleHold)) > 0 {
		want["federation.held_ms"] = number(`0|` + positive)
	}
	if sent {
		want["federation.anchor.version"] = text(positive) // the job has a source of anchors
		want["federation.correlation_id"] = text(correlationID).orNone()
		if named && attempts[len(attempts)-1].text("federation.delivery") == "answered" {
			want["federation.correlation_id"] = text(correlationID) // what runs tasks names each
		}
	}
	if outcome == "rejected" || reason == "denied_before" {
		want["federation.scope"] = text(scope)
		want["federation.policy.reason"] = text(policyReason)
		want["federation.correlation_id"] = text(correlationID)
	}
	if named {
		wantPolicy(want, outcome, n.text("federation.policy.basis"), sent)
	}
	return want
}

// wantPolicy adds what says under which policy the call was sent, or would have been.
func wantPolicy(want attrs, outcome, under string, sent bool) {
	agreed := under != "" && under != "no_obligation"
	switch {
	case sent || outcome == "scope_denied" || outcome == "peer_unavailable":
		want["federation.policy.basis"] = text(basis)
	case outcome == "policy_unresolved":
		agreed = true // not agreed, but advertised: that is the job's only kind
	}
	if agreed {
		want["federation.policy.digest"] = text(digest)
		want["federation.negotiation.epoch"] = number(positive)
	}
}

// escalates reports whether an operator is told of such a call.
func escalates(outcome, reason string) bool {
	switch outcome {
	case "ambiguous", "policy_mismatch":
		return true
	case "routing_failed":
		return reason != "peer_degraded"
	}
	return false
}

func wantedOfAttempt(n *node) attrs {
	want := attrs{
		"federation.layer":    text(`unknown|policy|routing`),
		"federation.verdict":  text(`none|rejection|routing|ambiguous`),
		"federation.evidence": {typ: pcommon.ValueTypeSlice},
		"federation.delivery": text(`not_delivered|possible|answered`),
	}
	// What answers without a sign of who it is says nothing of a layer. In the job
	// only B's advertisements come so.
	canceled := n.parent != nil && n.parent.text("federation.outcome") == "canceled" // there is nothing to judge
	if n.text("federation.verdict") == "none" && n.parent != nil && (canceled || n.parent.Name() == "federation request") {
		want["federation.layer"] = want["federation.layer"].orNone()
		want["federation.evidence"] = want["federation.evidence"].orNone()
	}
	if n.Status().Code() == ptrace.StatusCodeError {
		want["error.type"] = text(`.+`)
	}
	return want
}

func outcomeNames() (names []string) {
	for name := range outcomes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func oneOf(values []string) string { return strings.Join(values, "|") }

// faults returns all that is wrong with the attributes of a trace.
func faults(root *node) (problems []string) {
	root.walk(func(n *node) {
		problems = append(problems, wanted(n).check(n.span)...)
		problems = append(problems, conflicts(n)...)
	})
	return problems
}
