package fedhttp

import (
	"net/http"
	"strings"
)

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
// New Relic and Sentry. A name that ends in a hyphen stands for all that begin so.
var traceFields = []string{
	"Traceparent", "Tracestate", "Baggage",
	"B3", "X-B3-",
	"Uber-Trace-Id", "Uberctx-", "Jaeger-Baggage", "Jaeger-Debug-Id",
	"Ot-Tracer-", "Ot-Baggage-", "X-Ot-Span-Context",
	"X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "Grpc-Trace-Bin",
	"X-Datadog-", "Elastic-Apm-Traceparent", "Newrelic", "Sentry-Trace",
}

// fieldSet is a set of field names and of beginnings of names.
type fieldSet struct {
	letters   uint32 // with which they begin, so that most names are not looked up
	names     map[string]bool
	beginning []string
}

func letter(name string) uint32 {
	if name == "" {
		return 0
	}
	return 1 << (name[0] & 0x1f) // the same for both cases
}

func newFieldSet(names []string) *fieldSet {
	s := &fieldSet{names: make(map[string]bool)}
	for _, name := range names {
		s.letters |= letter(name)
		if strings.HasSuffix(name, "-") {
			s.beginning = append(s.beginning, name)
		} else {
			s.names[http.CanonicalHeaderKey(name)] = true
		}
	}
	return s
}

// has takes the name in its canonical form.
func (s *fieldSet) has(name string) bool {
	if s.names[name] {
		return true
	}
	for _, beginning := range s.beginning {
		if strings.HasPrefix(name, beginning) {
			return true
		}
	}
	return false
}

// strip removes the fields of the set, in any spelling: a name that was put into
// the map by hand goes out as it stands. traceparent and tracestate can be kept.
func (o *ownedHeader) strip(s *fieldSet, keepTraceContext bool) {
	for spelled := range o.h {
		if s.letters&letter(spelled) == 0 {
			continue
		}
		name := http.CanonicalHeaderKey(spelled)
		if s.has(name) && (!keepTraceContext || name != "Traceparent" && name != "Tracestate") {
			delete(o.own(), spelled)
		}
	}
}
