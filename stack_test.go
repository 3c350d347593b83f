package fedhttp

import (
	"context"
	"net/http"
	"testing"
	"unsafe"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// TestStack: a goroutine begins with a few KiB of stack, and to find a larger one
// costs more than all that this package does. So there is little of a call on it
// while the base or a tracer is at work.
func TestStack(t *testing.T) {
	const inBase, inSpans = 1280, 1792 // with the race detector, half of it without
	spans := &stackProbe{}
	var base uintptr
	tr := newTestTransport(t, Config{
		TracerProvider: spans,
		Base: roundTripFunc(func(*http.Request) (*http.Response, error) {
			base = stackPointer()
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}}, nil
		}),
		Peers: []Peer{testPeer("b", "https://b.example")},
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://b.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	room(64 << 10) // or it would be moved meanwhile
	outside := stackPointer()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if took := int(outside - base); took <= 0 || took > inBase {
		t.Errorf("a call has %d bytes on the stack while the base sends, want at most %d", took, inBase)
	}
	if len(spans.at) != 6 {
		t.Errorf("%d steps of spans, want 6", len(spans.at))
	}
	for i, at := range spans.at {
		if took := int(outside - at); took <= 0 || took > inSpans {
			t.Errorf("a call has %d bytes on the stack in step %d of its spans, want at most %d", took, i, inSpans)
		}
	}
}

// stackProbe is a tracer that looks where the stack has come to.
type stackProbe struct {
	noop.TracerProvider
	at []uintptr
}

func (p *stackProbe) Tracer(string, ...trace.TracerOption) trace.Tracer { return stackTracer{p: p} }

type stackTracer struct {
	noop.Tracer
	p *stackProbe
}

func (s stackTracer) Start(ctx context.Context, _ string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	s.p.at = append(s.p.at, stackPointer())
	span := stackSpan{p: s.p}
	return trace.ContextWithSpan(ctx, span), span
}

type stackSpan struct {
	noop.Span
	p *stackProbe
}

func (s stackSpan) IsRecording() bool                   { return true }
func (s stackSpan) SetAttributes(...attribute.KeyValue) { s.p.at = append(s.p.at, stackPointer()) }
func (s stackSpan) End(...trace.SpanEndOption)          { s.p.at = append(s.p.at, stackPointer()) }

// stackPointer is about where the stack of its caller has come to.
//
//go:noinline
func stackPointer() uintptr {
	var here byte
	return uintptr(unsafe.Pointer(&here))
}

// room makes the stack of its goroutine have n bytes more.
//
//go:noinline
func room(n int) byte {
	var kib [1024]byte
	if n > len(kib) {
		kib[n%len(kib)] = room(n - len(kib))
	}
	return kib[n%len(kib)]
}
