package fedhttp

import (
	"context"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Propagation is what of the trace context crosses the boundary to a peer. It
// is a closed set; the zero value is TraceContextOnly.
type Propagation uint8

// The propagations.
const (
	// TraceContextOnly sends traceparent and tracestate (W3C Trace Context), and
	// removes baggage: what it carries was meant for our own services.
	TraceContextOnly Propagation = iota
	// PropagateAll sends what OpenTelemetry's global propagator adds.
	PropagateAll
	// PropagateNone removes traceparent, tracestate and baggage.
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

const instrumentation = "github.com/fedhttp/fedhttp"

// The span attributes of this package; those of HTTP are OpenTelemetry's.
const (
	attrPeer          = attribute.Key("federation.peer.id")
	attrCapability    = attribute.Key("federation.capability.id")
	attrTask          = attribute.Key("federation.task.id")
	attrScope         = attribute.Key("federation.scope")
	attrOutcome       = attribute.Key("federation.outcome")
	attrReason        = attribute.Key("federation.reason")
	attrPolicyDigest  = attribute.Key("federation.policy.digest")
	attrPolicyBasis   = attribute.Key("federation.policy.basis")
	attrEpoch         = attribute.Key("federation.negotiation.epoch")
	attrCorrelationID = attribute.Key("federation.correlation_id")
	attrPolicyReason  = attribute.Key("federation.policy.reason")
	attrAttempts      = attribute.Key("federation.attempts")
	attrRefreshes     = attribute.Key("federation.refreshes")
	attrAnchorVersion = attribute.Key("federation.anchor.version")
	attrHeldMS        = attribute.Key("federation.held_ms")
	attrDegraded      = attribute.Key("federation.peer.degraded")
	attrEscalated     = attribute.Key("federation.escalated")
	attrLayer         = attribute.Key("federation.layer")
	attrVerdict       = attribute.Key("federation.verdict")
	attrEvidence      = attribute.Key("federation.evidence")
	attrDelivery      = attribute.Key("federation.delivery")
	attrResult        = attribute.Key("federation.anchor.result")
)

// tracing makes the spans of a Transport. Without a tracer it does nothing.
type tracing struct {
	tracer trace.Tracer // nil: none
	// placeholder is the type of the global provider that stands in until the
	// program sets one; while it does, spans would cost and come to nothing.
	placeholder reflect.Type
}

func newTracing(provider trace.TracerProvider) *tracing {
	t := &tracing{}
	if provider == nil {
		provider = otel.GetTracerProvider()
		if typ := reflect.TypeOf(provider); typ.Kind() == reflect.Pointer && typ.Elem().PkgPath() == "go.opentelemetry.io/otel/internal/global" {
			t.placeholder = typ
		}
	}
	if _, none := provider.(noop.TracerProvider); !none {
		t.tracer = provider.Tracer(instrumentation)
	}
	return t
}

func (t *tracing) on() bool {
	return t.tracer != nil && (t.placeholder == nil || reflect.TypeOf(otel.GetTracerProvider()) != t.placeholder)
}

// span is a span, or none: the zero value does nothing.
type span struct{ trace.Span }

// End ends the span; more than one End is one.
func (s span) End() {
	if s.Span != nil {
		s.Span.End()
	}
}

// recording reports whether attributes are worth computing.
func (s span) recording() bool { return s.Span != nil && s.IsRecording() }

var (
	startInternal = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal)}
	startClient   = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}
)

// startCall begins the span of a call, the parent of all others.
func (t *tracing) startCall(ctx context.Context, capability string) (context.Context, span) {
	if !t.on() {
		return ctx, span{}
	}
	name := "federation request"
	if capability != "" {
		name = "federation " + sanitize(capability)
	}
	ctx, s := t.tracer.Start(ctx, name, startInternal...)
	return ctx, span{s}
}

// endCall puts the decision on the call's span and ends it.
func (t *tracing) endCall(c *call) {
	if !c.span.recording() {
		c.span.End()
		return
	}
	d := &c.decision
	attrs := make([]attribute.KeyValue, 0, 20)
	text := func(key attribute.Key, value string) {
		if value != "" {
			attrs = append(attrs, key.String(value))
		}
	}
	text(attrPeer, d.Peer)
	text(attrCapability, sanitize(d.Capability))
	text(attrTask, sanitize(d.TaskID))
	text(attrScope, sanitize(c.task.Scope))
	text(attrOutcome, d.Outcome.String())
	text(attrReason, d.Reason.String())
	text(attrPolicyDigest, sanitize(d.PolicyDigest))
	text(attrPolicyBasis, d.Basis.String())
	text(attrCorrelationID, d.CorrelationID)
	text(attrPolicyReason, d.PolicyReason)
	text(attrAnchorVersion, sanitize(d.AnchorVersion))
	if d.PolicyDigest != "" {
		// OpenTelemetry has no unsigned integers.
		attrs = append(attrs, attrEpoch.Int64(int64(d.Epoch))) //nolint:gosec // see above
	}
	if d.HeldFor > 0 {
		attrs = append(attrs, attrHeldMS.Int64(d.HeldFor.Milliseconds()))
	}
	degraded := c.last != nil && c.last.degraded
	attrs = append(attrs, attrAttempts.Int(d.Attempts), attrRefreshes.Int(d.Refreshes),
		attrDegraded.Bool(degraded), attrEscalated.Bool(d.Escalated))
	if d.Outcome != OutcomeDelivered {
		attrs = append(attrs, semconv.ErrorTypeKey.String(d.Outcome.String()))
		c.span.SetStatus(codes.Error, d.Reason.String())
	}
	c.span.SetAttributes(attrs...)
	c.span.End()
}

// startAttempt begins the CLIENT span of an attempt.
func (t *tracing) startAttempt(ctx context.Context, c *call, a *attempt) context.Context {
	if !t.on() {
		return ctx
	}
	ctx, s := t.tracer.Start(ctx, method(c.in), startClient...)
	a.span = span{s}
	return ctx
}

// classified puts on the attempt's span what it came to. The span goes on until
// the response has been read.
func (t *tracing) classified(c *call, a *attempt) {
	if !a.span.recording() {
		return
	}
	evidence := make([]string, len(a.reading.evidence))
	for i, e := range a.reading.evidence {
		evidence[i] = e.String()
	}
	attrs := make([]attribute.KeyValue, 0, 16)
	attrs = append(attrs,
		semconv.HTTPRequestMethodKey.String(method(c.in)),
		semconv.URLFull(redactedURL(c.in.URL)),
		attrLayer.String(layerOf(a.reading.evidence).String()),
		attrVerdict.String(a.verdict.String()),
		attrEvidence.StringSlice(evidence),
		attrDelivery.String(a.delivery.String()))
	if o, err := originOf(c.in.URL); err == nil {
		attrs = append(attrs, semconv.ServerAddress(o.host))
		if port, err := strconv.Atoi(o.port); err == nil {
			attrs = append(attrs, semconv.ServerPort(port))
		}
	}
	if c.sends > 1 {
		attrs = append(attrs, semconv.HTTPRequestResendCount(c.sends-1))
	}
	failed := a.verdict != VerdictNone
	if a.resp != nil {
		attrs = append(attrs, semconv.HTTPResponseStatusCode(a.resp.StatusCode))
		if version := protocolVersion(a.resp); version != "" {
			attrs = append(attrs, semconv.NetworkProtocolVersion(version))
		}
		if failed = failed || a.resp.StatusCode >= 400; failed {
			attrs = append(attrs, semconv.ErrorTypeKey.String(strconv.Itoa(a.resp.StatusCode)))
		}
	} else {
		attrs = append(attrs, semconv.ErrorType(a.err))
	}
	if failed {
		a.span.SetStatus(codes.Error, a.reason.String())
	}
	a.span.SetAttributes(attrs...)
}

// startHold begins the span of a hold.
func (t *tracing) startHold(ctx context.Context) span {
	if !t.on() {
		return span{}
	}
	_, s := t.tracer.Start(ctx, "federation.hold", startInternal...)
	return span{s}
}

// refreshed makes the span of a fetch that the call waited for since start.
func (t *tracing) refreshed(c *call, start time.Time, result refreshResult) {
	if !t.on() {
		return
	}
	_, s := t.tracer.Start(c.Context, "federation.anchor.refresh", trace.WithTimestamp(start))
	if s.IsRecording() {
		s.SetAttributes(attrPeer.String(c.peer.ID), attrResult.String(result.String()),
			attrAnchorVersion.String(sanitize(c.peer.anchors.anchor().Version)))
		if result == refreshFailed {
			s.SetStatus(codes.Error, ReasonRefreshFailed.String())
		}
	}
	s.End()
}

// propagate puts the trace context into the attempt's header.
func (t *tracing) propagate(ctx context.Context, p Propagation, h *ownedHeader) {
	switch p {
	case PropagateAll:
		otel.GetTextMapPropagator().Inject(ctx, headerCarrier{h})
	case PropagateNone:
		h.del("Traceparent")
		h.del("Tracestate")
		h.del("Baggage")
	default:
		h.del("Baggage")
		if trace.SpanContextFromContext(ctx).IsValid() {
			propagation.TraceContext{}.Inject(ctx, headerCarrier{h})
		}
	}
}

// headerCarrier writes what a propagator adds; nothing is read through it.
type headerCarrier struct{ h *ownedHeader }

func (c headerCarrier) Get(string) string { return "" }
func (c headerCarrier) Keys() []string    { return nil }
func (c headerCarrier) Set(key, value string) {
	c.h.own()[http.CanonicalHeaderKey(key)] = []string{value}
}

func method(req *http.Request) string {
	switch req.Method {
	case "":
		return http.MethodGet
	case "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY":
		return req.Method
	}
	return "HTTP" // what the HTTP semantic conventions name a span of any other method
}

// redactedURL is u without userinfo, query and fragment, which may hold secrets.
func redactedURL(u *url.URL) string {
	if u == nil {
		return ""
	}
	bare := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	return bare.String()
}

func protocolVersion(resp *http.Response) string {
	switch {
	case resp.ProtoMajor == 1:
		return "1." + strconv.Itoa(resp.ProtoMinor)
	case resp.ProtoMajor > 1:
		return strconv.Itoa(resp.ProtoMajor)
	}
	return ""
}

// layerOf is the layer that all of the evidence points to.
func layerOf(evidence []Evidence) Layer {
	layer := LayerUnknown
	for i, e := range evidence {
		if i > 0 && e.Layer != layer {
			return LayerUnknown
		}
		layer = e.Layer
	}
	return layer
}
