package fedhttp

// Propagation is what of the trace context crosses the boundary to a peer. It
// is a closed set; the zero value is TraceContextOnly.
type Propagation uint8

// The propagations.
const (
	// TraceContextOnly sends traceparent and tracestate (W3C Trace Context), and
	// removes all else that a propagator may have put into the request: baggage,
	// which was meant for our own services, the fields of B3, Jaeger, AWS X-Ray,
	// Google Cloud, Datadog and others, and those of OpenTelemetry's global
	// propagator as it was at NewTransport.
	TraceContextOnly Propagation = iota
	// PropagateAll sends what the request has, and what OpenTelemetry's global
	// propagator adds.
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
// New Relic and Sentry.
var traceFields = []string{
	"Traceparent", "Tracestate", "Baggage",
	"B3", "X-B3-",
	"Uber-Trace-Id", "Uberctx-", "Jaeger-Baggage", "Jaeger-Debug-Id",
	"Ot-Tracer-", "Ot-Baggage-", "X-Ot-Span-Context",
	"X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "Grpc-Trace-Bin",
	"X-Datadog-", "Elastic-Apm-Traceparent", "Newrelic", "Sentry-Trace",
}
