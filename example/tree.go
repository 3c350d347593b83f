package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fedhttp/fedhttp"
)

// traces keeps all spans in memory: some are printed, and with -otlp all are sent.
type traces struct {
	provider *sdktrace.TracerProvider
	spans    *tracetest.SpanRecorder
}

func newTraces() *traces {
	spans := tracetest.NewSpanRecorder()
	return &traces{
		spans: spans,
		provider: sdktrace.NewTracerProvider(
			sdktrace.WithSpanProcessor(spans),
			// Whatever the environment says: a kind of decision may occur only once.
			sdktrace.WithSampler(sdktrace.AlwaysSample()),
			sdktrace.WithResource(serviceResource()),
		),
	}
}

func (t *traces) close() { _ = t.provider.Shutdown(context.Background()) } // a recorder has nothing to flush

// span is one span and those under it, in the order in which they began.
type span struct {
	sdktrace.ReadOnlySpan
	attributes map[attribute.Key]attribute.Value
	parent     *span // nil at the top
	children   []*span
}

// roots returns the trees of all calls, in the order in which they ended.
func (t *traces) roots() []*span {
	ended := t.spans.Ended()
	byID := make(map[trace.SpanID]*span, len(ended))
	for _, s := range ended {
		attributes := make(map[attribute.Key]attribute.Value, len(s.Attributes()))
		for _, a := range s.Attributes() {
			attributes[a.Key] = a.Value
		}
		byID[s.SpanContext().SpanID()] = &span{ReadOnlySpan: s, attributes: attributes}
	}
	var roots []*span
	for _, s := range ended {
		node := byID[s.SpanContext().SpanID()]
		if parent := byID[s.Parent().SpanID()]; parent != nil {
			node.parent = parent
			parent.children = append(parent.children, node)
		} else {
			roots = append(roots, node)
		}
	}
	for _, node := range byID {
		slices.SortStableFunc(node.children, func(a, b *span) int { return a.StartTime().Compare(b.StartTime()) })
	}
	return roots
}

// size is how many spans the tree has.
func (s *span) size() int {
	n := 1
	for _, child := range s.children {
		n += child.size()
	}
	return n
}

func (s *span) text(key attribute.Key) string { return s.attributes[key].AsString() }
func (s *span) number(key attribute.Key) int  { return int(s.attributes[key].AsInt64()) }

// kind names the kind of decision of a call; empty for one that is no example
// of any, such as a request for advertisements.
func (s *span) kind() string {
	outcome := s.text("federation.outcome")
	switch {
	case s.text("federation.capability.id") == "" && outcome != fedhttp.OutcomeTaskRequired.String():
		return ""
	case outcome == "delivered" && s.number("federation.attempts") > 1:
		if s.number("federation.refreshes") == 0 {
			return "" // another call's refresh repaired it; the trace of that one shows more
		}
		return "delivered after refresh"
	case outcome == "delivered" && s.number("federation.held_ms") > 0:
		return "delivered after hold"
	}
	return outcome
}

// examples returns a trace of each kind, in the order of kinds; kinds that
// nobody expected come last. Of several it takes the one that shows most: the
// task that met a policy first has the negotiation in its trace, for instance.
func (t *traces) examples() []*span {
	best := map[string]*span{}
	order := kindNames()
	for _, root := range t.roots() {
		kind := root.kind()
		if kind == "" || best[kind] != nil && best[kind].size() >= root.size() {
			continue
		}
		best[kind] = root
		if !slices.Contains(order, kind) {
			order = append(order, kind)
		}
	}
	var examples []*span
	for _, kind := range order {
		if root := best[kind]; root != nil {
			examples = append(examples, root)
		}
	}
	return examples
}

func (t *traces) print(out *printer) {
	for _, root := range t.examples() {
		out.printf("\n%s\n", root.kind())
		root.print(out, "", "  ", "  ")
	}
}

// print writes the span on a line of its own, its attributes below, and then
// its children, as a tree.
func (s *span) print(out *printer, branch, indent, attributeIndent string) {
	out.printf("%s%s  %s\n", indent[:len(indent)-len("  ")]+branch, s.Name(), duration(s.EndTime().Sub(s.StartTime())))
	below := attributeIndent
	if len(s.children) > 0 {
		below += "│ "
	} else {
		below += "  "
	}
	for _, line := range s.attributeLines(100) {
		out.printf("%s%s\n", below, line)
	}
	for i, child := range s.children {
		if i < len(s.children)-1 {
			child.print(out, "├─ ", attributeIndent+"  ", attributeIndent+"│  ")
		} else {
			child.print(out, "└─ ", attributeIndent+"  ", attributeIndent+"   ")
		}
	}
}

// attributeLines are the span's federation.* attributes without that prefix,
// and those of HTTP that say how the attempt went, in lines of about width.
func (s *span) attributeLines(width int) (lines []string) {
	line := ""
	for _, a := range s.Attributes() {
		key := string(a.Key)
		switch {
		case strings.HasPrefix(key, "federation."):
			key = strings.TrimPrefix(key, "federation.")
		case key != "http.response.status_code" && key != "http.request.resend_count":
			continue
		}
		text := key + "=" + short(a.Value.String())
		if line != "" && len(line)+1+len(text) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimLeft(line+" "+text, " ")
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}

// short cuts the middle out of a digest.
func short(value string) string {
	if digest, ok := strings.CutPrefix(value, "sha256:"); ok && len(digest) > 12 {
		return "sha256:" + digest[:12] + "…"
	}
	return value
}

func duration(d time.Duration) string {
	µs := float64(d) / float64(time.Microsecond)
	switch {
	case d < 10*time.Microsecond && d != 0:
		return fmt.Sprintf("%.1f µs", µs)
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", µs)
	}
	return fmt.Sprintf("%.1f ms", µs/1000)
}
