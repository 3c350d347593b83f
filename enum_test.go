package fedhttp

import (
	"encoding"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// closedSet is a closed set as its documentation lists it. The tokens are
// written out: they are read by dashboards and alerts, and must not move.
type closedSet struct {
	kind   string
	tokens []string
	at     func(i uint8) any // the value i
	parse  func(text string) (any, error)
}

func set[E enum](kind string, tokens ...string) closedSet {
	return closedSet{
		kind: kind, tokens: tokens,
		at: func(i uint8) any { return E(i) },
		parse: func(text string) (any, error) {
			e := E(255)
			u, ok := any(&e).(encoding.TextUnmarshaler)
			if !ok {
				return nil, fmt.Errorf("%T has no UnmarshalText", e)
			}
			err := u.UnmarshalText([]byte(text))
			return e, err
		},
	}
}

var closedSets = []closedSet{
	set[Layer]("layer", "unknown", "policy", "routing"),
	set[Verdict]("verdict", "none", "rejection", "routing", "ambiguous"),
	set[Delivery]("delivery", "", "not_delivered", "possible", "answered"),
	set[Source]("source", "header", "correlation_prefix", "correlation_resolver", "anchor_issued_at", "delivery", "tls_alert", "http2_refusal",
		"proxy_status", "bearer", "problem", "http", "envoy", "istio", "linkerd", "kong", "aws_apigateway", "cloudflare", "nginx", "dsp"),
	set[Ignored]("reason to ignore", "", "unpinned"),
	set[DialectKind]("dialect", "", "proxy-status", "bearer", "problem", "http", "envoy", "istio", "linkerd", "kong", "aws-apigateway",
		"cloudflare", "nginx", "dsp"),
	set[Outcome]("outcome", "delivered", "rejected", "routing_failed", "ambiguous", "policy_unresolved", "scope_denied",
		"peer_unavailable", "unknown_peer", "task_required", "policy_mismatch", "canceled"),
	set[Reason]("reason", "", "denied", "no_signal", "contradictory_signals", "peer_degraded", "peer_distrusts_us",
		"breaker_open", "attempts_exhausted", "body_not_replayable", "no_anchor_source", "refresh_failed",
		"anchor_unchanged", "retry_after_too_long", "retry_after_invalid", "budget_exhausted", "deadline",
		"not_advertised", "not_accepted", "terms_insufficient", "policies_stale", "hold_full", "policy_deadline", "hold_timeout",
		"denied_before", "denial_budget", "ledger_failed", "anchor_required", "anchor_expired", "roots_unusable", "client_certificate", "peer_untrusted", "unlisted_origin", "bad_url",
		"no_capability", "receipt_differs", "receipt_missing", "context_ended", "closed", "bad_request",
		"body_failed"),
	set[Basis]("basis", "", "no_obligation", "accepted", "negotiated"),
	set[EscalationKind]("escalation kind", "ambiguous", "routing_unrepaired", "policy_mismatch", "peer_distrusts_us"),
	set[UnlistedPolicy]("unlisted policy", "refuse", "pass"),
	set[ReceiptMode]("receipt mode", "verify", "require", "ignore"),
	set[Propagation]("propagation", "trace_context", "all", "none"),
}

func TestClosedSets(t *testing.T) {
	t.Parallel()
	for _, s := range closedSets {
		t.Run(s.kind, func(t *testing.T) {
			t.Parallel()
			seen := map[string]bool{}
			for i, token := range s.tokens {
				if seen[token] {
					t.Errorf("%q stands for two values", token)
				}
				seen[token] = true
				checkMember(t, s, uint8(i), token)
			}
			// One past the last, and the last that the type can hold: if a value was
			// added and not listed here, the first of them is in the set.
			for _, outside := range []uint8{uint8(len(s.tokens)), 255} {
				e := s.at(outside)
				want := fmt.Sprintf("%s(%d)", s.kind, outside)
				if got := e.(fmt.Stringer).String(); got != want {
					t.Errorf("String of a value outside the set is %q, want %q", got, want)
				}
				m, ok := e.(encoding.TextMarshaler)
				if !ok {
					t.Fatalf("%T has no MarshalText", e)
				}
				if text, err := m.MarshalText(); err == nil {
					t.Errorf("MarshalText of a value outside the set is %q, want an error", text)
				}
			}
			for _, text := range []string{"nobody", "Unknown ", strings.ToUpper(s.tokens[1]), s.tokens[1] + "\x00", strings.Repeat("\x1b", 5000)} {
				got, err := s.parse(text)
				if err == nil {
					t.Errorf("UnmarshalText accepts %.20q", text)
					continue
				}
				if got != s.at(255) {
					t.Errorf("UnmarshalText of %.20q fails and still stores %v", text, got)
				}
				if len(err.Error()) > 4096 || !printable(err.Error()) {
					t.Errorf("the error is not bounded and printable: %.100q", err)
				}
			}
		})
	}
}

func checkMember(t *testing.T, s closedSet, i uint8, token string) {
	t.Helper()
	e := s.at(i)
	if got := e.(fmt.Stringer).String(); got != token {
		t.Errorf("value %d is %q, want %q", i, got, token)
	}
	m, ok := e.(encoding.TextMarshaler)
	if !ok {
		t.Fatalf("%T has no MarshalText", e)
	}
	if text, err := m.MarshalText(); err != nil || string(text) != token {
		t.Errorf("MarshalText of %d gives %q, %v; want %q", i, text, err, token)
	}
	if got, err := s.parse(token); err != nil || got != e {
		t.Errorf("UnmarshalText of %q gives %v, %v; want %v", token, got, err, e)
	}
	if text, err := json.Marshal(e); err != nil || string(text) != fmt.Sprintf("%q", token) {
		t.Errorf("json.Marshal of %d gives %s, %v", i, text, err)
	}
}

// printable reports whether s is printable ASCII.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func TestRefreshResults(t *testing.T) {
	t.Parallel()
	for i, want := range []string{"failed", "confirmed", "advanced", "refresh result(3)"} {
		if got := refreshResult(i).String(); got != want {
			t.Errorf("refresh result %d is %q, want %q", i, got, want)
		}
	}
}
