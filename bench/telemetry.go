package bench

import (
	"context"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// Telemetry is what a chain reports to, the same for each of those that are
// compared.
type Telemetry struct {
	Name   string // of the tracing, and of the metrics where there are any
	Title  string
	Tracer trace.TracerProvider
	Meter  metric.MeterProvider
}

// The telemetry of the benchmarks. Spans go nowhere, so what an exporter takes for
// each is not seen.
func none() Telemetry {
	return Telemetry{"none", "no tracer", tracenoop.NewTracerProvider(), metricnoop.NewMeterProvider()}
}

func sampled(name, title string, sampler sdktrace.Sampler) Telemetry {
	provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithSpanProcessor(discard{}))
	return Telemetry{name, title, provider, metricnoop.NewMeterProvider()}
}

// Gated are the columns that have limits: no tracer, the SDK with nothing sampled,
// and the SDK with everything sampled.
func Gated() []Telemetry {
	return []Telemetry{
		none(),
		sampled("never", "not sampled", sdktrace.NeverSample()),
		sampled("always", "sampled", sdktrace.AlwaysSample()),
	}
}

// OneInHundred samples 1 % of the traces.
func OneInHundred() Telemetry {
	return sampled("1in100", "1 % sampled", sdktrace.TraceIDRatioBased(0.01))
}

// Metered is t with the metrics of the SDK, which somebody reads now and then.
func (t Telemetry) Metered() Telemetry {
	t.Name, t.Title = t.Name+"+metrics", t.Title+", SDK metrics"
	t.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	return t
}

// discard takes spans as a batch processor does, which reads nothing of them
// before they are sent.
type discard struct{}

func (discard) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (discard) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (discard) Shutdown(context.Context) error                  { return nil }
func (discard) ForceFlush(context.Context) error                { return nil }
