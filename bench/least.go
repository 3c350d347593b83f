package bench

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

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

// minimal is one send of it.
type minimal struct {
	request http.Request
	trace   httptrace.ClientTrace
	body    io.ReadCloser
	cancel  context.CancelFunc
	conns   atomic.Int32
	span    trace.Span
}

func (w *minimal) getConn(string)                { w.conns.Add(1) }
func (w *minimal) gotConn(httptrace.GotConnInfo) { w.conns.Add(1) }

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
		propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(header))
	}
	w.trace.GetConn, w.trace.GotConn = w.getConn, w.gotConn
	ctx, w.cancel = context.WithCancel(httptrace.WithClientTrace(ctx, &w.trace))
	w.request = *req.WithContext(ctx)
	w.request.Header = header
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
