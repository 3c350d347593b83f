package fedhttp

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestTraceShape: which spans a call has, below the caller's, and none of what
// did not happen.
func TestTraceShape(t *testing.T) {
	for name, row := range map[string]struct {
		run  func(*vtRig, context.Context)
		cold bool // the peer's anchor is yet to be fetched
		want string
	}{
		"plain":      {func(r *vtRig, ctx context.Context) { r.get(ctx, Task{}) }, false, "federation request:internal(GET:client)"},
		"capability": {func(r *vtRig, ctx context.Context) { r.get(ctx, Task{Capability: "cap"}) }, false, "federation cap:internal(GET:client)"},
		"first":      {func(r *vtRig, ctx context.Context) { r.get(ctx, Task{}) }, true, "federation request:internal(federation.anchor.refresh:internal GET:client)"},
		"refused":    {func(r *vtRig, ctx context.Context) { r.get(ctx, Task{Obligations: Terms{"a": "b"}}) }, false, "federation request:internal"},
		"odd method": {func(r *vtRig, ctx context.Context) { r.do(r.request(ctx, "PURGE", Task{}, nil)) }, false, "federation request:internal(HTTP:client)"},
		"not held": {func(r *vtRig, ctx context.Context) {
			r.advertise("cap", 1, "d")
			r.accept("cap", 1, "d")
			r.get(ctx, vtTask("t"))
		}, false, "federation cap:internal(GET:client)"},
		"never ready": {func(r *vtRig, ctx context.Context) { r.get(ctx, vtTask("t")) }, false, "federation cap:internal(federation.hold:internal)"},
		"held": {func(r *vtRig, ctx context.Context) {
			r.advertise("cap", 1, "d")
			time.AfterFunc(time.Second, func() { r.accept("cap", 1, "d") })
			r.get(ctx, vtTask("t"))
		}, false, "federation cap:internal(federation.hold:internal GET:client)"},
		"stale": {func(r *vtRig, ctx context.Context) {
			r.peer.On("t", fedtest.Delay(time.Second, fedtest.RouteStale()))
			time.AfterFunc(time.Second/2, func() { r.peer.Rotate() })
			r.get(ctx, Task{ID: "t"})
		}, false, "federation request:internal(GET:client federation.anchor.refresh:internal GET:client)"},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				spans := newSpans()
				r := vtTraceRig(t, spans)
				if !row.cold {
					r.get(t.Context(), Task{})
					time.Sleep(time.Hour)
				}
				spans.recorder.Reset()
				ctx, root := spans.Tracer("app").Start(t.Context(), "app")
				time.Sleep(time.Nanosecond) // it begins before all others
				row.run(r, ctx)
				root.End()
				vtWant(t, "spans", spans.tree(), "(app:internal("+row.want+"))")
				for _, span := range spans.recorder.Ended() {
					vtWant(t, "trace of "+span.Name(), span.SpanContext().TraceID(), root.SpanContext().TraceID())
					if span.Name() != "app" {
						vtWant(t, "instrumentation of "+span.Name(), span.InstrumentationScope().Name, "github.com/fedhttp/fedhttp")
					}
				}
			})
		})
	}
}

// TestTraceAttempts has the attributes of the HTTP semantic conventions, of each
// of two attempts, and the spans in between. Nothing shows what a URL hides.
func TestTraceAttempts(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		spans := newSpans()
		r := vtTraceRig(t, spans)
		r.get(t.Context(), Task{})
		time.Sleep(time.Hour)
		spans.recorder.Reset()
		r.peer.Rotate()
		host, port, _ := strings.Cut(strings.TrimPrefix(r.peer.URL, "http://"), ":")
		req := r.request(t.Context(), http.MethodGet, Task{ID: "t", Capability: "cap"}, nil)
		req.URL.RawQuery, req.URL.Fragment = "token=secret", "secret"
		vtWant(t, "outcome", r.do(req).d.Outcome, OutcomeDelivered)

		attempts := spans.named("GET")
		vtWant(t, "attempts", len(attempts), 2)
		urls := map[string]string{"full": "STRING " + r.peer.URL + "/cap"}
		server := map[string]string{"address": "STRING " + host, "port": "INT64 " + port}
		version := map[string]string{"protocol.version": "STRING 1.1"}
		for i, span := range attempts {
			wantAttrs(t, span.Name(), span, "url.", urls)
			wantAttrs(t, span.Name(), span, "server.", server)
			wantAttrs(t, span.Name(), span, "network.", version)
			http := map[string]string{"request.method": "STRING GET", "response.status_code": "INT64 403"}
			failed := map[string]string{"type": "STRING 403"}
			if i == 1 {
				http["response.status_code"], http["request.resend_count"], failed = "INT64 200", "INT64 1", nil
			}
			wantAttrs(t, span.Name(), span, "http.", http)
			wantAttrs(t, span.Name(), span, "error.", failed)
			vtWant(t, "failed", span.Status().Code == codes.Error, i == 0)
		}
		wantAttrs(t, "first", attempts[0], "federation.", map[string]string{
			"layer": "STRING routing", "verdict": "STRING routing", "delivery": "STRING answered",
			"evidence": `STRINGSLICE ["header=routing","anchor_issued_at=routing"]`,
		})
		refresh := spans.named("federation.anchor.refresh")[0]
		vtWant(t, "links of the first", len(attempts[0].Links()), 0)
		vtWant(t, "links of the resend", vtLinks(attempts[1]), fmt.Sprint(
			"resend_of ", attempts[0].SpanContext().SpanID(), " federation.verdict=routing; ",
			"refreshed_by ", refresh.SpanContext().SpanID(), " federation.anchor.version=2"))
		wantAttrs(t, "refresh", refresh, "federation.", map[string]string{
			"peer.id": "STRING b", "anchor.result": "STRING advanced", "anchor.version": "STRING 2",
		})

		// Userinfo is accepted, or not, and shows nowhere either.
		req = r.request(t.Context(), http.MethodGet, Task{ID: "u"}, nil)
		req.URL.User, req.URL.RawQuery = url.UserPassword("user", "secret"), "token=secret"
		r.do(req)
		vtWant(t, "spans of calls", len(spans.named("federation")), 2)
		for _, span := range spans.recorder.Ended() {
			for key, value := range vtAttrs(span) {
				if strings.Contains(value+span.Status().Description+span.Name(), "secret") {
					t.Errorf("%s: %s is %s", span.Name(), key, value)
				}
			}
		}
	})
}

// vtLinks returns a span's links: the kind, the span, and what else they say.
func vtLinks(span sdktrace.ReadOnlySpan) string {
	var links []string
	for _, link := range span.Links() {
		text := fmt.Sprint(link.Attributes[0].Value.AsString(), " ", link.SpanContext.SpanID())
		for _, kv := range link.Attributes[1:] {
			text += fmt.Sprint(" ", kv.Key, "=", kv.Value.String())
		}
		links = append(links, text)
	}
	return strings.Join(links, "; ")
}

// TestTraceSharedRefresh: a resend after a refresh that another call waited for
// is linked to that one, in the other trace.
func TestTraceSharedRefresh(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		spans := newSpans()
		r := vtTraceRig(t, spans)
		r.get(t.Context(), Task{})
		time.Sleep(time.Hour)
		r.peer.On("slow", fedtest.Delay(30*time.Second, fedtest.RouteStale()))
		slow := make(chan vtResult)
		go func() { slow <- r.get(t.Context(), Task{ID: "slow"}) }()
		time.Sleep(time.Second)
		r.peer.Rotate()
		spans.recorder.Reset()
		r.get(t.Context(), Task{ID: "quick"})
		vtWant(t, "slow", (<-slow).d.Outcome, OutcomeDelivered)
		refreshes := spans.named("federation.anchor.refresh")
		vtWant(t, "refreshes", len(refreshes), 1)
		attempts := spans.named("GET")
		last := attempts[len(attempts)-1]
		links := vtLinks(last)
		if want := fmt.Sprint("refreshed_by ", refreshes[0].SpanContext().SpanID()); !strings.Contains(links, want) {
			t.Errorf("links %q, want %s", links, want)
		}
		if last.SpanContext().TraceID() == refreshes[0].SpanContext().TraceID() {
			t.Error("the refresh is of the same call")
		}
	})
}

// TestTraceOddMethod: a method that the conventions do not know is not a name.
func TestTraceOddMethod(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		spans := newSpans()
		r := vtTraceRig(t, spans)
		r.do(r.request(t.Context(), "PURGE", Task{}, nil))
		wantAttrs(t, "HTTP", spans.named("HTTP")[0], "http.", map[string]string{
			"request.method": "STRING _OTHER", "request.method_original": "STRING PURGE", "response.status_code": "INT64 200",
		})
	})
}

// TestTraceErrorTypes has error.type of attempts without a response.
func TestTraceErrorTypes(t *testing.T) {
	for want, row := range map[string]struct {
		err     error
		timeout time.Duration
	}{
		"attempt_timeout":             {timeout: time.Hour},
		"deadline_exceeded":           {timeout: time.Second},
		"canceled":                    {timeout: -1},
		"eof":                         {},
		"*errors.errorString":         {err: errors.New("odd")},
		"*net.OpError":                {err: &url.Error{Op: "Get", URL: "https://b.example", Err: &net.OpError{Op: "read", Err: errors.New("reset")}}},
		"*x509.UnknownAuthorityError": {err: fmt.Errorf("wrapped: %w", &x509.UnknownAuthorityError{})},
		"*net.DNSError":               {err: &joined{&net.DNSError{}, errors.New("and stopped")}},
	} {
		t.Run(want, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				spans := newSpans()
				r := vtTraceRig(t, spans, func(cfg *Config, p *Peer) {
					p.Retry.MaxAttempts = 1
					cfg.Anchors = nil
					cfg.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
						switch {
						case row.timeout != 0:
							<-req.Context().Done()
							return nil, req.Context().Err()
						case row.err != nil:
							return nil, row.err
						}
						return nil, io.EOF
					})
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				switch {
				case row.timeout > 0:
					ctx, cancel = context.WithTimeout(ctx, row.timeout)
					defer cancel()
				case row.timeout < 0:
					time.AfterFunc(time.Second, cancel)
				}
				r.get(ctx, Task{ID: "t"})
				wantAttrs(t, "GET", spans.named("GET")[0], "error.", map[string]string{"type": "STRING " + want})
			})
		})
	}
}

// TestTraceUnrecorded: of a span that nobody records nothing is computed.
func TestTraceUnrecorded(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		spans := newSpans(sdktrace.WithSampler(sdktrace.NeverSample()))
		r := vtTraceRig(t, spans)
		r.get(t.Context(), Task{})
		r.peer.On("t", vtDrop())
		vtWant(t, "outcome", r.get(t.Context(), Task{ID: "t"}).d.Outcome, OutcomeDelivered)
		r.get(t.Context(), vtTask("held"))
		vtWant(t, "spans whose attributes or status were set", len(spans.sets), 0)
		log := r.peer.Routing.Log()
		if got := log[len(log)-1].Header.Get("Traceparent"); !strings.HasSuffix(got, "-00") {
			t.Errorf("traceparent %q does not say that it is not sampled", got)
		}
	})
}

// TestTraceHostile: what a peer and a task say is bounded and escaped.
func TestTraceHostile(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		spans := newSpans()
		hostile := "\x1b[31mred\r\nlevel=INFO \"ok\" \xff\u202e" + strings.Repeat("x", 10_000)
		r := vtTraceRig(t, spans, func(cfg *Config, _ *Peer) {
			cfg.Anchors, cfg.Base = nil, roundTripFunc(func(req *http.Request) (*http.Response, error) {
				return vtAnswer(req, 403, fedtest.HeaderCorrelationID, hostile, fedtest.HeaderPolicyReason, hostile, fedtest.HeaderPolicyEvaluated, "true"), nil
			})
		})
		ctx := ContextWithTask(t.Context(), Task{ID: hostile, Capability: hostile, Scope: hostile})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.peer.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		vtWant(t, "outcome", r.do(req).d.Outcome, OutcomeRejected)
		call := spans.named("federation")[0]
		for _, key := range []string{"correlation_id", "policy.reason", "task.id", "capability.id", "scope"} {
			value := vtAttrs(call)["federation."+key]
			if !strings.HasPrefix(value, `STRING \x1b[31mred\r\nlevel=INFO `) || len(value) > 1100 {
				t.Errorf("%s is %.80q, of %d bytes", key, value, len(value))
			}
		}
		for _, text := range append([]string{call.Name()}, fmt.Sprint(vtAttrs(call))) {
			if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
				t.Errorf("%q has characters that are not escaped", text)
			}
		}
	})
}

// TestTracePropagation asks the server what crossed the boundary.
func TestTracePropagation(t *testing.T) {
	for _, traced := range []bool{true, false} {
		for mode, want := range map[Propagation]string{TraceContextOnly: "traceparent tracestate", PropagateNone: ""} {
			t.Run(fmt.Sprint(mode, ", traced ", traced), func(t *testing.T) {
				vtBubble(t, func(t *testing.T) { testPropagation(t, mode, traced, want) })
			})
		}
	}
}

func testPropagation(t *testing.T, mode Propagation, traced bool, want string) {
	spans := newSpans()
	r := vtTraceRig(t, spans, func(cfg *Config, p *Peer) {
		p.Propagation = mode
		if !traced {
			cfg.TracerProvider = noop.NewTracerProvider()
		}
	})
	state, err := trace.ParseTraceState("vendor=value")
	member, err2 := baggage.NewMember("user", "alice")
	bag, err3 := baggage.New(member)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	parent := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled, TraceState: state,
	})
	ctx := baggage.ContextWithBaggage(trace.ContextWithSpanContext(t.Context(), parent), bag)
	req := r.request(ctx, http.MethodGet, Task{ID: "t"}, nil)
	for name, value := range map[string]string{"Baggage": "user=alice", "Tracestate": "old=1", "Traceparent": "00-ab000000000000000000000000000000-cd00000000000000-01"} {
		req.Header.Set(name, value)
	}
	r.do(req)
	h := r.peer.Routing.Log()[0].Header
	var got []string
	for _, name := range []string{"traceparent", "tracestate", "baggage"} {
		if h.Get(name) != "" {
			got = append(got, name)
		}
	}
	vtWant(t, "what crossed", strings.Join(got, " "), want)
	if want == "" {
		return
	}
	span := parent.SpanID()
	if traced {
		span = spans.named("GET")[0].SpanContext().SpanID()
	}
	vtWant(t, "traceparent", h.Get("Traceparent"), fmt.Sprintf("00-%s-%s-01", parent.TraceID(), span))
	vtWant(t, "tracestate", h.Get("Tracestate"), "vendor=value")
}

// TestTraceGlobals runs in a process of its own, as it sets what is global: a
// provider that is set after NewTransport takes effect, and PropagateAll uses
// the global propagator.
func TestTraceGlobals(t *testing.T) {
	const variable = "FEDHTTP_TEST_GLOBALS"
	if os.Getenv(variable) == "" {
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTraceGlobals$", "-test.count=1")
		cmd.Env = append(os.Environ(), variable+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	vtBubble(t, func(t *testing.T) {
		spans := newSpans()
		r := vtTraceRig(t, spans, func(cfg *Config, p *Peer) { cfg.TracerProvider, p.Propagation = nil, PropagateAll })
		r.get(t.Context(), Task{ID: "before"})
		vtWant(t, "spans before", len(spans.recorder.Started()), 0)
		otel.SetTracerProvider(spans)
		otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
		member, err := baggage.NewMember("user", "alice")
		if err != nil {
			t.Fatal(err)
		}
		bag, err := baggage.New(member)
		if err != nil {
			t.Fatal(err)
		}
		r.get(baggage.ContextWithBaggage(t.Context(), bag), Task{ID: "after"})
		vtWant(t, "spans after", spans.tree(), "(federation request:internal(GET:client))")
		h := r.peer.Routing.Log()[1].Header
		vtWant(t, "baggage", h.Get("Baggage"), "user=alice")
		if !strings.Contains(h.Get("Traceparent"), spans.named("GET")[0].SpanContext().SpanID().String()) {
			t.Errorf("traceparent: %q", h.Get("Traceparent"))
		}

		// The fields of the program's own propagator stay on this side.
		otel.SetTextMapPropagator(oddPropagator{})
		r = vtTraceRig(t, spans)
		req := r.request(t.Context(), http.MethodGet, Task{ID: "odd"}, nil)
		req.Header["x-odd-trace"], req.Header["X-Odd"] = []string{"1"}, []string{"1"}
		r.do(req)
		h = r.peer.Routing.Log()[0].Header
		vtWant(t, "the propagator's own field", h.Get("X-Odd-Trace"), "")
		vtWant(t, "another field", h.Get("X-Odd"), "1")
	})
}

type oddPropagator struct{ propagation.TraceContext }

func (oddPropagator) Fields() []string { return []string{"x-odd-trace"} }
