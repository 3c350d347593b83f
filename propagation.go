package fedhttp

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Propagation is what of the trace context crosses the boundary to a peer. It
// is a closed set; the zero value is TraceContextOnly.
type Propagation uint8

// The propagations.
const (
	// TraceContextOnly sends traceparent and tracestate (W3C Trace Context), and
	// removes all else that a propagator may have put into the request: baggage,
	// which was meant for our own services, the fields of B3, Jaeger, AWS X-Ray,
	// Google Cloud, Datadog and others, and those of Config.Propagator. The context
	// of the base has no baggage either, so that one which is instrumented cannot
	// send it.
	TraceContextOnly Propagation = iota
	// PropagateAll sends what the request has, and what Config.Propagator adds.
	PropagateAll
	// PropagateNone removes traceparent and tracestate as well.
	PropagateNone
)

var propagationNames = []string{"trace_context", "all", "none"}

// String returns the propagation's token, such as "trace_context".
func (p Propagation) String() string { return enumString(propagationNames, "propagation", p) }

// MarshalText returns the propagation's token, or an error for a value outside the set.
func (p Propagation) MarshalText() ([]byte, error) {
	return enumMarshal(propagationNames, "propagation", p)
}

// UnmarshalText parses a propagation's token.
func (p *Propagation) UnmarshalText(text []byte) error {
	return enumUnmarshal(propagationNames, "propagation", p, text)
}

// traceFields are the fields that the known propagators write: W3C Trace Context
// and Baggage, B3, Jaeger, OpenTracing, AWS X-Ray, Google Cloud, Datadog, Elastic,
// New Relic, Sentry, SkyWalking and Instana, and baggage's older name.
var traceFields = []string{
	"Traceparent", "Tracestate", "Baggage",
	"B3", "X-B3-",
	"Uber-Trace-Id", "Uberctx-", "Jaeger-Baggage", "Jaeger-Debug-Id",
	"Ot-Tracer-", "Ot-Baggage-", "X-Ot-Span-Context",
	"X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "Grpc-Trace-Bin",
	"X-Datadog-", "Elastic-Apm-Traceparent", "Newrelic", "Sentry-Trace",
	"Correlation-Context", "Sw8", "Sw8-", "X-Instana-",
}

func (t *tracing) propagates() propagation.TextMapPropagator {
	if t.propagator != nil {
		return t.propagator
	}
	return otel.GetTextMapPropagator()
}

// private is ctx for a base, which may be instrumented and then sends the baggage
// that it finds, and the trace context. Baggage is the caller's, if anybody's.
func (t *tracing) private(ctx, callers context.Context, p Propagation) context.Context {
	if p == PropagateAll {
		return ctx
	}
	if p == PropagateNone && trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	}
	if baggage.FromContext(callers).Len() == 0 {
		return ctx
	}
	return baggage.ContextWithoutBaggage(ctx)
}

// stripped returns the fields of propagators that do not cross.
func (t *tracing) stripped(p Propagation) []string {
	if p == PropagateAll {
		return nil
	}
	return t.fields
}

// keeps reports whether the request's own trace context crosses. Its two fields
// belong together, so both go where ours come.
func (t *tracing) keeps(ctx context.Context, p Propagation) bool {
	return p == TraceContextOnly && !trace.SpanContextFromContext(ctx).IsValid()
}

// propagate puts the trace context into the attempt's header.
func (t *tracing) propagate(ctx context.Context, p Propagation, h *attemptHeader) {
	switch p {
	case PropagateAll:
		t.propagates().Inject(ctx, h)
	case TraceContextOnly:
		propagation.TraceContext{}.Inject(ctx, h)
	}
}

// Get returns nothing: a propagator only writes.
func (o *attemptHeader) Get(string) string { return "" }

// Keys returns nothing.
func (o *attemptHeader) Keys() []string { return nil }

// Set replaces the field.
func (o *attemptHeader) Set(key, value string) {
	if key == "traceparent" {
		own := o.own()
		own["Traceparent"] = single(&o.room.traceparent, value)
		return
	}
	o.own()[http.CanonicalHeaderKey(key)] = []string{value}
}
