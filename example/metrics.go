package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// metrics are what A's fedhttp clients measure, as Prometheus would read it from
// A. A service serves its registry with promhttp; this job is over before
// anybody could scrape it. Nil, where nobody asked for them, measures nothing.
type metrics struct {
	file     *pendingFile
	provider *sdkmetric.MeterProvider
	registry *prometheus.Registry
	scraped  string // the last scrape, in the text format
	err      error  // of all scrapes
}

// newMetrics begins the file at path. Without a path nothing is measured. The
// caller calls close, whether it has called write or not.
func newMetrics(path string) (*metrics, error) {
	if path == "" {
		return nil, nil
	}
	registry := prometheus.NewRegistry()
	// The defaults: names and labels as docs/observability has them.
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	file, err := createFile(path)
	if err != nil {
		return nil, err
	}
	return &metrics{
		file:     file,
		provider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(serviceResource())),
		registry: registry,
	}, nil
}

// meterProvider is for Config.MeterProvider, where nil means OpenTelemetry's
// global one.
func (m *metrics) meterProvider() metric.MeterProvider {
	if m == nil {
		return nil
	}
	return m.provider
}

// scrape is called when a client has done its work and before it is closed: a
// closed Transport has no state to show. The counters go on from client to
// client, so that the last scrape has those of the whole job, and the state of
// the last client.
func (m *metrics) scrape() {
	if m == nil {
		return
	}
	families, err := m.registry.Gather()
	var text strings.Builder
	for _, family := range families {
		_, encodeErr := expfmt.MetricFamilyToText(&text, family)
		err = errors.Join(err, encodeErr)
	}
	m.scraped, m.err = text.String(), errors.Join(m.err, err)
}

// write puts the last scrape into the file, and says so.
func (m *metrics) write(stderr io.Writer) error {
	if m == nil {
		return nil
	}
	_, err := m.file.WriteString(m.scraped)
	if err := errors.Join(m.err, err, m.file.commit()); err != nil {
		return fmt.Errorf("-metrics: %w", err)
	}
	_, err = fmt.Fprintf(stderr, "metrics in %s\n", m.file.path)
	return err
}

func (m *metrics) close() {
	if m == nil {
		return
	}
	m.file.discard()
	_ = m.provider.Shutdown(context.Background()) // there is nothing to flush
}
