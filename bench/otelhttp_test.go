package bench

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/fedhttp/fedhttp"
)

// b3 writes a field of Zipkin's beside the W3C ones.
type b3 struct{ propagation.TraceContext }

func (b3) Inject(ctx context.Context, carrier propagation.TextMapCarrier) {
	carrier.Set("X-B3-TraceId", trace.SpanContextFromContext(ctx).TraceID().String())
}

// TestAroundTheClient: the span of an otelhttp.Transport around fedhttp is the
// parent of the call's, whose attempt is what the server sees; of what otelhttp's
// propagators add only the trace context crosses.
func TestAroundTheClient(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header
		_, _ = io.WriteString(w, "answer")
	}))
	defer server.Close()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	tr, err := fedhttp.NewTransport(fedhttp.Config{
		TracerProvider: provider,
		Peers:          []fedhttp.Peer{{ID: "org-b", Origins: []string{server.URL}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	client := &http.Client{Transport: otelhttp.NewTransport(tr, otelhttp.WithTracerProvider(provider),
		otelhttp.WithPropagators(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}, b3{})))}

	member, err := baggage.NewMember("user", "alice")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(baggage.ContextWithBaggage(t.Context(), bag), http.MethodGet, server.URL+"/v1/tasks", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if ended := recorder.Ended(); len(ended) != 1 || ended[0].Name() != "federation request" {
		t.Errorf("ended before the body was read: %v, want the call's span only", ended)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()

	h := <-seen
	for _, name := range []string{"Baggage", "X-B3-Traceid"} {
		if h.Get(name) != "" {
			t.Errorf("%s crossed: %q", name, h.Get(name))
		}
	}
	spans := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range recorder.Ended() {
		spans[s.Name()] = s
	}
	outer, call, attempt := spans["HTTP GET"], spans["federation request"], spans["GET"]
	if outer == nil || call == nil || attempt == nil {
		t.Fatalf("spans: %v", spans)
	}
	if call.Parent().SpanID() != outer.SpanContext().SpanID() || attempt.Parent().SpanID() != call.SpanContext().SpanID() {
		t.Errorf("the attempt is below %v, the call below %v", attempt.Parent().SpanID(), call.Parent().SpanID())
	}
	if parent := h.Get("Traceparent"); !strings.Contains(parent, attempt.SpanContext().SpanID().String()) {
		t.Errorf("traceparent %q does not name the attempt %v", parent, attempt.SpanContext().SpanID())
	}
}
