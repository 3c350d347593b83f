package fedhttp

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestPropagationFields asks the server which fields crossed that a propagator of
// the caller's may have put into the request, in whatever spelling.
func TestPropagationFields(t *testing.T) {
	parent := "00-ab000000000000000000000000000000-cd00000000000000-01"
	never := []string{
		"Baggage", "B3", "X-B3-Traceid", "X-B3-Sampled", "Uber-Trace-Id", "Uberctx-User", "Jaeger-Baggage", "Ot-Tracer-Spanid", "Ot-Baggage-User",
		"X-Amzn-Trace-Id", "X-Cloud-Trace-Context", "Grpc-Trace-Bin", "X-Datadog-Trace-Id", "Sentry-Trace",
	}
	ordinary := []string{"Accept", "X-Request-Id", "X-B3", "Baggages", "Authorization", "Trace", "X-Datadog"}
	for mode, traceContext := range map[Propagation][]string{
		TraceContextOnly: {"Traceparent", "Tracestate"}, PropagateNone: nil, PropagateAll: append([]string{"Traceparent", "Tracestate"}, never...),
	} {
		for _, spelling := range []func(string) string{func(s string) string { return s }, strings.ToLower, strings.ToUpper} {
			t.Run(fmt.Sprint(mode, " ", spelling("Spelled")), func(t *testing.T) {
				vtBubble(t, func(t *testing.T) {
					r := newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
						cfg.TracerProvider, p.Propagation = noop.NewTracerProvider(), mode
					})
					req := r.request(t.Context(), http.MethodGet, Task{ID: "t"}, nil)
					req.Header[spelling("Traceparent")] = []string{parent}
					req.Header[spelling("Tracestate")] = []string{"a=b"}
					for _, name := range slices.Concat(never, ordinary) {
						req.Header[spelling(name)] = []string{"value"}
					}
					before := maps.Clone(req.Header)
					vtWant(t, "outcome", r.do(req).d.Outcome, OutcomeDelivered)
					vtWant(t, "fields of the caller's request", len(req.Header), len(before))
					h := r.peer.Routing.Log()[0].Header
					for _, name := range slices.Concat(never, ordinary, []string{"Traceparent", "Tracestate"}) {
						crossed := len(h.Values(name)) > 0
						if want := slices.Contains(ordinary, name) || slices.Contains(traceContext, name); crossed != want {
							t.Errorf("%s crossed: %v, want %v", name, crossed, want)
						}
					}
				})
			})
		}
	}
}

// TestPropagationState: a tracestate that the caller's request has does not go
// with a traceparent that is not its own.
func TestPropagationState(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtTraceRig(t, newSpans())
		req := r.request(t.Context(), http.MethodGet, Task{ID: "t"}, nil)
		req.Header.Set("Tracestate", "old=1")
		r.do(req)
		h := r.peer.Routing.Log()[0].Header
		if got := h.Values("Tracestate"); len(got) > 0 {
			t.Errorf("tracestate %q beside the traceparent %q", got, h.Get("Traceparent"))
		}
	})
}

// TestBaseHasNoBaggage: an instrumented base sends the baggage that it finds.
func TestBaseHasNoBaggage(t *testing.T) {
	for p, want := range map[Propagation]int{TraceContextOnly: 0, PropagateNone: 0, PropagateAll: 1} {
		t.Run(p.String(), func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := newRig(t, fedtest.Config{}, func(cfg *Config, peer *Peer) {
					peer.Propagation = p
					cfg.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
						vtWant(t, p.String(), baggage.FromContext(req.Context()).Len(), want)
						return nil, errors.New("seen")
					})
				})
				member, err := baggage.NewMember("user", "alice")
				if err != nil {
					t.Fatal(err)
				}
				bag, err := baggage.New(member)
				if err != nil {
					t.Fatal(err)
				}
				r.get(baggage.ContextWithBaggage(t.Context(), bag), Task{ID: "t"})
			})
		})
	}
}

// TestConfigPropagator: the fields of the program's own propagator do not cross.
func TestConfigPropagator(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := newRig(t, fedtest.Config{}, func(cfg *Config, _ *Peer) { cfg.Propagator = oddPropagator{} })
		req := r.request(t.Context(), http.MethodGet, Task{ID: "t"}, nil)
		req.Header["x-odd-trace"] = []string{"1"}
		r.do(req)
		vtWant(t, "crossed", r.peer.Routing.Log()[0].Header.Get("X-Odd-Trace"), "")
	})
}
