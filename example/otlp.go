package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
)

// serviceName is what a trace backend lists the traces under.
const serviceName = "fedhttp-example"

// serviceResource names A in a trace backend. The host says that all spans have
// one clock: the span of an attempt lasts until its response has been read, and so
// longer than its parent, which Jaeger would call a clock that is wrong.
func serviceResource() *resource.Resource {
	return resource.NewSchemaless(attribute.String("service.name", serviceName), attribute.String("service.namespace", orgA),
		attribute.String("host.name", orgA+"-1"), attribute.String("ip", "127.0.0.1")) // the second is what Jaeger v1 asks for
}

const (
	exportBatch   = 512
	exportTimeout = 5 * time.Second
)

// export sends all spans over OTLP/HTTP to a collector at address (HOST:PORT),
// and returns how many it took.
//
// A service hands its exporter to a batch span processor, which sends in the
// background. This job has its spans in memory anyway, so it sends them at the
// end, and can say what became of them.
func (t *traces) export(ctx context.Context, address string) (sent int, err error) {
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	exporter, err := otlptracehttp.New(ctx,
		otlptracehttp.WithEndpoint(address),
		otlptracehttp.WithInsecure(),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: 100 * time.Millisecond, MaxInterval: time.Second, MaxElapsedTime: exportTimeout / 2,
		}))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, exporter.Shutdown(context.WithoutCancel(ctx))) }()
	// What a collector refuses of a batch that it took is reported here only.
	var refused refusals
	otel.SetErrorHandler(&refused)
	for batch := range slices.Chunk(t.spans.Ended(), exportBatch) {
		if err := exporter.ExportSpans(ctx, batch); err != nil {
			return sent, fmt.Errorf("after %d spans: %w", sent, err)
		}
		sent += len(batch)
	}
	return sent, refused.err()
}

// refusals collects what OpenTelemetry reports on the side.
type refusals struct {
	mu   sync.Mutex
	errs []error
}

func (r *refusals) Handle(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}

func (r *refusals) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.errs...)
}
