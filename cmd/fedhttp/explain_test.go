package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"
)

// told is what explain -json prints.
type told struct {
	Peer, Request, Response, Verdict, Outcome, Reason, Delivery string
	CorrelationID                                               string `json:"correlation_id"`
	PolicyReason                                                string `json:"policy_reason"`
	Resend                                                      string
	Status                                                      int
	Escalated, Degraded                                         bool
	Returned                                                    bool `json:"response_returned"`
	Evidence                                                    []struct{ Source, Layer, Ignored string }
	Decisive                                                    []struct{ Verdict, Signal, Who string }
	Does, Why, Notes                                            []string
}

func explained(t *testing.T, input, peers string, args ...string) told {
	t.Helper()
	args = append([]string{"explain", "-json", "-peers", write(t, "peers.yaml", peers)}, args...)
	r := runWith(t, input, args...)
	var e told
	if r.code != 0 {
		t.Fatalf("%q: exit code %d: %s", args, r.code, r.err)
	}
	if err := json.Unmarshal([]byte(r.out), &e); err != nil {
		t.Fatalf("%v: %s", err, r.out)
	}
	return e
}

func peerWith(settings string) string {
	return onePeer + "    " + strings.ReplaceAll(settings, "\n", "\n    ") + "\n"
}

func TestExplain(t *testing.T) {
	t.Parallel()
	const evaluated = "X-Federation-Policy-Evaluated: "
	for name, c := range map[string]struct {
		peers, input                     string
		args                             []string
		verdict, outcome, reason, resend string
		evidence                         string
		decides                          int // signals that would
	}{
		"nothing is known": {input: "HTTP/1.1 502 Bad Gateway\r\nServer: nginx\r\n\r\n<html>",
			verdict: "ambiguous", outcome: "ambiguous", reason: "no_signal", resend: "never", decides: 2},
		"a rejection": {input: "HTTP/2 403 \r\n" + evaluated + "TRUE\r\nX-Correlation-ID: pe-1\r\nx-federation-policy-reason: scope\r\n\r\n",
			verdict: "rejection", outcome: "rejected", reason: "denied", resend: "never", evidence: "header=policy"},
		"routing": {input: "HTTP/1.1 503 x\n" + evaluated + "false\n\n",
			verdict: "routing", outcome: "routing_failed", resend: "after_refresh", evidence: "header=routing"},
		"routing, once only": {peers: "retry: {max_attempts: 1}", input: "HTTP/1.1 503 x\n" + evaluated + "false\n\n",
			verdict: "routing", outcome: "routing_failed", reason: "attempts_exhausted", resend: "never", evidence: "header=routing"},
		"routing, later": {input: "HTTP/1.1 503 x\nRetry-After: 3\n" + evaluated + "false\n\n",
			verdict: "routing", outcome: "routing_failed", resend: "after_refresh", evidence: "header=routing"},
		"routing, much later": {input: "HTTP/1.1 503 x\nRetry-After: 30\n" + evaluated + "false\n\n",
			verdict: "routing", outcome: "routing_failed", reason: "retry_after_too_long", resend: "never", evidence: "header=routing"},
		"routing, nobody knows when": {input: "HTTP/1.1 503 x\nRetry-After: soon\n" + evaluated + "false\n\n",
			verdict: "routing", outcome: "routing_failed", reason: "retry_after_invalid", resend: "never", evidence: "header=routing"},
		"a stale anchor": {input: "HTTP/1.1 403 x\nX-Federation-Anchor-Issued-At: 2026-01-02T00:00:00Z\n\n",
			args:    []string{"-anchor-issued-at", "2026-01-01T00:00:00Z"},
			verdict: "routing", outcome: "routing_failed", resend: "after_newer_anchor", evidence: "anchor_issued_at=routing"},
		"passed policy": {input: "HTTP/1.1 503 x\n" + evaluated + "true\n\n",
			verdict: "none", outcome: "delivered", resend: "never", evidence: "header=policy"},
		"a contradiction": {peers: "signals: {correlation_prefixes: {rt-: routing}}", input: "HTTP/1.1 403 x\n" + evaluated + "true\nX-Correlation-ID: rt-1\n\n",
			verdict: "ambiguous", outcome: "ambiguous", reason: "contradictory_signals", resend: "never",
			evidence: "header=policy correlation_prefix=routing", decides: 1},
		"degraded by its own word": {input: "HTTP/1.1 503 x\n" + evaluated + "false\nX-Federation-Degraded: true\n\n",
			verdict: "ambiguous", outcome: "ambiguous", reason: "peer_degraded", resend: "never", evidence: "header=routing", decides: 2},
		"degraded by ours": {input: "HTTP/1.1 503 x\n" + evaluated + "false\n\n", args: []string{"-degraded"},
			verdict: "ambiguous", outcome: "ambiguous", reason: "peer_degraded", resend: "never", evidence: "header=routing", decides: 2},
		"unpinned": {peers: "signals: {dialects: [{kind: envoy}]}", input: "HTTP/2 503 \n\nno healthy upstream",
			verdict: "ambiguous", outcome: "ambiguous", reason: "no_signal", resend: "never", evidence: "envoy=routing ignored=unpinned", decides: 4},
		"pinned": {peers: "signals: {dialects: [{kind: envoy, hops: [{name: edge}]}]}", input: "HTTP/2 503 \n\nno healthy upstream",
			verdict: "routing", outcome: "routing_failed", resend: "after_refresh", evidence: "envoy=routing"},
		"a proxy that signs": {input: "HTTP/1.1 502 x\nProxy-Status: edge.example; error=connection_refused\n\n",
			verdict: "ambiguous", outcome: "ambiguous", reason: "no_signal", resend: "never", decides: 3},
		"a body whose end does not show": {peers: "signals: {dialects: [{kind: envoy, hops: [{name: edge}]}]}", input: "HTTP/1.1 503 x\n\nno healthy upstream",
			verdict: "ambiguous", outcome: "ambiguous", reason: "no_signal", resend: "never", decides: 2},
		"a body that broke off": {peers: "signals: {dialects: [{kind: envoy, hops: [{name: edge}]}]}", input: "HTTP/1.1 503 x\nContent-Length: 20\n\nno healthy upstream",
			verdict: "ambiguous", outcome: "ambiguous", reason: "no_signal", resend: "never", decides: 2},
		"our certificate": {input: "HTTP/2 400 \r\nContent-Type: text/html\r\n\r\n<html>\r\n<head><title>400 The SSL certificate error</title></head>\r\n",
			verdict: "none", outcome: "delivered", resend: "never", decides: 1},
		"421 on its own connection": {peers: "signals: {dialects: [{kind: http, hops: [{name: any}]}]}", input: "HTTP/1.1 421 x\n\n",
			verdict: "routing", outcome: "routing_failed", resend: "after_refresh", evidence: "http=routing"},
		"421 on another's": {peers: "signals: {dialects: [{kind: http, hops: [{name: any}]}]}", input: "HTTP/1.1 421 x\n\n", args: []string{"-reused"},
			verdict: "ambiguous", outcome: "ambiguous", reason: "no_signal", resend: "never", decides: 2},
		"a success without a receipt": {peers: "receipt: require", input: "HTTP/1.1 200 OK\nServer: Caddy\n\n",
			args:    []string{"-capability", "summarize", "-obligation", "residency=eu"},
			verdict: "none", outcome: "policy_mismatch", reason: "receipt_missing", resend: "never"},
		"by its route": {peers: "receipt: require\nroutes: [{pattern: POST /v1/tasks, task: {capability: s, obligations: {residency: eu}}}]",
			input: "HTTP/1.1 200 OK\n\n", args: []string{"-request", "POST /v1/tasks"},
			verdict: "none", outcome: "policy_mismatch", reason: "receipt_missing", resend: "never"},
		"another receipt": {input: "HTTP/1.1 200 OK\nX-Federation-Policy-Digest: b\n\n",
			args:    []string{"-capability", "summarize", "-obligation", "residency=eu", "-digest", "a"},
			verdict: "none", outcome: "policy_mismatch", reason: "receipt_differs", resend: "never"},
		"a receipt": {input: "HTTP/1.1 200 OK\nX-Federation-Policy-Digest: b\n\n",
			args:    []string{"-capability", "summarize", "-obligation", "residency=eu"},
			verdict: "none", outcome: "delivered", resend: "never"},
		"no response": {input: "", verdict: "ambiguous", outcome: "ambiguous", reason: "no_signal", resend: "never"},
		"what could keep a call": {peers: "require_task: true\nrequire_anchor: true\nhold: {max: -1}", input: "HTTP/1.1 404 x\n\n",
			verdict: "none", outcome: "delivered", resend: "never"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peers := onePeer
			if c.peers != "" {
				peers = peerWith(c.peers)
			}
			e := explained(t, c.input, peers, c.args...)
			var evidence []string
			for _, v := range e.Evidence {
				text := v.Source + "=" + v.Layer
				if v.Ignored != "" {
					text += " ignored=" + v.Ignored
				}
				evidence = append(evidence, text)
			}
			got := fmt.Sprintf("%s %s %s %s [%s] %d", e.Verdict, e.Outcome, e.Reason, e.Resend, strings.Join(evidence, " "), len(e.Decisive))
			want := fmt.Sprintf("%s %s %s %s [%s] %d", c.verdict, c.outcome, c.reason, c.resend, c.evidence, c.decides)
			if got != want {
				t.Errorf("got  %s\nwant %s\n%+v", got, want, e)
			}
			if len(e.Does) == 0 || len(e.Why) == 0 || strings.HasPrefix(e.Why[0], "reason ") {
				t.Errorf("does %q, because %q", e.Does, e.Why)
			}
			if escalated := e.Outcome == "ambiguous" || e.Outcome == "policy_mismatch" || e.Outcome == "routing_failed" && e.Resend == "never"; e.Escalated != escalated {
				t.Errorf("escalated: %t", e.Escalated)
			}
		})
	}
}

func TestExplainTells(t *testing.T) {
	t.Parallel()
	e := explained(t, "HTTP/1.1 429 x\nX-Federation-Policy-Evaluated: true\nRetry-After: 60\nX-Correlation-ID: pe-1\nX-Federation-Policy-Reason: QUOTA\n\n", onePeer)
	if e.CorrelationID != "pe-1" || e.PolicyReason != "QUOTA" || !strings.Contains(strings.Join(e.Does, ","), "for 1m it refuses") {
		t.Errorf("%+v", e)
	}
	peers := write(t, "peers.yaml", peerWith("signals: {dialects: [{kind: kong}]}"))
	r := runWith(t, "HTTP/2 404 \nContent-Type: application/json\n\n{\"message\":\"no Route matched with those values\"}", "explain", "-peers", peers, "-peer", "org-b", "-")
	r.want(t, 0, "peer           org-b\n", "response       HTTP/2 404, 48 bytes", "evidence       kong=routing ignored=unpinned",
		"verdict        none", "{kind: kong, hops: [{name: \"its-name\"}]}", "verdict: routing", "Note: kong decides nothing")
}

// TestExplainPins: no pin is advised with which the next answer of that hop could be
// taken for what it is not.
func TestExplainPins(t *testing.T) {
	t.Parallel()
	const asks = "does not itself ask the policy engine"
	for name, c := range map[string]struct{ input, pin, verdict, who string }{ // pin "": none
		"an Envoy that may have sent it": {`HTTP/1.1 504 x` + "\nServer: envoy\n" + `Proxy-Status: edge.b.example; error=connection_timeout; details="upstream_response_timeout; UT"`, "", "", ""},
		"an Envoy that has not": {`HTTP/1.1 503 x` + "\nServer: envoy\n" + `Proxy-Status: edge.b.example; error=connection_timeout; details="x; UF"`,
			`{kind: proxy-status, hops: [{name: "edge.b.example", envoy: true}]}`, "routing", asks},
		"refused": {"HTTP/1.1 502 x\nProxy-Status: edge.b.example; error=connection_refused",
			`{kind: proxy-status, hops: [{name: "edge.b.example", envoy: true}]}`, "routing", asks},
		"denied": {"HTTP/1.1 403 x\nProxy-Status: pep.b.example; error=http_request_denied",
			`{kind: proxy-status, hops: [{name: "pep.b.example", policy: true}]}`, "rejection", "speaks for the policy engine"},
		"a name to be quoted": {`HTTP/1.1 502 x` + "\n" + `Proxy-Status: "a, envoy: false"; error=connection_refused`,
			`{kind: proxy-status, hops: [{name: "a, envoy: false", envoy: true}]}`, "routing", asks},
		"a contradiction": {"HTTP/1.1 404 x\nProxy-Status: a; error=connection_refused, b; error=connection_refused", "", "", ""},
		"an Envoy's text": {"HTTP/2 503 \n\nno healthy upstream", `{kind: istio, hops: [{name: "its-name"}]}`, "routing", asks},
		"a scope":         {"HTTP/1.1 403 x\nWWW-Authenticate: Bearer error=\"insufficient_scope\"", `{kind: bearer, hops: [{name: "its-name"}]}`, "rejection", "speaks for the policy engine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !strings.Contains(c.input, "\n\n") {
				c.input += "\n\n"
			}
			pin, verdict, who := "", "", ""
			for _, d := range explained(t, c.input, onePeer).Decisive {
				if text, ok := strings.CutPrefix(d.Signal, "signals.dialects: "); ok {
					pin, verdict, who = text, d.Verdict, d.Who // of several the last
				}
			}
			if pin != c.pin || verdict != c.verdict || !strings.Contains(who, c.who) {
				t.Errorf("got %s, %s, %s", pin, verdict, who)
			}
		})
	}
}

// TestExplainUnsent: a task that the transport would not send is said so, at once.
func TestExplainUnsent(t *testing.T) {
	t.Parallel()
	e := explained(t, "HTTP/1.1 403 x\n\n", onePeer, "-capability", strings.Repeat("c", 2000), "-obligation", "residency=eu")
	if e.Outcome != "policy_unresolved" || e.Verdict != "" || e.Resend != "never" || e.Delivery != "" {
		t.Errorf("%+v", e)
	}
}

// TestHostileInput looks for what a terminal would obey.
func TestHostileInput(t *testing.T) {
	t.Parallel()
	peers := write(t, "peers.yaml", peerWith("signals: {read_problem_detail: true}"))
	for _, input := range []string{
		"HTTP/1.1 403 \x1b[2J\nX-Federation-Policy-Evaluated: true\nX-Correlation-ID: \x1b[31m\u202e\nX-Federation-Policy-Reason: \x9b\x07\n\n",
		"HTTP/1.1 502 x\nProxy-Status: \"a\\\"b\"; error=connection_refused\n\n",
		"\x1b[2J", "HTTP/1.1 403 x\n\x1b[2J: x\n\n", "HTTP/1.1 403 x\nno colon\n\n", "HTTP/1.1 99 x\n\n", "{\"log\":{\"entries\":[\x1b]}}",
		`{"log":{"entries":[{"request":{"method":"\u001b","url":"\u001b"},"response":{"status":1}},{}]}}`,
		`{"log":{"entries":[{"request":{"method":"\u001b","url":"http://a:b@\u001b/?secret"},"response":{"status":403}}]}}`,
		"HTTP/1.1 403 x\n" + strings.Repeat("A: b\n", 300_000), "HTTP/1.1 403 x\nTransfer-Encoding: chunked\n\nffffffffffffffff\r\n",
		"HTTP/1.1 403 x\nContent-Encoding: gzip\n\n\x1f\x8b\x08\x00", strings.Repeat("HTTP/1.1 100 x\n\n", 1000),
	} {
		r := runWith(t, input, "explain", "-p", peers)
		if r.code != 0 && r.code != exitFailed && r.code != exitUsage {
			t.Errorf("%.40q: exit code %d", input, r.code)
		}
		if bad := strings.IndexFunc(r.out+r.err, unprintable); bad >= 0 || strings.Contains(r.out+r.err, "secret") {
			t.Errorf("%.40q: %q", input, r.out+r.err)
		}
	}
}

func unprintable(r rune) bool {
	return r != '\n' && (r > unicode.MaxASCII || unicode.IsControl(r))
}
