package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// telemetry is where spans and metrics go: nowhere, unless OpenTelemetry's own
// variables say otherwise.
type telemetry struct {
	tracer trace.TracerProvider
	meter  metric.MeterProvider
	stops  []func(context.Context) error
}

// exports reports whether the environment asks for a signal, TRACES or METRICS, to
// be exported. Without an endpoint or an exporter nothing is, although the default
// endpoint of OTLP would be on this machine.
func exports(signal string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_"+signal+"_EXPORTER") == "none" {
		return false
	}
	for _, name := range []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_" + signal + "_ENDPOINT", "OTEL_" + signal + "_EXPORTER",
	} {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// newTelemetry makes the providers. Spans go to the processors too, and what is wrong with
// exporting to the log.
func newTelemetry(ctx context.Context, logger *slog.Logger, processors ...sdktrace.SpanProcessor) (*telemetry, error) {
	if exports("TRACES") || exports("METRICS") {
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { logger.Warn("telemetry", slog.Any("error", err)) }))
		otel.SetLogger(logr.New(telemetryLog{logger}))
	}
	t := &telemetry{tracer: tracenoop.NewTracerProvider(), meter: metricnoop.NewMeterProvider()}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "fedhttp")), resource.WithFromEnv())
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, err
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(about)}
	for _, p := range processors {
		options = append(options, sdktrace.WithSpanProcessor(p), sdktrace.WithSampler(newRecording()))
	}
	if exports("TRACES") {
		exporter, err := autoexport.NewSpanExporter(ctx)
		if err != nil {
			return nil, exporterError("TRACES", err)
		}
		options = append(options, sdktrace.WithBatcher(exporter))
	}
	if len(options) > 1 {
		provider := sdktrace.NewTracerProvider(options...)
		t.tracer, t.stops = provider, append(t.stops, provider.Shutdown)
	}
	if exports("METRICS") {
		reader, err := autoexport.NewMetricReader(ctx)
		if err != nil {
			return nil, errors.Join(exporterError("METRICS", err), t.stop(ctx))
		}
		provider := sdkmetric.NewMeterProvider(sdkmetric.WithResource(about), sdkmetric.WithReader(reader))
		t.meter, t.stops = provider, append(t.stops, provider.Shutdown)
	}
	return t, nil
}

// exporterError names the variables that choose a signal's exporter.
func exporterError(signal string, err error) error {
	return fmt.Errorf("see to OTEL_%[1]s_EXPORTER and OTEL_EXPORTER_OTLP_PROTOCOL (or OTEL_EXPORTER_OTLP_%[1]s_PROTOCOL): %[2]w", signal, err)
}

// telemetryLog takes what OpenTelemetry cannot make sense of in its variables, without
// the values: those of OTEL_EXPORTER_OTLP_HEADERS are secrets.
type telemetryLog struct{ logger *slog.Logger }

func (telemetryLog) Init(logr.RuntimeInfo)            {}
func (telemetryLog) Enabled(int) bool                 { return false }
func (telemetryLog) Info(int, string, ...any)         {}
func (l telemetryLog) WithValues(...any) logr.LogSink { return l }
func (l telemetryLog) WithName(string) logr.LogSink   { return l }

func (l telemetryLog) Error(err error, what string, _ ...any) {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // and not the URL
	}
	l.logger.Warn("telemetry: see to the variables that begin with OTEL_", slog.String("what", what), slog.Any("error", err))
}

// recording has every span recorded, for somebody who waits for it, and sampled as
// the environment says: an exporter gets no others.
type recording struct{ tracer trace.Tracer }

func newRecording() recording {
	// Only a provider without a sampler of its own knows that of the environment.
	return recording{sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(sameTrace{})).Tracer("")}
}

func (r recording) Description() string { return "everything is recorded" }

func (r recording) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	result := sdktrace.SamplingResult{Decision: sdktrace.RecordOnly, Tracestate: trace.SpanContextFromContext(p.ParentContext).TraceState()}
	_, span := r.tracer.Start(context.WithValue(p.ParentContext, traceKey{}, p.TraceID), p.Name, trace.WithSpanKind(p.Kind))
	if span.SpanContext().IsSampled() {
		result.Decision = sdktrace.RecordAndSample
	}
	return result
}

type traceKey struct{}

// sameTrace gives a span the trace that it is asked about.
type sameTrace struct{}

func (sameTrace) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id, _ := ctx.Value(traceKey{}).(trace.TraceID)
	return id, trace.SpanID{1}
}

func (sameTrace) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return trace.SpanID{1} }

// stop sends what is left, until ctx ends.
func (t *telemetry) stop(ctx context.Context) error {
	var all []error
	for _, stop := range t.stops {
		all = append(all, stop(ctx))
	}
	return errors.Join(all...)
}
