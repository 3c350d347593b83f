package main

import (
	"fmt"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// mislinked says what is wrong with a span's links: a resend has one to the
// attempt before it, and may have one to the refresh after which it was sent,
// its own call's or another's; nothing else has any. The children of all spans
// are in order.
func mislinked(n *node, target func(ptrace.SpanLink) *node) (problems []string) {
	complain := func(format string, args ...any) {
		problems = append(problems, title(n.span)+": "+fmt.Sprintf(format, args...))
	}
	var before *node
	if n.role == roleAttempt && n.parent != nil {
		if attempts := n.parent.below(roleAttempt); attempts[0] != n {
			before = attempts[slices.Index(attempts, n)-1]
		}
	}
	kinds := map[string]int{}
	for _, link := range n.Links().All() {
		to, attributes := target(link), typed(link.Attributes())
		kind := attributes["federation.link"]
		kinds[kind]++
		switch {
		case to == nil:
			complain("a link (%s) to a span that is not there", kind)
		case before == nil:
			complain("a link (%s) of a span that is no resend", kind)
		case kind == "Str resend_of":
			if to != before {
				complain("a resend of %s, want of %s", title(to.span), title(before.span))
			}
			if got, want := attributes["federation.verdict"], "Str "+to.text("federation.verdict"); got != want || len(attributes) != 2 {
				complain("the link to the attempt before says %q, want the verdict %q", attributes, want)
			}
		case kind == "Str refreshed_by":
			if to.role != roleRefresh {
				complain("refreshed by %s", title(to.span))
			}
			if got, want := attributes["federation.anchor.version"], "Str "+to.text("federation.anchor.version"); got != want || len(attributes) != 2 {
				complain("the link to the refresh says %q, want the version %q", attributes, want)
			}
		default:
			complain("a link of another kind: %q", attributes)
		}
	}
	if before != nil && kinds["Str resend_of"] != 1 || kinds["Str refreshed_by"] > 1 {
		complain("the links of a resend are %v", kinds)
	}
	return problems
}

// typed returns attributes in the form "Type value".
func typed(attributes pcommon.Map) map[string]string {
	all := map[string]string{}
	for key, v := range attributes.All() {
		all[key] = v.Type().String() + " " + v.AsString()
	}
	return all
}
