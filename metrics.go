package fedhttp

import (
	"context"
	"reflect"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/httpconv"
)

// The attributes of metrics beside those that spans have as well.
const (
	attrResend         = attribute.Key("federation.resend")
	attrEscalationKind = attribute.Key("federation.escalation.kind")
	attrBreakerState   = attribute.Key("federation.breaker.state")
)

// metrics are the instruments of a Transport. Their attributes are closed sets:
// what a peer or a task names is never one of them.
type metrics struct {
	live        bool         // somebody may read them
	placeholder reflect.Type // as in tracing

	decisions, attempts, refreshes, denials, escalations metric.Int64Counter
	holdDuration, requestDuration                        metric.Float64Histogram

	unknown  labels // of requests to no peer
	observed metric.Registration
}

// newMetrics makes the instruments. peers are those that are observed.
func newMetrics(provider metric.MeterProvider, peers func() []*peer) *metrics {
	m := &metrics{}
	if provider == nil {
		provider = otel.GetMeterProvider()
		m.placeholder = placeholderOf(provider)
	}
	if _, none := provider.(noop.MeterProvider); none {
		return m
	}
	m.live = true
	meter := provider.Meter(instrumentation, metric.WithSchemaURL(semconv.SchemaURL))
	counter := func(name, unit, description string) metric.Int64Counter {
		return made(meter.Int64Counter("federation.client."+name, metric.WithUnit(unit), metric.WithDescription(description)))
	}
	m.decisions = counter("decisions", "{decision}", "Calls that ended, by how and why.")
	m.attempts = counter("attempts", "{attempt}", "Requests that were sent, by what their evidence adds up to.")
	m.refreshes = counter("anchor.refreshes", "{refresh}", "Fetches of trust anchors that ended.")
	m.denials = counter("denials", "{denial}", "Rejections by a peer's policy engine.")
	m.escalations = counter("escalations", "{escalation}", "Failures that an operator was told of.")
	m.holdDuration = made(meter.Float64Histogram("federation.client.hold.duration", metric.WithUnit("s"),
		metric.WithDescription("How long tasks were held for their policy; the reason is why one was not released."),
		metric.WithExplicitBucketBoundaries(0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600, 1200, 3600)))
	m.requestDuration = made(httpconv.NewClientRequestDuration(meter,
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10))).Inst()
	m.observe(meter, peers)
	return m
}

// made hands a failure to OpenTelemetry; the instrument is one that does nothing then.
func made[I any](instrument I, err error) I {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

// observe has the state of the peers read whenever metrics are collected.
func (m *metrics) observe(meter metric.Meter, peers func() []*peer) {
	held := made(meter.Int64ObservableUpDownCounter("federation.client.held", metric.WithUnit("{task}"),
		metric.WithDescription("Tasks that wait, unsent, for their policy.")))
	gauge := func(name, description string) metric.Float64ObservableGauge {
		return made(meter.Float64ObservableGauge("federation.client."+name, metric.WithUnit("s"), metric.WithDescription(description)))
	}
	oldest := gauge("hold.oldest", "How long the task has waited that has waited longest.")
	age := gauge("anchor.age", "Time since the trust anchor at hand was fetched or confirmed.")
	remaining := gauge("anchor.remaining", "Time until the trust anchor at hand expires, where that is known.")
	due := gauge("anchor.due", "Time until the trust anchor should be fetched anew; negative: it is overdue.")
	left := made(meter.Int64ObservableGauge("federation.client.denial.budget.remaining", metric.WithUnit("{denial}"),
		metric.WithDescription("Denials until tasks are refused, where a budget is set.")))
	state := made(meter.Int64ObservableGauge("federation.client.breaker.state", metric.WithUnit("{breaker}"),
		metric.WithDescription("1 for the state that the peer's breaker is in, 0 for the others.")))
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		now := time.Now()
		for _, p := range peers() {
			id := attrPeer.String(p.ID)
			of := metric.WithAttributeSet(attribute.NewSet(id))
			o.ObserveInt64(held, int64(p.held.count()), of)
			o.ObserveFloat64(oldest, p.held.oldest(now).Seconds(), of)
			if a := p.anchors.current.Load(); a != nil {
				o.ObserveFloat64(age, now.Sub(a.fetchedAt).Seconds(), of)
				if !a.ExpiresAt.IsZero() {
					o.ObserveFloat64(remaining, a.ExpiresAt.Sub(now).Seconds(), of)
				}
			}
			if at, _ := p.anchors.planned(); !at.IsZero() {
				o.ObserveFloat64(due, at.Sub(now).Seconds(), of)
			}
			if n := p.denials.left(now, p.Denial); n >= 0 {
				o.ObserveInt64(left, int64(n), of)
			}
			if is := p.breaker.Load().String(); is != breakerOff {
				for _, s := range breakerStates {
					o.ObserveInt64(state, oneIf(s == is), metric.WithAttributeSet(attribute.NewSet(id, attrBreakerState.String(s))))
				}
			}
		}
		return nil
	}, held, oldest, age, remaining, due, left, state)
	if err != nil {
		otel.Handle(err)
	}
	m.observed = registration
}

func oneIf(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// close ends the observation: a closed Transport has no state to show.
func (m *metrics) close() {
	if m.observed != nil {
		if err := m.observed.Unregister(); err != nil {
			otel.Handle(err)
		}
	}
}

func (m *metrics) on() bool {
	return m.live && (m.placeholder == nil || reflect.TypeOf(otel.GetMeterProvider()) != m.placeholder)
}

// labels keeps the options that carry one peer's sets of attributes. The peer
// chooses its statuses, so there may be many sets.
type labels struct {
	counts   seen[countKey, *option]
	requests seen[requestKey, *option]
}

// countKey is what a set of a counter is made of, beside the peer: of decisions, or of
// attempts.
type countKey struct {
	outcome Outcome
	reason  Reason

	attempt bool
	verdict Verdict
	resend  bool
}

// requestKey is what a set of the requests' duration is made of.
type requestKey struct {
	to                    origin
	method, version, kind string
	status                int
}

// option is one set of attributes, in the forms in which it is asked for.
type option struct {
	add    [1]metric.AddOption
	record [1]metric.RecordOption
}

func newOption(attrs ...attribute.KeyValue) *option {
	with := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return &option{[1]metric.AddOption{with}, [1]metric.RecordOption{with}}
}

// decision counts a call that has ended.
func (m *metrics) decision(c *call) {
	if !m.on() {
		return
	}
	l, peer := &m.unknown, ""
	if c.peer != nil {
		l, peer = &c.peer.labels, c.peer.ID
	}
	m.decisions.Add(c, 1, l.counts.of(countKey{outcome: c.outcome, reason: c.reason}, func() *option {
		var attrs attributes
		attrs.text(attrPeer, peer)
		attrs.text(attrOutcome, c.outcome.String())
		attrs.text(attrReason, c.reason.String())
		return newOption(attrs...)
	}).add[:]...)
}

// attempt counts an attempt, while metrics are on, and the time that it took to its response's header.
func (m *metrics) attempt(ctx context.Context, c *call, a *attempt, took time.Duration) {
	resend := c.sends > 1
	m.attempts.Add(ctx, 1, c.peer.labels.counts.of(countKey{attempt: true, verdict: a.verdict, resend: resend}, func() *option {
		return newOption(attrPeer.String(c.peer.ID), attrVerdict.String(a.verdict.String()), attrResend.Bool(resend))
	}).add[:]...)

	key := requestKey{to: c.origin, method: method(c.in), kind: c.errorType(a)}
	if a.resp != nil {
		key.status, key.version = a.resp.StatusCode, protocolVersion(a.resp)
	}
	m.requestDuration.Record(ctx, took.Seconds(), c.peer.labels.requests.of(key, func() *option {
		attrs := attributes{methodAttribute(c.in), semconv.ServerAddress(c.host), semconv.ServerPort(c.portNumber)}
		if key.status != 0 {
			attrs.add(semconv.HTTPResponseStatusCode(key.status))
		}
		attrs.text(semconv.NetworkProtocolVersionKey, key.version)
		attrs.text(semconv.ErrorTypeKey, key.kind)
		return newOption(attrs...)
	}).record[:]...)
}

// hold records how long a task was held. reason is why it was not released.
func (m *metrics) hold(ctx context.Context, p *peer, took time.Duration, reason Reason) {
	if !m.on() {
		return
	}
	var attrs attributes
	attrs.text(attrPeer, p.ID)
	attrs.text(attrReason, reason.String())
	m.holdDuration.Record(ctx, took.Seconds(), metric.WithAttributes(attrs...))
}

func (m *metrics) refresh(ctx context.Context, peer string, result refreshResult) {
	if m.on() {
		m.refreshes.Add(ctx, 1, metric.WithAttributes(attrPeer.String(peer), attrResult.String(result.String())))
	}
}

func (m *metrics) denial(ctx context.Context, peer string) {
	if m.on() {
		m.denials.Add(ctx, 1, metric.WithAttributes(attrPeer.String(peer)))
	}
}

func (m *metrics) escalation(ctx context.Context, e *Escalation) {
	if m.on() {
		m.escalations.Add(ctx, 1, metric.WithAttributes(attrPeer.String(e.Decision.Peer), attrEscalationKind.String(e.Kind.String())))
	}
}
