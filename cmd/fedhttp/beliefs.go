package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fedhttp/fedhttp"
)

// defaults are what the zero value of a setting stands for. They are fedhttp's own;
// a test compares them with what fedconfig says.
var defaults = map[string]string{
	"max_attempts": "3", "min_backoff": "100ms", "max_backoff": "5s", "min_refresh_interval": "1s", "attempt_timeout": "1m",
	"budget_ratio": "0.1",
	"failures":     "10", "open_for": "30s", "trials": "1",
	"max": "10000", "max_wait": "20m",
	"hold_off": "15m", "window": "1h",
	"policy_evaluated": "X-Federation-Policy-Evaluated", "correlation_id": "X-Correlation-ID and X-Federation-Correlation-ID",
	"anchor_issued_at": "X-Federation-Anchor-Issued-At", "policy_reason": "X-Federation-Policy-Reason",
	"receipt": "X-Federation-Policy-Digest", "degraded": "X-Federation-Degraded",
}

// failureStatuses are those of a peer whose configuration names none.
const failureStatuses = "401 403 407 421 425 429 451 502 503 504 511"

// or returns the value, or the default of the setting.
func or(key, value string) string {
	if value == "" || value == "0" || value == "0s" {
		return defaults[key]
	}
	return plain(value)
}

func orDuration(key string, d time.Duration) string { return or(key, short(d)) }
func orNumber(key string, n int) string             { return or(key, strconv.Itoa(n)) }

// beliefs says what a peer is believed, and how calls to it are made.
func beliefs(p fedhttp.Peer) rows {
	var r rows
	var origins []string
	for _, o := range p.Origins {
		origins = append(origins, plain(o))
	}
	r.add("origins", origins...)
	if p.AllowPlaintext {
		r.add("", "plain http is accepted: signals and tasks can be read and forged on the way")
	}
	r.add("signals", signals(p.Signals)...)
	r.add("dialects", dialects(p.Signals.Dialects)...)
	r.add("receipt", receipt(p.Receipt))
	r.add("retry", retry(p.Retry)...)
	r.add("breaker", breaker(p.Breaker))
	r.add("hold", hold(p.Hold))
	r.add("denial", denial(p.Denial))
	r.add("trace context", traceContext(p.Propagation))
	if p.RequireAnchor {
		r.add("anchor", "required: nothing is sent without a valid one")
	}
	if len(p.DefaultTerms) > 0 {
		r.add("default terms", strings.Join(sorted(p.DefaultTerms), ", "))
	}
	if p.RequireTask {
		r.add("task", "required: a request without a capability is not sent")
	}
	r.add("routes", routes(p.Routes)...)
	return r
}

func signals(s fedhttp.Signals) []string {
	lines := []string{
		"who evaluated   " + or("policy_evaluated", s.PolicyEvaluated),
		"correlation id  " + or("correlation_id", s.CorrelationID),
		"anchor issued   " + or("anchor_issued_at", s.AnchorIssuedAt),
		"policy reason   " + or("policy_reason", s.PolicyReason),
		"receipt         " + or("receipt", s.Receipt),
		"degraded        " + or("degraded", s.Degraded),
	}
	if s.ReadProblemDetail {
		lines[3] += ", else the detail of problem+json"
	}
	if len(s.CorrelationPrefixes) > 0 {
		lines = append(lines, "id prefixes     "+strings.Join(sorted(s.CorrelationPrefixes), ", "))
	}
	statuses := failureStatuses
	if s.FailureStatuses != nil {
		statuses = strings.Trim(fmt.Sprint(s.FailureStatuses), "[]")
	}
	return append(lines, "failures are    "+statuses)
}

func dialects(all []fedhttp.Dialect) []string {
	if len(all) == 0 {
		return []string{"none: only the signals above are believed"}
	}
	var lines []string
	for _, d := range all {
		var hops []string
		for _, h := range d.Hops {
			name := plain(h.Name)
			switch {
			case h.Envoy && h.Policy:
				name += " (envoy, policy)"
			case h.Envoy:
				name += " (envoy)"
			case h.Policy:
				name += " (policy)"
			}
			hops = append(hops, name)
		}
		pinned := "pinned: " + strings.Join(hops, ", ")
		if len(hops) == 0 {
			pinned = "unpinned: recorded, and decides nothing"
		}
		lines = append(lines, d.Kind.String()+", "+pinned)
	}
	return lines
}

func receipt(m fedhttp.ReceiptMode) string {
	switch m {
	case fedhttp.RequireReceipt:
		return "require: a success must have one, and it must match"
	case fedhttp.IgnoreReceipt:
		return "ignore"
	}
	return "verify: one that is there must match"
}

func retry(p fedhttp.RetryPolicy) []string {
	attempts := orNumber("max_attempts", p.MaxAttempts)
	if attempts == "1" {
		return []string{"nothing is sent again", "attempt timeout " + orDuration("attempt_timeout", p.AttemptTimeout)}
	}
	lines := []string{
		fmt.Sprintf("%s attempts, %s to %s apart, after a refreshed anchor (refreshes %s apart)", attempts,
			orDuration("min_backoff", p.MinBackoff), orDuration("max_backoff", p.MaxBackoff),
			orDuration("min_refresh_interval", p.MinRefreshInterval)),
		fmt.Sprintf("attempt timeout %s, budget %s resends a call", orDuration("attempt_timeout", p.AttemptTimeout),
			or("budget_ratio", strconv.FormatFloat(p.BudgetRatio, 'g', -1, 64))),
	}
	if p.TrustHTTP2Refusal {
		lines = append(lines, "REFUSED_STREAM and GOAWAY of HTTP/2 are believed once")
	}
	return lines
}

func breaker(b fedhttp.BreakerPolicy) string {
	if b.Failures < 0 {
		return "off"
	}
	return fmt.Sprintf("opens after %s failures in a row, for %s, then %s at a time",
		orNumber("failures", b.Failures), orDuration("open_for", b.OpenFor), orNumber("trials", b.Trials))
}

func hold(h fedhttp.HoldPolicy) string {
	if h.Max < 0 {
		return "off: a task without its policy is refused at once"
	}
	text := fmt.Sprintf("up to %s tasks wait %s for their policy", orNumber("max", h.Max), orDuration("max_wait", h.MaxWait))
	if h.ReleaseRate > 0 {
		text += fmt.Sprintf(", then go at %g a second", h.ReleaseRate)
	}
	return text
}

func denial(d fedhttp.DenialPolicy) string {
	text := "what a rejection covers is refused for " + orDuration("hold_off", d.HoldOff)
	if d.HoldOff < 0 {
		text = "a rejection refuses nothing later"
	}
	if d.Budget > 0 {
		text += fmt.Sprintf("; %d in %s refuse every task", d.Budget, orDuration("window", d.Window))
	}
	return text
}

func traceContext(p fedhttp.Propagation) string {
	switch p {
	case fedhttp.PropagateAll:
		return "crosses, with baggage and all else"
	case fedhttp.PropagateNone:
		return "does not cross"
	}
	return "crosses, without baggage"
}

func routes(all []fedhttp.Route) []string {
	var lines []string
	for _, route := range all {
		line := plain(route.Pattern)
		if c := route.Task.Capability; c != "" {
			line += "  capability " + plain(c)
		}
		if s := route.Task.Scope; s != "" {
			line += ", scope " + plain(s)
		}
		if len(route.Task.Obligations) > 0 {
			line += ", demands " + strings.Join(sorted(route.Task.Obligations), ", ")
		}
		lines = append(lines, line)
	}
	return lines
}
