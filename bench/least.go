package bench

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Least is a chain that decides nothing. It does what none can do without that
// watches what net/http does with a request and tells of it: it leaves the caller's
// request as it is, can end its own, hears of the connections that are taken, learns
// when the answer was read, and makes the spans that fedhttp makes, with as many
// attributes. It has no policy, breaker, limit, classification, decision or metric.
var Least = around("least", "the least that would do", true, func(base http.RoundTripper, t Telemetry) http.RoundTripper {
	l := &least{base: base}
	if _, none := t.Tracer.(noop.TracerProvider); !none {
		l.tracer = t.Tracer.Tracer("least")
	}
	return l
})

type least struct {
	base   http.RoundTripper
	tracer trace.Tracer // nil: none
}

// minimal is one send of it, its context, and what its trace context is written to.
type minimal struct {
	context.Context
	request     http.Request
	trace       httptrace.ClientTrace
	traceparent [1]string
	body        io.ReadCloser
	cancel      context.CancelFunc
	conns       int
	span        trace.Span
}

// traceKey is what net/http looks for a trace under: one layer of context less.
var traceKey = func() any {
	var asked keyCatcher
	httptrace.ContextClientTrace(&asked)
	return asked.key
}()

type keyCatcher struct {
	context.Context
	key any
}

// Value implements context.Context.
func (c *keyCatcher) Value(key any) any {
	c.key = key
	return nil
}

// Value implements context.Context.
func (w *minimal) Value(key any) any {
	if key == traceKey {
		return &w.trace
	}
	return w.Context.Value(key)
}

func (w *minimal) gotConn(httptrace.GotConnInfo) { w.conns++ }

// Get implements propagation.TextMapCarrier.
func (w *minimal) Get(string) string { return "" }

// Keys implements propagation.TextMapCarrier.
func (w *minimal) Keys() []string { return nil }

// Set implements propagation.TextMapCarrier.
func (w *minimal) Set(key, value string) {
	if key != "traceparent" {
		w.request.Header.Set(key, value)
		return
	}
	w.traceparent[0] = value
	w.request.Header["Traceparent"] = w.traceparent[:]
}

// What the spans of a plain GET say.
var (
	callAttributes = []attribute.KeyValue{
		attribute.String("federation.peer.id", "b"), attribute.String("federation.outcome", "delivered"), attribute.Int("federation.attempts", 1),
	}
	attemptAttributes = []attribute.KeyValue{
		attribute.String("http.request.method", "GET"), attribute.String("url.full", Origin+path), attribute.String("server.address", "registry.b.example"),
		attribute.Int("server.port", 443), attribute.String("federation.verdict", "none"), attribute.String("federation.delivery", "answered"),
		attribute.Int("http.response.status_code", 200), attribute.String("network.protocol.version", "1.1"),
	}
	asClient = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
)

// RoundTrip implements http.RoundTripper.
func (l *least) RoundTrip(req *http.Request) (*http.Response, error) {
	w := &minimal{}
	ctx, header := req.Context(), req.Header
	var call trace.Span
	if l.tracer != nil {
		ctx, call = l.tracer.Start(ctx, "federation request")
		ctx, w.span = l.tracer.Start(ctx, req.Method, asClient...)
		header = make(http.Header, len(req.Header)+1)
		for name, values := range req.Header {
			header[name] = values
		}
	}
	w.trace.GotConn = w.gotConn
	w.Context, w.cancel = context.WithCancel(ctx)
	w.request = *req.WithContext(w)
	w.request.Header = header
	if w.span != nil {
		propagation.TraceContext{}.Inject(ctx, w)
	}
	resp, err := l.base.RoundTrip(&w.request)
	if w.span != nil {
		w.span.SetAttributes(attemptAttributes...)
		call.SetAttributes(callAttributes...)
		call.End()
	}
	if err != nil {
		w.end()
		return nil, err
	}
	w.body, resp.Body = resp.Body, w
	return resp, nil
}

func (w *minimal) end() {
	w.cancel()
	if w.span != nil {
		w.span.End()
		w.span = nil
	}
}

// Read implements io.Reader.
func (w *minimal) Read(p []byte) (int, error) {
	n, err := w.body.Read(p)
	if err != nil {
		w.end()
	}
	return n, err
}

// Close implements io.Closer.
func (w *minimal) Close() error {
	err := w.body.Close()
	w.end()
	return err
}
