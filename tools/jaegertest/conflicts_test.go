package main

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// conflicts says where the parts of a trace contradict each other, right as each
// attribute may be by itself.
func conflicts(n *node) (problems []string) {
	complain := func(format string, args ...any) {
		problems = append(problems, title(n.span)+": "+fmt.Sprintf(format, args...))
	}
	switch n.role {
	case roleCall:
		conflictsOfCall(n, complain)
	case roleAttempt:
		conflictsOfAttempt(n, complain)
	}
	return problems
}

func conflictsOfCall(n *node, complain func(string, ...any)) {
	outcome, attempts := n.text("federation.outcome"), n.below(roleAttempt)
	if failed := outcome != "delivered"; failed != (n.Status().Code() == ptrace.StatusCodeError) {
		complain("outcome %q with status %s", outcome, n.Status().Code())
	}
	if got, want := n.Status().Message(), n.text("federation.reason"); got != want {
		complain("the status says %q, the reason is %q", got, want)
	}
	switch outcome {
	case "unknown_peer", "task_required", "peer_unavailable", "scope_denied":
		if len(attempts) > 0 {
			complain("outcome %q, and it was sent", outcome)
		}
	case "delivered", "rejected", "routing_failed", "ambiguous", "policy_mismatch":
		if len(attempts) == 0 {
			complain("outcome %q, and it was never sent", outcome)
		}
	}
	for i, attempt := range attempts {
		if task := n.text("federation.task.id"); task != "" && path.Base(attempt.text("url.full")) != path.Base(task) {
			complain("task %q was sent to %q", task, attempt.text("url.full"))
		}
		want := []string{"routing"} // nothing else is sent again
		if last := i == len(attempts)-1; last && verdicts[outcome] != nil {
			want = verdicts[outcome]
		}
		if got := attempt.text("federation.verdict"); !slices.Contains(want, got) {
			complain("outcome %q, and the verdict of attempt %d is %q", outcome, i+1, got)
		}
		resends, ok := attempt.Attributes().Get("http.request.resend_count")
		if ok != (i > 0) || ok && resends.Int() != int64(i) {
			complain("attempt %d has another number by http.request.resend_count", i+1)
		}
	}
}

var evidenceForm = whole(`(?:header|correlation_prefix|correlation_resolver|anchor_issued_at|delivery|tls_alert|http2_refusal)` +
	`=(?:policy|routing|contradiction)`)

func conflictsOfAttempt(n *node, complain func(string, ...any)) {
	layer, verdict := n.text("federation.layer"), n.text("federation.verdict")
	evidence, ok := n.Attributes().Get("federation.evidence")
	if ok != (layer != "") {
		complain("layer %q, any evidence: %t", layer, ok)
	}
	agreed := ""
	if ok && evidence.Type() == pcommon.ValueTypeSlice {
		for _, e := range evidence.Slice().All() {
			if e.Type() != pcommon.ValueTypeStr || !evidenceForm.MatchString(e.Str()) {
				complain("evidence %q of type %s", e.AsString(), e.Type())
			}
			_, of, _ := strings.Cut(e.AsString(), "=")
			if agreed == "" {
				agreed = of
			} else if of != agreed {
				agreed = "contradiction"
			}
		}
	}
	if agreed == "" || agreed == "contradiction" {
		agreed = "unknown"
	}
	if ok && layer != agreed {
		complain("layer %q, and by the evidence it is %q", layer, agreed)
	}
	if verdict == "rejection" && layer != "policy" || verdict == "routing" && layer != "routing" {
		complain("verdict %q of layer %q", verdict, layer)
	}
	_, status := n.Attributes().Get("http.response.status_code")
	if delivery := n.text("federation.delivery"); (delivery == "answered") != status {
		complain("delivery %q, a status of a response: %t", delivery, status)
	}
	if method := n.text("http.request.method"); method != n.Name() {
		complain("method %q", method)
	}
	if url := n.text("url.full"); !strings.HasPrefix(url, "http://127.0.0.1:") || strings.ContainsAny(url, "@?#") {
		complain("URL %q", url)
	}
}
