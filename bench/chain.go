// Package bench measures fedhttp beside what it replaces. The chains run over a
// stub that answers at once, so that what is measured is the chains themselves.
package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/fedhttp/fedhttp"
)

// Stub answers 200 with an empty body, and allocates what any base does.
type Stub struct{}

// RoundTrip implements http.RoundTripper.
func (Stub) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}, nil
}

// URL is where the chains send to; the peer "org-b" of Fedhttp is there.
const URL = "https://registry.b.example/v1/tasks"

// Telemetry is what a chain reports to.
type Telemetry struct {
	Name   string
	Tracer trace.TracerProvider
	Meter  metric.MeterProvider
}

// Sampling is the column of a table of costs: without a tracer, with the SDK but
// nothing sampled, and with everything sampled. The spans go nowhere.
func Sampling() []Telemetry {
	none := metricnoop.NewMeterProvider()
	sdk := func(s sdktrace.Sampler) trace.TracerProvider {
		return sdktrace.NewTracerProvider(sdktrace.WithSampler(s), sdktrace.WithSpanProcessor(discard{}))
	}
	return []Telemetry{
		{"no tracer", tracenoop.NewTracerProvider(), none},
		{"not sampled", sdk(sdktrace.NeverSample()), none},
		{"sampled", sdk(sdktrace.AlwaysSample()), none},
	}
}

// discard takes spans as a batch processor does, which reads nothing of them
// before they are sent.
type discard struct{}

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discard) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error                  { return nil }
func (discard) ForceFlush(context.Context) error                { return nil }

// Otelhttp is otelhttp alone: one span and the HTTP client metrics.
func Otelhttp(t Telemetry) http.RoundTripper {
	return otelhttp.NewTransport(Stub{}, otelhttp.WithTracerProvider(t.Tracer), otelhttp.WithMeterProvider(t.Meter),
		otelhttp.WithPropagators(propagation.TraceContext{}))
}

// Fedhttp is the whole of fedhttp. With obligations the task goes out under an
// agreed policy and an anchor.
func Fedhttp(t Telemetry, obligations bool) (*fedhttp.Transport, context.Context) {
	cfg := fedhttp.Config{
		Base: Stub{}, TracerProvider: t.Tracer,
		Peers: []fedhttp.Peer{{ID: "org-b", Origins: []string{"https://registry.b.example"}}},
	}
	ctx := context.Background()
	if obligations {
		key := fedhttp.PolicyKey{Peer: "org-b", Capability: "summarize", Epoch: 1}
		cfg.Book = &fedhttp.PolicyBook{}
		if err := cfg.Book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "sha256:1"}); err != nil {
			panic(err)
		}
		cfg.Book.Accept(fedhttp.Policy{PolicyKey: key, Digest: "sha256:1"})
		cfg.Anchors = anchors{}
		ctx = fedhttp.ContextWithTask(ctx, fedhttp.Task{
			ID: "task-7", Capability: "summarize", Scope: "dataset-12", Obligations: fedhttp.Terms{"residency": "eu"},
		})
	}
	tr, err := fedhttp.NewTransport(cfg)
	if err != nil {
		panic(err)
	}
	return tr, ctx
}

type anchors struct{}

func (anchors) FetchAnchor(context.Context, string) (fedhttp.Anchor, error) {
	return fedhttp.Anchor{Version: "7", IssuedAt: time.Now()}, nil
}

var accept = []string{"application/json"}

// Call makes one request, as a program does for each, and sends it.
func Call(ctx context.Context, rt http.RoundTripper, method string) error {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("a body that is in memory")
	}
	req, err := http.NewRequestWithContext(ctx, method, URL, body)
	if err != nil {
		return err
	}
	req.Header["Accept"] = accept
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
