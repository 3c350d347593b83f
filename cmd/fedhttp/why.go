package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/dunglas/httpsfv"

	"github.com/fedhttp/fedhttp"
)

// does says what the transport would do.
func does(e *explanation, f found) []string {
	var lines []string
	answer := "hands the response to the caller, whole"
	if e.Status == 0 {
		answer = "returns an error"
	}
	switch {
	case e.Outcome == fedhttp.OutcomePolicyMismatch:
		return []string{"withholds the response, and returns an error", "tells an operator: the work was done, under another policy"}
	case e.Resend == "after_refresh":
		return []string{"fetches the peer's anchor anew, and sends the request again if that works",
			"needs a body that can be sent again, a token of the retry budget, and a policy that still holds",
			"tells an operator where it still fails in the end"}
	case e.Resend == "after_newer_anchor":
		return []string{"fetches the peer's anchor anew, and sends the request again if there is a newer one",
			"needs a body that can be sent again, and a policy that still holds",
			"tells an operator where it still fails in the end"}
	}
	lines = append(lines, answer)
	if e.Outcome != fedhttp.OutcomeDelivered {
		lines = append(lines, "does not send the request again")
	}
	if f.holdOff > 0 {
		lines = append(lines, "records a denial: for "+short(f.holdOff)+" it refuses tasks of the same capability and scope by itself")
	}
	if e.Escalated {
		line := "tells an operator"
		if e.CorrelationID != "" {
			line += ", with the correlation id"
		}
		lines = append(lines, line)
	}
	return lines
}

// reasons say in a sentence what each reason that a response can lead to means.
var reasons = map[fedhttp.Reason]string{
	fedhttp.ReasonDenied:               "the peer's policy engine saw the request and said no; asking again would count against us",
	fedhttp.ReasonNoSignal:             "nothing that is believed says who wrote this, so a policy engine may have seen the request",
	fedhttp.ReasonContradictorySignals: "what is believed contradicts itself, or has a value that is not understood",
	fedhttp.ReasonPeerDegraded:         "the peer is degraded: its signals are not believed just now",
	fedhttp.ReasonPeerDistrustsUs:      "the peer refuses our certificate; its copy of our keys is stale, and refreshing ours mends nothing",
	fedhttp.ReasonAttemptsExhausted:    "the request did not reach a policy engine, and this peer's calls are sent once only (retry.max_attempts)",
	fedhttp.ReasonRetryAfterTooLong:    "the request did not reach a policy engine, and Retry-After asks for longer than retry.max_backoff",
	fedhttp.ReasonRetryAfterInvalid:    "the request did not reach a policy engine, and its Retry-After cannot be understood, and so not obeyed",
	fedhttp.ReasonReceiptDiffers:       "the receipt names another policy than the one that the task was sent under",
	fedhttp.ReasonReceiptMissing:       "a success of this peer must carry a receipt, and this one has none",
}

func why(e *explanation) []string {
	if e.Resend != "never" {
		return []string{"the request did not reach a policy engine"}
	}
	if e.Reason == fedhttp.ReasonNone && e.Outcome == fedhttp.OutcomeDelivered {
		for _, evidence := range e.Evidence {
			if evidence.Layer == fedhttp.LayerPolicy && evidence.Ignored == fedhttp.IgnoredNot {
				return []string{"the policy engine saw the request and let it pass; this is what the application answered"}
			}
		}
		return []string{"a response with this status is taken for the application's own answer"}
	}
	text := reasons[e.Reason]
	if text == "" {
		text = "reason " + e.Reason.String()
	}
	return []string{text}
}

// decisive tries signals, one after the other, and returns those that decide.
func (t trial) decisive(ctx context.Context, f found) ([]decisive, error) {
	all := []decisive{}
	if t.answer.response == nil {
		return all, nil
	}
	try := func(change trial, signal, who string) error {
		then, err := change.run(ctx)
		if err == nil && then.verdict != f.verdict && then.verdict != fedhttp.VerdictAmbiguous.String() {
			all = append(all, decisive{then.verdict, signal, who})
		}
		return err
	}
	// An answer of the application has an author; only a dialect knows better.
	ambiguous := f.verdict == fedhttp.VerdictAmbiguous.String()
	evaluated := or("policy_evaluated", t.peer.Signals.PolicyEvaluated)
	for _, says := range [][2]string{
		{"true", "the policy engine, on what it has seen"}, {"false", "the routing layer, on what it did not let through"},
	} {
		change := t
		change.change = func(h http.Header) { h.Set(evaluated, says[0]) }
		if !ambiguous {
			continue
		}
		if err := try(change, evaluated+": "+says[0], says[1]); err != nil {
			return nil, err
		}
	}
	if ambiguous && f.degraded {
		change := t
		change.at.degraded = false
		degraded := or("degraded", t.peer.Signals.Degraded)
		change.change = func(h http.Header) { h.Del(degraded) }
		if err := try(change, "no "+degraded, "the peer, once its signals can be believed again"); err != nil {
			return nil, err
		}
	}
	for kind := fedhttp.DialectUnset + 1; ; kind++ {
		if _, err := kind.MarshalText(); err != nil {
			return all, nil
		}
		for _, hop := range t.pinnable(kind) {
			if err := try(t.pinning(kind, hop), pinText(kind, hop), pinCondition(kind, hop)); err != nil {
				return nil, err
			}
		}
	}
}

// pinnable are the hops that could be named for a dialect that has none yet. One
// that signs Proxy-Status may be an Envoy, which stretches some of its errors, so
// that it is believed no more than an Envoy is; or it enforces policy.
func (t trial) pinnable(kind fedhttp.DialectKind) []fedhttp.Hop {
	for _, d := range t.peer.Signals.Dialects {
		if d.Kind == kind && len(d.Hops) > 0 {
			return nil
		}
	}
	if kind != fedhttp.DialectProxyStatus {
		return []fedhttp.Hop{{Name: "its-name"}}
	}
	name := lastProxy(t.answer.response.Header)
	if name == "" {
		return nil
	}
	return []fedhttp.Hop{{Name: name, Envoy: true}, {Name: name, Policy: true}}
}

// pinning is the trial with the hop of a dialect believed that was not before.
func (t trial) pinning(kind fedhttp.DialectKind, hop fedhttp.Hop) trial {
	dialects := []fedhttp.Dialect{{Kind: kind, Hops: []fedhttp.Hop{hop}}}
	for _, d := range t.peer.Signals.Dialects {
		if d.Kind != kind {
			dialects = append(dialects, d)
		}
	}
	t.peer.Signals.Dialects = dialects
	return t
}

func pinText(kind fedhttp.DialectKind, hop fedhttp.Hop) string {
	text := "name: " + strconv.QuoteToASCII(hop.Name)
	if hop.Envoy {
		text += ", envoy: true"
	}
	if hop.Policy {
		text += ", policy: true"
	}
	return fmt.Sprintf("signals.dialects: {kind: %s, hops: [{%s}]}", kind, text)
}

// pinCondition is what must hold of a hop before it may be believed.
func pinCondition(kind fedhttp.DialectKind, hop fedhttp.Hop) string {
	who := "you, in the file of peers, if that hop stands before the peer, lets nobody else say so, "
	switch {
	case hop.Policy, kind == fedhttp.DialectBearer, kind == fedhttp.DialectDSP: // they say nothing of routing
		return who + "and speaks for the policy engine"
	case hop.Envoy:
		return who + "and does not itself ask the policy engine (envoy: true can go where it is known to be no Envoy)"
	}
	return who + "and does not itself ask the policy engine"
}

// lastProxy is how the hop nearest to us signs Proxy-Status, "" where it does not.
// What it says is for the transport to judge.
func lastProxy(h http.Header) string {
	list, err := httpsfv.UnmarshalList(h.Values("Proxy-Status"))
	if err != nil || len(list) == 0 {
		return ""
	}
	item, ok := list[len(list)-1].(httpsfv.Item)
	if !ok {
		return ""
	}
	name := ""
	switch v := item.Value.(type) {
	case string:
		name = v
	case httpsfv.Token:
		name = string(v)
	}
	if len(name) > maxShown {
		return ""
	}
	return name
}

// remark adds what else is worth knowing.
func (t *trial) remark(e *explanation) {
	r := t.answer.response
	if r == nil {
		if len(e.Decisive) == 0 {
			e.Notes = append(e.Notes, "no signal could have come; whether a connection came, and TLS refused it, only the transport itself sees")
		}
		return
	}
	if name := or("anchor_issued_at", t.peer.Signals.AnchorIssuedAt); r.Header.Get(name) != "" && t.at.issuedAt.IsZero() {
		e.Notes = append(e.Notes, name+" was not compared: give --anchor-issued-at")
	}
	name := or("receipt", t.peer.Signals.Receipt)
	receipt := r.Header.Get(name) != ""
	switch {
	case receipt && t.at.digest == "":
		e.Notes = append(e.Notes, "the receipt is taken to match: give --digest to have it compared")
	case !receipt && e.Outcome == fedhttp.OutcomeDelivered && r.StatusCode/100 == 2 && t.peer.Receipt != fedhttp.RequireReceipt:
		e.Notes = append(e.Notes, "a success says nothing of who wrote it: with \"receipt: require\" a task with obligations would not be given one without "+name)
	}
	for _, evidence := range e.Evidence {
		if evidence.Ignored == fedhttp.IgnoredUnpinned {
			e.Notes = append(e.Notes, evidence.Source.String()+" decides nothing, because no hop is named for it in signals.dialects")
		}
	}
}

func (e *explanation) write(w io.Writer) {
	var r rows
	r.add("peer", plain(e.Peer))
	r.add("request", e.Request)
	r.add("response", e.Response)
	if len(e.Evidence) == 0 {
		r.add("evidence", "none")
	}
	for i, evidence := range e.Evidence {
		key := ""
		if i == 0 {
			key = "evidence"
		}
		r.add(key, evidence.String())
	}
	if e.Degraded {
		r.add("", "the peer is degraded")
	}
	verdict := e.Verdict
	if e.Reason != fedhttp.ReasonNone {
		verdict += ", " + e.Reason.String()
	}
	r.add("verdict", verdict)
	if e.Resend == "never" {
		r.add("outcome", e.Outcome.String())
	} else {
		r.add("outcome", "that of the resend")
	}
	if e.CorrelationID != "" {
		r.add("correlation id", e.CorrelationID)
	}
	if e.PolicyReason != "" {
		r.add("peer says", e.PolicyReason)
	}
	r.add("the transport", e.Does...)
	r.add("because", e.Why...)
	r.write(w, "")
	if len(e.Decisive) > 0 {
		fmt.Fprintln(w, "\nWhat would decide it otherwise, each by itself:")
		for _, d := range e.Decisive {
			verdict := d.Verdict
			if verdict == fedhttp.VerdictNone.String() {
				verdict = "none, the application's own answer"
			}
			fmt.Fprintf(w, "  %s\n    from %s\n    verdict: %s\n", plain(d.Signal), d.Who, verdict)
		}
	}
	if len(e.Notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, note := range e.Notes {
		fmt.Fprintf(w, "Note: %s.\n", note)
	}
}
