package observability

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

const (
	docs    = "../../docs/observability"
	example = "../../example"

	jobTimeout = 5 * time.Minute // building the example included
	scopeName  = "github.com/fedhttp/fedhttp"
)

// exposition is what a job exported, by the names that a query uses: a histogram
// stands there as _bucket, _sum and _count.
type exposition struct {
	metrics map[string]*metric
	// families are those that fedhttp's meter made, each with the names that a
	// query uses for it. target_info is not one of them.
	families map[string][]string
}

type metric struct {
	labels  map[string]map[string]bool // the values that were seen, by label
	series  []series
	counter bool // goes up only
}

type series struct {
	labels map[string]string
	value  float64
}

// job runs the example once, for all tests.
var job = sync.OnceValues(func() (*exposition, error) {
	folder, err := os.MkdirTemp("", "observability-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	ctx, cancel := context.WithTimeout(context.Background(), jobTimeout)
	defer cancel()
	file := filepath.Join(folder, "metrics.prom")
	if out, err := exec.CommandContext(ctx, "go", "run", "-C", example, ".", "-json", "-metrics", file).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("the example: %w\n%s", err, out)
	}
	text, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer text.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, err
	}
	e := &exposition{metrics: map[string]*metric{}, families: map[string][]string{}}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			if err := e.add(name, family.GetType(), m); err != nil {
				return nil, err
			}
		}
	}
	if len(e.families) == 0 {
		return nil, errors.New("the example's metrics have none of fedhttp's")
	}
	return e, nil
})

func exported(t *testing.T) *exposition {
	t.Helper()
	e, err := job()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *exposition) add(family string, kind dto.MetricType, m *dto.Metric) error {
	labels := map[string]string{}
	for _, pair := range m.GetLabel() {
		if pair.GetValue() != "" { // which is the same as no label
			labels[pair.GetName()] = pair.GetValue()
		}
	}
	switch kind {
	case dto.MetricType_COUNTER:
		e.sample(family, family, labels, m.GetCounter().GetValue(), true)
	case dto.MetricType_GAUGE:
		e.sample(family, family, labels, m.GetGauge().GetValue(), false)
	case dto.MetricType_HISTOGRAM:
		h := m.GetHistogram()
		e.sample(family, family+"_count", labels, float64(h.GetSampleCount()), true)
		e.sample(family, family+"_sum", labels, h.GetSampleSum(), true)
		for _, bucket := range h.GetBucket() {
			with := map[string]string{"le": model.SampleValue(bucket.GetUpperBound()).String()}
			for name, value := range labels {
				with[name] = value
			}
			e.sample(family, family+"_bucket", with, float64(bucket.GetCumulativeCount()), true)
		}
	default:
		return fmt.Errorf("%s is a %v", family, kind)
	}
	return nil
}

func (e *exposition) sample(family, name string, labels map[string]string, value float64, counter bool) {
	m := e.metrics[name]
	if m == nil {
		m = &metric{labels: map[string]map[string]bool{}, counter: counter}
		e.metrics[name] = m
		if labels["otel_scope_name"] == scopeName {
			e.families[family] = append(e.families[family], name)
		}
	}
	for label, value := range labels {
		if m.labels[label] == nil {
			m.labels[label] = map[string]bool{}
		}
		m.labels[label][value] = true
	}
	m.series = append(m.series, series{labels, value})
}

// TestExposition checks that the job shows every metric of fedhttp. Where the
// list is wrong, so are the tables of the README and perhaps the dashboard.
func TestExposition(t *testing.T) {
	t.Parallel()
	var got []string
	for family := range exported(t).families {
		got = append(got, family)
	}
	slices.Sort(got)
	want := []string{
		"federation_client_anchor_age_seconds",
		"federation_client_anchor_due_seconds",
		"federation_client_anchor_refreshes_total",
		"federation_client_anchor_remaining_seconds",
		"federation_client_attempts_total",
		"federation_client_breaker_state",
		"federation_client_decisions_total",
		"federation_client_denial_budget_remaining",
		"federation_client_denials_total",
		"federation_client_escalations_total",
		"federation_client_held",
		"federation_client_hold_duration_seconds",
		"federation_client_hold_oldest_seconds",
		"http_client_request_duration_seconds",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the job exports\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
