package fedhttp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"

	"github.com/fedhttp/fedhttp/fedtest"
)

// vtSpans records spans, and counts how often attributes and the status of each
// are set.
type vtSpans struct {
	embedded.TracerProvider
	inner    trace.TracerProvider
	recorder *tracetest.SpanRecorder

	mu   sync.Mutex
	sets map[trace.SpanID]int
}

func newSpans(options ...sdktrace.TracerProviderOption) *vtSpans {
	recorder := tracetest.NewSpanRecorder()
	options = append(options, sdktrace.WithSpanProcessor(recorder))
	return &vtSpans{
		inner: sdktrace.NewTracerProvider(options...), recorder: recorder, sets: map[trace.SpanID]int{},
	}
}

func (s *vtSpans) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return vtTracer{inner: s.inner.Tracer(name, options...), spans: s}
}

type vtTracer struct {
	embedded.Tracer
	inner trace.Tracer
	spans *vtSpans
}

func (t vtTracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx, inner := t.inner.Start(ctx, name, options...)
	counted := vtSpan{inner, t.spans}
	return trace.ContextWithSpan(ctx, counted), counted
}

type vtSpan struct {
	trace.Span
	spans *vtSpans
}

func (s vtSpan) SetAttributes(attrs ...attribute.KeyValue) {
	s.spans.mu.Lock()
	s.spans.sets[s.SpanContext().SpanID()]++
	s.spans.mu.Unlock()
	s.Span.SetAttributes(attrs...)
}

func (s vtSpan) SetStatus(code codes.Code, description string) {
	if !s.IsRecording() {
		s.SetAttributes() // counted as work that comes to nothing
	}
	s.Span.SetStatus(code, description)
}

// vtTraceRig traces into spans.
func vtTraceRig(t *testing.T, spans *vtSpans, more ...func(*Config, *Peer)) *vtRig {
	t.Helper()
	var r *vtRig
	r = newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
		cfg.TracerProvider, p.Receipt = spans, IgnoreReceipt
		cfg.Anchors = anchorFunc(func(ctx context.Context, peer string) (Anchor, error) { return r.source(ctx, peer) })
		for _, change := range more {
			change(cfg, p)
		}
	})
	return r
}

// tree returns the names of the spans that have ended, with their kinds, each
// below its parent, in the order in which they began.
func (s *vtSpans) tree() string {
	all := slices.Clone(s.recorder.Ended())
	slices.SortStableFunc(all, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	var render func(parent trace.SpanID) string
	render = func(parent trace.SpanID) string {
		var children []string
		for _, span := range all {
			if span.Parent().SpanID() == parent {
				children = append(children, fmt.Sprintf("%s:%s%s", span.Name(), span.SpanKind(), render(span.SpanContext().SpanID())))
			}
		}
		if children == nil {
			return ""
		}
		return "(" + strings.Join(children, " ") + ")"
	}
	return render(trace.SpanID{})
}

// attrs returns a span's attributes in the form "type value".
func vtAttrs(span sdktrace.ReadOnlySpan) map[string]string {
	attrs := map[string]string{}
	for _, kv := range span.Attributes() {
		attrs[string(kv.Key)] = kv.Value.Type().String() + " " + kv.Value.String()
	}
	return attrs
}

// named returns the spans of that name, in the order in which they ended.
func (s *vtSpans) named(name string) (found []sdktrace.ReadOnlySpan) {
	for _, span := range s.recorder.Ended() {
		if span.Name() == name || strings.HasPrefix(span.Name(), name+" ") {
			found = append(found, span)
		}
	}
	return found
}

// wantAttrs checks all attributes that begin with prefix: those that are wanted
// and no others. "*" stands for any value.
func wantAttrs(t *testing.T, what string, span sdktrace.ReadOnlySpan, prefix string, want map[string]string) {
	t.Helper()
	got := vtAttrs(span)
	for key, value := range want {
		switch have, ok := got[prefix+key]; {
		case !ok:
			t.Errorf("%s: %s%s is missing, want %s", what, prefix, key, value)
		case have != value && value != "*":
			t.Errorf("%s: %s%s is %s, want %s", what, prefix, key, have, value)
		}
	}
	for key, value := range got {
		if short, ok := strings.CutPrefix(key, prefix); ok {
			if _, ok := want[short]; !ok {
				t.Errorf("%s: %s is %s, want none", what, key, value)
			}
		}
	}
}

// TestTraceOutcomes has each outcome with the whole of its span's federation.*
// attributes, and those of its last attempt.
func TestTraceOutcomes(t *testing.T) {
	accepted := func(r *vtRig) { r.advertise("cap", 3, "d3"); r.accept("cap", 3, "d3") }
	task := Task{ID: "t", Capability: "cap", Scope: "s", Obligations: Terms{"residency": "eu"}}
	// What every row has; a row can take it back with "".
	common := map[string]string{
		"peer.id": "STRING b", "capability.id": "STRING cap", "task.id": "STRING t", "scope": "STRING s",
		"attempts":      "INT64 1",
		"policy.digest": "STRING d3", "policy.basis": "STRING accepted", "negotiation.epoch": "INT64 3",
		"anchor.version": "STRING 1",
	}
	unsent := map[string]string{"attempts": "INT64 0", "anchor.version": ""}
	attempt := func(layer, verdict, evidence, delivery string) map[string]string {
		return map[string]string{
			"layer": "STRING " + layer, "verdict": "STRING " + verdict, "evidence": "STRINGSLICE " + evidence, "delivery": "STRING " + delivery,
		}
	}
	for name, row := range map[string]struct {
		know    func(*vtRig)
		steps   []fedtest.Step
		task    Task
		want    []map[string]string
		attempt map[string]string // nil: nothing was sent
	}{
		"delivered": {
			know: accepted, task: task,
			want:    []map[string]string{{"outcome": "STRING delivered", "correlation_id": "*"}},
			attempt: attempt("policy", "none", `["header=policy"]`, "answered"),
		},
		"delivered without a policy": {
			task: Task{ID: "t"},
			want: []map[string]string{{
				"outcome": "STRING delivered", "capability.id": "", "scope": "", "correlation_id": "*",
				"policy.digest": "", "negotiation.epoch": "", "policy.basis": "",
			}},
			attempt: attempt("policy", "none", `["header=policy"]`, "answered"),
		},
		"rejected": {
			know: accepted, task: task, steps: []fedtest.Step{fedtest.Deny("NARROWED")},
			want: []map[string]string{{
				"outcome": "STRING rejected", "reason": "STRING denied", "policy.reason": "STRING NARROWED", "correlation_id": "*",
			}},
			attempt: attempt("policy", "rejection", `["header=policy"]`, "answered"),
		},
		"ambiguous": {
			know: accepted, task: task, steps: []fedtest.Step{fedtest.Raw(403, http.Header{"X-Correlation-Id": {"c-1"}}, "")},
			want: []map[string]string{{
				"outcome": "STRING ambiguous", "reason": "STRING no_signal", "correlation_id": "STRING c-1", "escalated": "BOOL true",
			}},
			attempt: attempt("unknown", "ambiguous", `[]`, "answered"),
		},
		"contradiction": {
			know: accepted, task: task,
			steps: []fedtest.Step{fedtest.Raw(403, http.Header{fedtest.HeaderPolicyEvaluated: {"true", "false"}}, "")},
			want: []map[string]string{{
				"outcome": "STRING ambiguous", "reason": "STRING contradictory_signals", "escalated": "BOOL true",
			}},
			attempt: attempt("unknown", "ambiguous", `["header=contradiction"]`, "answered"),
		},
		"degraded": {
			know: func(r *vtRig) { accepted(r); r.tr.SetDegraded("b", true) }, task: task, steps: []fedtest.Step{vtDrop()},
			want: []map[string]string{{
				"outcome": "STRING ambiguous", "reason": "STRING peer_degraded", "escalated": "BOOL true", "peer.degraded": "BOOL true",
			}},
			attempt: attempt("routing", "ambiguous", `["header=routing"]`, "answered"),
		},
		"routing failed": {
			know: accepted, task: task, steps: []fedtest.Step{vtDrop("60")},
			want: []map[string]string{{
				"outcome": "STRING routing_failed", "reason": "STRING retry_after_too_long", "escalated": "BOOL true",
			}},
			attempt: attempt("routing", "routing", `["header=routing"]`, "answered"),
		},
		"not delivered": {
			know: func(r *vtRig) { accepted(r); r.peer.RefuseConnections(10) }, task: task,
			want: []map[string]string{{
				"outcome": "STRING routing_failed", "reason": "STRING attempts_exhausted", "escalated": "BOOL true",
				"attempts": "INT64 3", "refreshes": "INT64 2",
			}},
			attempt: attempt("routing", "routing", `["delivery=routing"]`, "not_delivered"),
		},
		"no answer": {
			know: accepted, task: task, steps: []fedtest.Step{fedtest.CloseConnection()},
			want: []map[string]string{{
				"outcome": "STRING ambiguous", "reason": "STRING no_signal", "escalated": "BOOL true",
			}},
			attempt: attempt("unknown", "ambiguous", `[]`, "possible"),
		},
		"stale anchor": {
			know: func(r *vtRig) { accepted(r); r.peer.Rotate() }, task: task,
			want: []map[string]string{{
				"outcome": "STRING delivered", "attempts": "INT64 2", "refreshes": "INT64 1", "anchor.version": "STRING 2", "correlation_id": "*",
			}},
			attempt: attempt("policy", "none", `["header=policy"]`, "answered"),
		},
		"unresolved": {
			know: func(r *vtRig) { r.advertise("cap", 3, "d3") }, task: task,
			want: []map[string]string{unsent, {
				"outcome": "STRING policy_unresolved", "reason": "STRING hold_timeout", "policy.basis": "", "held_ms": "INT64 60000",
			}},
		},
		"not advertised": {
			task: task,
			want: []map[string]string{unsent, {
				"outcome": "STRING policy_unresolved", "reason": "STRING hold_timeout", "held_ms": "INT64 60000",
				"policy.basis": "", "policy.digest": "", "negotiation.epoch": "",
			}},
		},
		"scope denied": {
			know: func(r *vtRig) {
				accepted(r)
				err := r.tr.ledger.Record(r.t.Context(), Denial{
					Peer: "b", Capability: "cap", Scope: "s", Epoch: 3, Digest: "d3",
					PolicyReason: "BEFORE", CorrelationID: "pe-9", Until: time.Now().Add(time.Hour),
				})
				if err != nil {
					r.t.Error(err)
				}
			}, task: task,
			want: []map[string]string{unsent, {
				"outcome": "STRING scope_denied", "reason": "STRING denied_before", "policy.reason": "STRING BEFORE", "correlation_id": "STRING pe-9",
			}},
		},
		"task required": {
			task: Task{ID: "t", Obligations: Terms{"a": "b"}},
			want: []map[string]string{unsent, {
				"outcome": "STRING task_required", "reason": "STRING no_capability", "capability.id": "", "scope": "",
				"policy.basis": "", "policy.digest": "", "negotiation.epoch": "",
			}},
		},
		"unknown peer": {
			know: func(r *vtRig) { r.peer.URL = "http://127.0.0.1:1" }, task: task,
			want: []map[string]string{unsent, {
				"outcome": "STRING unknown_peer", "reason": "STRING unlisted_origin", "peer.id": "",
				"policy.basis": "", "policy.digest": "", "negotiation.epoch": "",
			}},
		},
		"closed": {
			know: func(r *vtRig) { r.tr.Close() }, task: task,
			want: []map[string]string{unsent, {
				"outcome": "STRING canceled", "reason": "STRING closed",
				"policy.basis": "", "policy.digest": "", "negotiation.epoch": "",
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				spans := newSpans()
				r := vtTraceRig(t, spans, func(_ *Config, p *Peer) { p.Hold.MaxWait = time.Minute })
				r.get(t.Context(), Task{ID: "warm-up"})
				time.Sleep(time.Hour)
				spans.recorder.Reset()
				if row.know != nil {
					row.know(r)
				}
				r.peer.On("t", row.steps...)
				res := r.get(t.Context(), row.task)
				want := map[string]string{}
				for _, part := range append([]map[string]string{common}, row.want...) {
					for key, value := range part {
						if want[key] = value; value == "" {
							delete(want, key)
						}
					}
				}
				calls := spans.named("federation")
				vtWant(t, "spans of the call", len(calls), 1)
				call := calls[0]
				wantAttrs(t, "call", call, "federation.", want)
				if res.d.Outcome == OutcomeDelivered {
					vtWant(t, "status", call.Status().Code, codes.Unset)
					wantAttrs(t, "call", call, "error.", nil)
				} else {
					vtWant(t, "status", call.Status().Code, codes.Error)
					wantAttrs(t, "call", call, "error.", map[string]string{"type": want["outcome"]})
				}
				attempts := spans.named("GET")
				vtWant(t, "spans of attempts", len(attempts), res.d.Attempts)
				if row.attempt != nil {
					wantAttrs(t, "attempt", attempts[len(attempts)-1], "federation.", row.attempt)
				}
				for _, span := range spans.recorder.Ended() {
					vtWant(t, "events of "+span.Name(), len(span.Events()), 0)
					if spans.sets[span.SpanContext().SpanID()] > 1 {
						t.Errorf("the attributes of %q were set in %d calls", span.Name(), spans.sets[span.SpanContext().SpanID()])
					}
				}
				vtWant(t, "spans begun and not ended", len(spans.recorder.Started()), len(spans.recorder.Ended()))
			})
		})
	}
}
