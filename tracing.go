package fedhttp

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

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
	attrLink          = attribute.Key("federation.link")
)

// tracing makes the spans of a Transport. Without a tracer it does nothing.
type tracing struct {
	tracer trace.Tracer // nil: none
	// placeholder is the type of the global provider that stands in until the
	// program sets one; while it does, spans would cost and come to nothing.
	placeholder reflect.Type
	propagator  propagation.TextMapPropagator // nil: the global one
	fields      []string                      // of propagators
	names       seen[string, string]          // of calls' spans, by capability
}

func newTracing(provider trace.TracerProvider, propagator propagation.TextMapPropagator) *tracing {
	t := &tracing{propagator: propagator}
	t.fields = slices.Concat(traceFields, t.propagates().Fields())
	if provider == nil {
		provider = otel.GetTracerProvider()
		t.placeholder = placeholderOf(provider)
	}
	if _, none := provider.(noop.TracerProvider); !none {
		t.tracer = provider.Tracer(instrumentation, trace.WithSchemaURL(semconv.SchemaURL))
	}
	return t
}

// placeholderOf returns the type of a global provider that is the placeholder, nil
// where it is another.
func placeholderOf(global any) reflect.Type {
	typ := reflect.TypeOf(global)
	if typ.Kind() == reflect.Pointer && typ.Elem().PkgPath() == "go.opentelemetry.io/otel/internal/global" {
		return typ
	}
	return nil
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

// endAt ends the span as of a time that has passed.
func (s span) endAt(at time.Time) {
	if s.Span != nil {
		s.Span.End(trace.WithTimestamp(at))
	}
}

// context is what a link to the span needs.
func (s span) context() trace.SpanContext {
	if s.Span == nil {
		return trace.SpanContext{}
	}
	return s.SpanContext()
}

// ids are what a line in the log is found by: those of the span, else of the
// caller's; "" where there is neither.
func (s span) ids(ctx context.Context) (traceID, spanID string) {
	sc := s.context()
	if !sc.IsValid() {
		sc = trace.SpanContextFromContext(ctx)
	}
	if !sc.IsValid() {
		return "", ""
	}
	return sc.TraceID().String(), sc.SpanID().String()
}

// recording reports whether attributes are worth computing.
func (s span) recording() bool { return s.Span != nil && s.IsRecording() }

// startClient is the option of an attempt's span. The others are INTERNAL, which
// is what a span is without one.
var startClient = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)}

// nameOf names the span of a call.
func (t *tracing) nameOf(capability string) string {
	if capability == "" {
		return "federation request"
	}
	return t.names.of(capability, func() string { return "federation " + sanitize(capability) })
}

// startCall begins the span of a call, the parent of all others.
func (t *tracing) startCall(ctx context.Context, capability string) (context.Context, span) {
	if !t.on() {
		return ctx, span{}
	}
	ctx, s := t.tracer.Start(ctx, t.nameOf(capability))
	return ctx, span{s}
}

// attributes gathers the attributes of one span, which are set in one step.
type attributes []attribute.KeyValue

// attributePool has the room in which they are gathered. A span takes copies.
var attributePool = sync.Pool{New: func() any {
	room := make(attributes, 0, 20)
	return &room
}}

// gather returns the room for the attributes of a span.
func gather() *attributes { return attributePool.Get().(*attributes) }

// setOn hands the attributes to the span, and gives their room back.
func (a *attributes) setOn(s span) {
	s.SetAttributes(*a...)
	clear(*a) // what the span had is not kept alive here
	*a = (*a)[:0]
	attributePool.Put(a)
}

// These are not inlined: each attribute would have room of its own on the stack.

//go:noinline
func (a *attributes) add(attr attribute.KeyValue) { *a = append(*a, attr) }

// text adds an attribute that has something to say.
//
//go:noinline
func (a *attributes) text(key attribute.Key, value string) {
	if value != "" {
		*a = append(*a, key.String(value))
	}
}

//go:noinline
func (a *attributes) number(key attribute.Key, value int64) { *a = append(*a, key.Int64(value)) }

// mark adds an attribute that is true.
//
//go:noinline
func (a *attributes) mark(key attribute.Key) { *a = append(*a, key.Bool(true)) }

// endCall puts the decision on the call's span and ends it.
func (t *tracing) endCall(c *call) {
	if !c.span.recording() {
		c.span.End()
		return
	}
	d := c.decision()
	attrs := gather()
	attrs.text(attrPeer, d.Peer)
	attrs.text(attrCapability, sanitize(d.Capability))
	attrs.text(attrTask, sanitize(d.TaskID))
	attrs.text(attrScope, sanitize(c.task.Scope))
	attrs.text(attrOutcome, d.Outcome.String())
	attrs.text(attrReason, d.Reason.String())
	attrs.text(attrPolicyDigest, sanitize(d.PolicyDigest))
	if d.Capability != "" {
		attrs.text(attrPolicyBasis, d.Basis.String())
	}
	attrs.text(attrCorrelationID, d.CorrelationID)
	attrs.text(attrPolicyReason, d.PolicyReason)
	attrs.text(attrAnchorVersion, sanitize(d.AnchorVersion))
	if d.PolicyDigest != "" {
		// OpenTelemetry has no unsigned integers.
		attrs.number(attrEpoch, int64(d.Epoch)) //nolint:gosec // see above
	}
	if d.HeldFor > 0 {
		attrs.number(attrHeldMS, d.HeldFor.Milliseconds())
	}
	if d.Refreshes > 0 {
		attrs.number(attrRefreshes, int64(d.Refreshes))
	}
	if c.degraded() {
		attrs.mark(attrDegraded)
	}
	if d.Escalated {
		attrs.mark(attrEscalated)
	}
	attrs.number(attrAttempts, int64(d.Attempts))
	if d.Outcome != OutcomeDelivered {
		attrs.text(semconv.ErrorTypeKey, d.Outcome.String())
		c.span.SetStatus(codes.Error, d.Reason.String())
	}
	attrs.setOn(c.span)
	c.span.End()
}

// startAttempt begins the CLIENT span of an attempt.
func (t *tracing) startAttempt(c *call, a, before *attempt) context.Context {
	if !t.on() {
		return c
	}
	options := startClient
	if before != nil {
		options = c.startResend(a, before)
	}
	ctx, s := t.tracer.Start(c, method(c.in), options...)
	a.span = span{s}
	return ctx
}

// startResend has the span of a resend linked to the attempt before it and to the
// refresh that allowed it.
//
//go:noinline
func (c *call) startResend(a, before *attempt) []trace.SpanStartOption {
	links := []trace.Link{linkTo(before.span.context(), "resend_of", attrVerdict.String(before.verdict.String()))}
	if r := c.refreshed(a.anchor.Version); r != nil {
		links = append(links, linkTo(r.span, "refreshed_by", attrAnchorVersion.String(sanitize(r.version))))
	}
	return []trace.SpanStartOption{startClient[0], trace.WithLinks(links...)}
}

func linkTo(to trace.SpanContext, kind string, more attribute.KeyValue) trace.Link {
	return trace.Link{SpanContext: to, Attributes: []attribute.KeyValue{attrLink.String(kind), more}}
}

// refreshSpan is the span of the fetch that brought an anchor.
type refreshSpan struct {
	version string
	span    trace.SpanContext
}

// refreshed is the refresh that brought the version under which the call is sent
// again: its own, or another call's. Nil where no call has waited for it.
func (c *call) refreshed(version string) *refreshSpan {
	for _, r := range []*refreshSpan{c.mend().refresh, c.peer.lastRefresh.Load()} {
		if r != nil && r.version == version {
			return r
		}
	}
	return nil
}

// classified puts on the attempt's span what it came to. The span goes on until
// the response has been read.
func (t *tracing) classified(c *call, a *attempt) {
	if !a.span.recording() {
		return
	}
	attrs := gather()
	attrs.add(methodAttribute(c.in))
	if original := c.in.Method; original != "" && method(c.in) != original {
		attrs.text(semconv.HTTPRequestMethodOriginalKey, sanitize(original))
	}
	u := c.in.URL // of a peer, so its host is plain
	attrs.text(semconv.URLFullKey, u.Scheme+"://"+u.Host+escapedPath(u))
	attrs.text(semconv.ServerAddressKey, c.host)
	attrs.number(semconv.ServerPortKey, int64(c.portNumber))
	attrs.text(attrVerdict, a.verdict.String())
	attrs.text(attrDelivery, a.delivery.String())
	failed := a.verdict != VerdictNone
	if failed || len(a.reading.evidence) > 0 {
		attrs.text(attrLayer, layerOf(a.reading.evidence).String())
		attrs.add(attribute.KeyValue{Key: attrEvidence, Value: evidenceValue(a.reading.evidence)})
	}
	if c.sends > 1 {
		attrs.number(semconv.HTTPRequestResendCountKey, int64(c.sends)-1)
	}
	if a.resp != nil {
		attrs.number(semconv.HTTPResponseStatusCodeKey, int64(a.resp.StatusCode))
		attrs.text(semconv.NetworkProtocolVersionKey, protocolVersion(a.resp))
	}
	if kind := c.errorType(a); kind != "" {
		attrs.text(semconv.ErrorTypeKey, kind)
		a.span.SetStatus(codes.Error, a.reason.String())
	}
	attrs.setOn(a.span)
}

// evidenceValues has the values of single pieces of evidence, which is what
// nearly every attempt has, if any.
var evidenceValues = func() (values [][]attribute.Value) {
	for source := range sourceNames {
		var row []attribute.Value
		for layer := range layerNames {
			row = append(row, attribute.StringSliceValue([]string{Evidence{Source: Source(source), Layer: Layer(layer)}.String()}))
		}
		values = append(values, row)
	}
	return values
}()

func evidenceValue(evidence []Evidence) attribute.Value {
	if len(evidence) == 1 && evidence[0].Ignored == IgnoredNot {
		return evidenceValues[evidence[0].Source][evidence[0].Layer]
	}
	texts := make([]string, len(evidence))
	for i, e := range evidence {
		texts[i] = e.String()
	}
	return attribute.StringSliceValue(texts)
}

// startHold begins the span of a hold.
func (t *tracing) startHold(ctx context.Context) span {
	if !t.on() {
		return span{}
	}
	_, s := t.tracer.Start(ctx, "federation.hold")
	return span{s}
}

// endRefresh makes the span of a fetch that the call waited for since start. It
// has a result where the call has waited to the end.
func (t *tracing) endRefresh(c *call, start time.Time, result refreshResult, ended bool) {
	if !t.on() {
		return
	}
	_, s := t.tracer.Start(c, "federation.anchor.refresh", trace.WithTimestamp(start))
	defer s.End()
	version := c.peer.anchors.anchor().Version
	if s.IsRecording() {
		attrs := attributes{attrPeer.String(c.peer.ID)}
		if ended {
			attrs.text(attrResult, result.String())
			attrs.text(attrAnchorVersion, sanitize(version))
		}
		s.SetAttributes(attrs...)
		if ended && result == refreshFailed {
			s.SetStatus(codes.Error, ReasonRefreshFailed.String())
		}
	}
	if ended && result != refreshFailed {
		c.mend().refresh = &refreshSpan{version, s.SpanContext()}
		c.peer.lastRefresh.Store(c.mending.refresh)
	}
}

// method names the span of the request, as the HTTP semantic conventions do.
func method(req *http.Request) string {
	switch req.Method {
	case "":
		return http.MethodGet
	case "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "QUERY":
		return req.Method
	}
	return "HTTP"
}

func methodAttribute(req *http.Request) attribute.KeyValue {
	if name := method(req); name != "HTTP" {
		return semconv.HTTPRequestMethodKey.String(name)
	}
	return semconv.HTTPRequestMethodOther
}

func protocolVersion(resp *http.Response) string {
	switch [2]int{resp.ProtoMajor, resp.ProtoMinor} {
	case [2]int{1, 0}:
		return "1.0"
	case [2]int{1, 1}:
		return "1.1"
	case [2]int{2, 0}:
		return "2"
	case [2]int{3, 0}:
		return "3"
	}
	return ""
}
