package main

import (
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// role is what a span stands for.
type role string

const (
	roleCall    role = "call"    // "federation CAPABILITY", or "federation request"
	roleAttempt role = "attempt" // "POST" and the like, one for each send
	roleHold    role = "hold"
	roleRefresh role = "anchor refresh"
	roleUnknown role = ""
)

func roleOf(s span) role {
	switch name := s.Name(); s.Kind() {
	case ptrace.SpanKindInternal:
		switch {
		case name == "federation.hold":
			return roleHold
		case name == "federation.anchor.refresh":
			return roleRefresh
		case strings.HasPrefix(name, "federation "):
			return roleCall
		}
	case ptrace.SpanKindClient:
		if slices.Contains([]string{"GET", "POST"}, name) {
			return roleAttempt
		}
	}
	return roleUnknown
}

// node is a span and those below it, in the order in which they began.
type node struct {
	span
	role     role
	parent   *node
	children []*node
}

// below returns the children of a role.
func (n *node) below(r role) (found []*node) {
	for _, child := range n.children {
		if child.role == r {
			found = append(found, child)
		}
	}
	return found
}

// walk calls f for the node and all below it.
func (n *node) walk(f func(*node)) {
	f(n)
	for _, child := range n.children {
		child.walk(f)
	}
}

// forest puts the spans of each trace below their parents, and says where that
// is not the shape of a trace: one call without a parent, of this job's; below a
// call what it did, and only a call that was held may have had another made for
// it, the negotiation; below anything else nothing.
func forest(spans []span) (roots []*node, problems []string) {
	type place struct {
		trace pcommon.TraceID
		span  pcommon.SpanID
	}
	nodes := map[place]*node{}
	for _, s := range spans {
		at := place{s.TraceID(), s.SpanID()}
		if nodes[at] != nil {
			problems = append(problems, fmt.Sprintf("%s: there twice", title(s)))
			continue
		}
		nodes[at] = &node{span: s, role: roleOf(s)}
	}
	rooted := map[pcommon.TraceID]bool{}
	for at, n := range nodes {
		if n.ParentSpanID().IsEmpty() {
			if rooted[at.trace] {
				problems = append(problems, fmt.Sprintf("%s: a second root", title(n.span)))
			}
			rooted[at.trace] = true
			roots = append(roots, n)
		} else if parent := nodes[place{at.trace, n.ParentSpanID()}]; parent != nil {
			n.parent, parent.children = parent, append(parent.children, n)
		} else {
			problems = append(problems, fmt.Sprintf("%s: an orphan", title(n.span)))
		}
	}
	for _, n := range nodes {
		slices.SortFunc(n.children, func(a, b *node) int {
			return a.StartTimestamp().AsTime().Compare(b.StartTimestamp().AsTime())
		})
		problems = append(problems, misplaced(n)...)
	}
	for _, n := range nodes {
		problems = append(problems, mislinked(n, func(to ptrace.SpanLink) *node { return nodes[place{to.TraceID(), to.SpanID()}] })...)
	}
	return roots, problems
}

// misplaced says what is wrong with a span's role and its place.
func misplaced(n *node) (problems []string) {
	switch {
	case n.role == roleUnknown:
		problems = append(problems, fmt.Sprintf("%s: a span of another kind (%s)", title(n.span), n.Kind()))
	case n.role != roleCall && n.ParentSpanID().IsEmpty():
		problems = append(problems, fmt.Sprintf("%s: a root that is no call", title(n.span)))
	case n.role != roleCall && len(n.children) > 0:
		problems = append(problems, fmt.Sprintf("%s: %q below it", title(n.span), n.children[0].Name()))
	case len(n.below(roleCall)) > 0 && len(n.below(roleHold)) == 0:
		problems = append(problems, fmt.Sprintf("%s: a call below one that was not held", title(n.span)))
	case len(n.below(roleHold)) > 1:
		problems = append(problems, fmt.Sprintf("%s: held %d times", title(n.span), len(n.below(roleHold))))
	}
	return problems
}

// title names a span to those who look for it.
func title(s span) string {
	return fmt.Sprintf("trace %s, span %s %q", s.TraceID(), s.SpanID(), s.Name())
}
