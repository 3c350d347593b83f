package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// waterfall is a trace as page.html shows it: a row for each span, each bar
// placed by its start and as long as it took.
type waterfall struct {
	Kind, Meaning string
	TraceID       string
	URL           string // at Jaeger; empty where it has no traces
	Took          string
	Failed        bool
	Facts         []string // what the call's attributes say, in a few words
	Ticks         []string // the times at 0, 25, 50, 75 and 100 percent
	Spans         []spanRow
}

// spanRow is one span.
type spanRow struct {
	ID, Name, Role     string // Role is call, attempt, hold or refresh
	Of                 string // which call it belongs to; empty for the parts of the one on top
	Other              bool   // it belongs to another one
	Kind               string // internal or client
	Depth              int
	Left, Width        float64 // percent of the trace
	Start, Took        string
	Failed             bool
	Status             string // why it failed; may be empty
	Federation, Others []attributeRow
	Links              []linkRow
	Events             []eventRow
}

type attributeRow struct{ Key, Value string }

// linkRow is a span that another one points to.
type linkRow struct {
	Label, SpanID string
	Here          bool   // it is on the page
	URL           string // at Jaeger; empty where it has no traces
	Attributes    []attributeRow
}

type eventRow struct {
	Name, At   string
	Left       float64 // percent of the trace
	Attributes []attributeRow
}

func waterfalls(examples []*span, ui jaeger) []waterfall {
	here := map[trace.SpanID]bool{}
	for _, root := range examples {
		root.walk(0, func(s *span, _ int) { here[s.SpanContext().SpanID()] = true })
	}
	made := make([]waterfall, len(examples))
	for i, root := range examples {
		made[i] = newWaterfall(root, here, ui)
	}
	return made
}

// walk calls visit for the span and all below it, from the top down.
func (s *span) walk(depth int, visit func(s *span, depth int)) {
	visit(s, depth)
	for _, child := range s.children {
		child.walk(depth+1, visit)
	}
}

func newWaterfall(root *span, here map[trace.SpanID]bool, ui jaeger) waterfall {
	scale := timeline{root.StartTime(), root.EndTime()}
	root.walk(0, func(s *span, _ int) {
		// A span may outlast its parent: a body that is still being read does.
		scale = timeline{earlier(scale.start, s.StartTime()), later(scale.end, s.EndTime())}
	})
	made := waterfall{
		Kind: root.kind(), Meaning: meaningOf(root.kind()),
		TraceID: root.SpanContext().TraceID().String(),
		Took:    duration(scale.end.Sub(scale.start)),
		Failed:  root.Status().Code == codes.Error,
		Facts:   append(root.facts(), root.otherCalls()...),
		Ticks:   scale.ticks(),
	}
	if ui != "" {
		made.URL = ui.trace(root)
	}
	root.walk(0, func(s *span, depth int) {
		row := newSpanRow(s, depth, scale, here, ui)
		row.Of, row.Other = s.of(root), s.call() != root
		made.Spans = append(made.Spans, row)
	})
	return made
}

func newSpanRow(s *span, depth int, scale timeline, here map[trace.SpanID]bool, ui jaeger) spanRow {
	made := spanRow{
		ID: s.SpanContext().SpanID().String(), Name: visible(s.Name()), Role: s.role(), Kind: s.SpanKind().String(), Depth: depth,
		Left: scale.percent(s.StartTime()), Width: scale.percent(s.EndTime()) - scale.percent(s.StartTime()),
		Start: duration(s.StartTime().Sub(scale.start)), Took: duration(s.EndTime().Sub(s.StartTime())),
		Failed: s.Status().Code == codes.Error, Status: visible(s.Status().Description),
	}
	for _, a := range attributeRows(s.Attributes()) {
		if strings.HasPrefix(a.Key, "federation.") {
			made.Federation = append(made.Federation, a)
		} else {
			made.Others = append(made.Others, a)
		}
	}
	for _, l := range s.Links() {
		made.Links = append(made.Links, newLinkRow(l, here, ui))
	}
	for _, e := range s.Events() {
		made.Events = append(made.Events, eventRow{
			Name: visible(e.Name), At: duration(e.Time.Sub(scale.start)), Left: scale.percent(e.Time), Attributes: attributeRows(e.Attributes),
		})
	}
	return made
}

// linkAttribute says what a link is for, where the span says it.
const linkAttribute = attribute.Key("federation.link")

func newLinkRow(l sdktrace.Link, here map[trace.SpanID]bool, ui jaeger) linkRow {
	id := l.SpanContext.SpanID()
	made := linkRow{Label: "link", SpanID: id.String(), Here: here[id]}
	if ui != "" {
		made.URL = string(ui) + "/trace/" + l.SpanContext.TraceID().String() + "?uiFind=" + id.String()
	}
	for _, a := range l.Attributes {
		if a.Key == linkAttribute {
			made.Label = visible(a.Value.String())
		} else {
			made.Attributes = append(made.Attributes, attributeRows([]attribute.KeyValue{a})...)
		}
	}
	return made
}

// attributeRows are the attributes by name.
func attributeRows(attributes []attribute.KeyValue) []attributeRow {
	rows := make([]attributeRow, len(attributes))
	for i, a := range attributes {
		rows[i] = attributeRow{visible(string(a.Key)), visible(a.Value.String())}
	}
	slices.SortFunc(rows, func(a, b attributeRow) int { return cmp.Compare(a.Key, b.Key) })
	return rows
}

// visible writes out what a page would not show or would obey: control
// characters, and those that turn the direction of the text after them.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "\\u%04x", r)
		}
	}
	return b.String()
}

// role is what part the span plays in a call.
func (s *span) role() string {
	switch {
	case s.SpanKind() == trace.SpanKindClient:
		return "attempt"
	case s.Name() == "federation.hold":
		return "hold"
	case s.Name() == "federation.anchor.refresh":
		return "refresh"
	}
	return "call"
}

// call is the call that the span is, or is a part of.
func (s *span) call() *span {
	for s.role() != "call" && s.parent != nil {
		s = s.parent
	}
	return s
}

// of says which call of the trace the span belongs to, by the peer that it went
// to; nothing for the parts of the root.
func (s *span) of(root *span) string {
	call := s.call()
	to := ""
	if peer := call.text("federation.peer.id"); peer != "" {
		to = " to " + visible(peer)
	}
	switch {
	case s == root:
		return strings.TrimSpace(to)
	case call == root:
		return ""
	case s == call:
		return "another call," + to
	}
	return "of the call" + to
}

// otherCalls are the facts of the calls that were made in the course of this one.
func (s *span) otherCalls() (facts []string) {
	s.walk(0, func(other *span, _ int) {
		if other != s && other.role() == "call" {
			facts = append(facts, other.of(s)+": "+strings.Join(other.facts(), ", "))
		}
	})
	return facts
}

// facts are the attributes of a call that tell one from another.
func (s *span) facts() (facts []string) {
	if reason := s.text("federation.reason"); reason != "" {
		facts = append(facts, "reason "+visible(reason))
	}
	if n := s.number("federation.attempts"); n > 0 {
		facts = append(facts, "sent "+times(n))
	} else {
		facts = append(facts, "not sent")
	}
	if n := s.number("federation.refreshes"); n > 0 {
		facts = append(facts, "anchor refreshed "+times(n))
	}
	if ms := s.number("federation.held_ms"); ms > 0 {
		facts = append(facts, fmt.Sprintf("held for %d ms", ms))
	}
	if s.attributes["federation.escalated"].AsBool() {
		facts = append(facts, "escalated")
	}
	return facts
}

func times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// timeline is from the first start to the last end of a trace.
type timeline struct{ start, end time.Time }

// percent is where on the timeline t is.
func (l timeline) percent(t time.Time) float64 {
	if !l.end.After(l.start) {
		return 0
	}
	at := 100 * float64(t.Sub(l.start)) / float64(l.end.Sub(l.start))
	return min(max(at, 0), 100)
}

func (l timeline) ticks() []string {
	const parts = 4
	ticks := make([]string, parts+1)
	for i := range ticks {
		ticks[i] = duration(l.end.Sub(l.start) * time.Duration(i) / parts)
	}
	return ticks
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
