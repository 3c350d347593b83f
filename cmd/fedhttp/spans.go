package main

import (
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// recorder keeps the spans that have ended. It is a span processor, safe for
// concurrent use.
type recorder struct {
	mu    sync.Mutex
	ended []sdktrace.ReadOnlySpan
}

func (r *recorder) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (r *recorder) Shutdown(context.Context) error                  { return nil }
func (r *recorder) ForceFlush(context.Context) error                { return nil }

func (r *recorder) OnEnd(s sdktrace.ReadOnlySpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, s)
}

// node is a span and those below it, in the order in which they began.
type node struct {
	sdktrace.ReadOnlySpan
	children []*node
}

// trees returns the spans that ended, below their parents.
func (r *recorder) trees() []*node {
	r.mu.Lock()
	defer r.mu.Unlock()
	byID := make(map[trace.SpanID]*node, len(r.ended))
	for _, s := range r.ended {
		byID[s.SpanContext().SpanID()] = &node{ReadOnlySpan: s}
	}
	var roots []*node
	for _, s := range r.ended {
		n := byID[s.SpanContext().SpanID()]
		if parent := byID[s.Parent().SpanID()]; parent != nil {
			parent.children = append(parent.children, n)
		} else {
			roots = append(roots, n)
		}
	}
	for _, n := range byID {
		slices.SortStableFunc(n.children, func(a, b *node) int { return a.StartTime().Compare(b.StartTime()) })
	}
	return roots
}

// text returns an attribute, "" where the span has none of that name.
func (n *node) text(key attribute.Key) string {
	for _, a := range n.Attributes() {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}
