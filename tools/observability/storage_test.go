package observability

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// engine evaluates as Prometheus does, with its defaults.
var engine = promql.NewEngine(promql.EngineOpts{
	MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, Parser: promQL,
})

// memory is a Prometheus' storage for a test.
type memory struct{ kept []*keptSeries }

type keptSeries struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// series returns the one that has the labels, a new one where there is none.
func (m *memory) series(of labels.Labels) *keptSeries {
	for _, s := range m.kept {
		if labels.Equal(s.labels, of) {
			return s
		}
	}
	s := &keptSeries{labels: of}
	m.kept = append(m.kept, s)
	return s
}

// add appends a value at a time after the start, which is the epoch.
func (s *keptSeries) add(at time.Duration, value float64) {
	s.samples = append(s.samples, sample{at.Milliseconds(), value})
}

// at evaluates an expression at a time after the start.
func (m *memory) at(ctx context.Context, text string, at time.Duration) (promql.Vector, error) {
	q, err := engine.NewInstantQuery(ctx, m, nil, text, time.UnixMilli(at.Milliseconds()))
	if err != nil {
		return nil, err
	}
	defer q.Close()
	vector, err := q.Exec(ctx).Vector()
	if err != nil {
		return nil, err
	}
	return append(promql.Vector(nil), vector...), nil // the query takes its own back
}

// Querier returns the storage for all times: it holds no more than a test's.
func (m *memory) Querier(_, _ int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		set := &seriesSet{next: -1}
		for _, s := range m.kept {
			if len(s.samples) > 0 && matchAll(matchers, s.labels) {
				set.series = append(set.series, storage.NewListSeries(s.labels, s.samples))
			}
		}
		return set
	}}, nil
}

func matchAll(matchers []*labels.Matcher, of labels.Labels) bool {
	for _, m := range matchers {
		if !m.Matches(of.Get(m.Name)) {
			return false
		}
	}
	return true
}

type seriesSet struct {
	series []storage.Series
	next   int
}

func (s *seriesSet) Next() bool                        { s.next++; return s.next < len(s.series) }
func (s *seriesSet) At() storage.Series                { return s.series[s.next] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// sample is a float at a time in milliseconds.
type sample struct {
	t int64
	v float64
}

func (s sample) ST() int64                     { return 0 }
func (s sample) T() int64                      { return s.t }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
