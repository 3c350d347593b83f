package fedhttp

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/fedhttp/fedhttp/fedtest"
)

// vtMetrics reads what a Transport measures.
type vtMetrics struct {
	reader   *sdkmetric.ManualReader
	provider *sdkmetric.MeterProvider
}

func newVTMetrics() *vtMetrics {
	reader := sdkmetric.NewManualReader()
	return &vtMetrics{reader, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))}
}

// points returns every point as "name{attributes} value", histograms with their
// count and sum.
func (m *vtMetrics) points(t *testing.T) (points []string) {
	t.Helper()
	m.each(t, func(metric metricdata.Metrics, point string) { points = append(points, metric.Name+point) })
	slices.Sort(points)
	return points
}

func (m *vtMetrics) each(t *testing.T, see func(metric metricdata.Metrics, point string)) {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := m.reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	for _, scope := range rm.ScopeMetrics {
		vtWant(t, "scope", scope.Scope.Name, instrumentation)
		for _, metric := range scope.Metrics {
			for _, point := range vtPoints(t, metric) {
				see(metric, point)
			}
		}
	}
}

func vtPoints(t *testing.T, metric metricdata.Metrics) (points []string) {
	t.Helper()
	switch data := metric.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			points = append(points, fmt.Sprintf("{%s} %d", vtLabels(p.Attributes.ToSlice()), p.Value))
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			points = append(points, fmt.Sprintf("{%s} %d", vtLabels(p.Attributes.ToSlice()), p.Value))
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			points = append(points, fmt.Sprintf("{%s} %.0f", vtLabels(p.Attributes.ToSlice()), p.Value))
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			points = append(points, fmt.Sprintf("{%s} %d in %.0f", vtLabels(p.Attributes.ToSlice()), p.Count, p.Sum))
		}
	default:
		t.Errorf("%s is a %T", metric.Name, data)
	}
	return points
}

// vtLabels leaves out what is the same everywhere.
func vtLabels(attrs []attribute.KeyValue) string {
	var texts []string
	for _, kv := range attrs {
		if key := string(kv.Key); key != "server.address" && key != "server.port" {
			texts = append(texts, strings.TrimPrefix(key, "federation.")+"="+kv.Value.String())
		}
	}
	return strings.Join(texts, " ")
}

func vtMetricRig(t *testing.T, m *vtMetrics, change func(*Config, *Peer)) *vtRig {
	t.Helper()
	var r *vtRig
	r = newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
		cfg.MeterProvider, p.Receipt = m.provider, IgnoreReceipt
		cfg.Anchors = anchorFunc(func(ctx context.Context, peer string) (Anchor, error) {
			a, err := r.source(ctx, peer)
			a.ExpiresAt = r.begin.Add(time.Hour)
			return a, err
		})
		if change != nil {
			change(cfg, p)
		}
	})
	return r
}

// TestMetrics has every instrument, with what each call adds to it.
func TestMetrics(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		m := newVTMetrics()
		r := vtMetricRig(t, m, func(_ *Config, p *Peer) {
			p.Denial = DenialPolicy{Budget: 5, HoldOff: -1}
			p.Breaker = BreakerPolicy{Failures: 2, OpenFor: time.Minute}
		})
		r.get(t.Context(), Task{ID: "delivered"})
		r.peer.On("denied", fedtest.Deny("NARROWED"))
		r.get(t.Context(), Task{ID: "denied", Capability: "cap"})
		time.Sleep(2 * time.Second)
		r.peer.Rotate()
		r.get(t.Context(), Task{ID: "stale"})
		r.advertise("cap", 4, "d4")
		held := make(chan vtResult)
		go func() { held <- r.get(t.Context(), vtTask("held")) }()
		time.Sleep(7 * time.Second)
		want := []string{
			"federation.client.held{peer.id=b} 1",
			"federation.client.hold.oldest{peer.id=b} 7",
		}
		got := slices.DeleteFunc(m.points(t), func(p string) bool { return !strings.Contains(p, "held{") && !strings.Contains(p, "oldest") })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("while a task is held: (-want +got)\n%s", diff)
		}
		r.accept("cap", 4, "d4")
		<-held
		r.get(t.Context(), Task{ID: "late", Capability: "other", Obligations: Terms{"a": "b"}, PolicyDeadline: time.Now().Add(time.Second)})
		for _, id := range []string{"a1", "a2"} {
			r.peer.On(id, fedtest.Raw(403, http.Header{"X-Correlation-Id": {"c-" + id}}, ""))
			r.get(t.Context(), Task{ID: id})
		}
		r.get(t.Context(), Task{ID: "refused"})
		elsewhere, err := http.NewRequestWithContext(t.Context(), "GET", "http://elsewhere.example/", nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = r.client.Do(elsewhere)
		odd := r.request(t.Context(), "PURGE", Task{ID: "odd"}, nil)
		r.do(odd)

		want = []string{
			`federation.client.anchor.age{peer.id=b} 8`,
			fmt.Sprintf(`federation.client.anchor.due{peer.id=b} %.0f`, time.Until(r.status().AnchorDueAt).Seconds()),
			`federation.client.anchor.refreshes{anchor.result=advanced peer.id=b} 2`,
			fmt.Sprintf(`federation.client.anchor.remaining{peer.id=b} %.0f`, (time.Hour - r.elapsed()).Seconds()),
			`federation.client.attempts{peer.id=b resend=false verdict=ambiguous} 2`,
			`federation.client.attempts{peer.id=b resend=false verdict=none} 2`,
			`federation.client.attempts{peer.id=b resend=false verdict=rejection} 1`,
			`federation.client.attempts{peer.id=b resend=false verdict=routing} 1`,
			`federation.client.attempts{peer.id=b resend=true verdict=none} 1`,
			`federation.client.breaker.state{breaker.state=closed peer.id=b} 0`,
			`federation.client.breaker.state{breaker.state=half-open peer.id=b} 0`,
			`federation.client.breaker.state{breaker.state=open peer.id=b} 1`,
			`federation.client.decisions{outcome=ambiguous peer.id=b reason=no_signal} 2`,
			`federation.client.decisions{outcome=delivered peer.id=b} 3`,
			`federation.client.decisions{outcome=peer_unavailable peer.id=b reason=breaker_open} 2`,
			`federation.client.decisions{outcome=policy_unresolved peer.id=b reason=policy_deadline} 1`,
			`federation.client.decisions{outcome=rejected peer.id=b reason=denied} 1`,
			`federation.client.decisions{outcome=unknown_peer reason=unlisted_origin} 1`,
			`federation.client.denial.budget.remaining{peer.id=b} 4`,
			`federation.client.denials{peer.id=b} 1`,
			`federation.client.escalations{escalation.kind=ambiguous peer.id=b} 2`,
			`federation.client.held{peer.id=b} 0`,
			`federation.client.hold.duration{peer.id=b reason=policy_deadline} 1 in 1`,
			`federation.client.hold.duration{peer.id=b} 1 in 7`,
			`federation.client.hold.oldest{peer.id=b} 0`,
			`http.client.request.duration{error.type=403 http.request.method=GET http.response.status_code=403 network.protocol.version=1.1} 4 in 0`,
			`http.client.request.duration{http.request.method=GET http.response.status_code=200 network.protocol.version=1.1} 3 in 0`,
		}
		if diff := cmp.Diff(want, m.points(t)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		units := map[string]string{}
		m.each(t, func(metric metricdata.Metrics, _ string) {
			units[metric.Name] = metric.Unit
			if metric.Description == "" {
				t.Errorf("%s has no description", metric.Name)
			}
		})
		if diff := cmp.Diff(map[string]string{
			"federation.client.anchor.age": "s", "federation.client.anchor.due": "s", "federation.client.anchor.refreshes": "{refresh}", "federation.client.anchor.remaining": "s",
			"federation.client.attempts": "{attempt}", "federation.client.breaker.state": "{breaker}", "federation.client.decisions": "{decision}",
			"federation.client.denial.budget.remaining": "{denial}", "federation.client.denials": "{denial}", "federation.client.escalations": "{escalation}",
			"federation.client.held": "{task}", "federation.client.hold.duration": "s", "federation.client.hold.oldest": "s",
			"http.client.request.duration": "s",
		}, units); diff != "" {
			t.Errorf("units: (-want +got)\n%s", diff)
		}
		if err := r.tr.Close(); err != nil {
			t.Fatal(err)
		}
		for _, p := range m.points(t) {
			if strings.Contains(p, "breaker.state") || strings.Contains(p, "held{") {
				t.Errorf("after Close: %s", p)
			}
		}
	})
}

// TestDurationIsThePeers: what our side does with an answer is not its duration.
func TestDurationIsThePeers(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		m := newVTMetrics()
		r := vtMetricRig(t, m, func(cfg *Config, _ *Peer) { cfg.Correlation = slowResolver(time.Second) })
		r.peer.On("t", fedtest.Raw(403, http.Header{"X-Correlation-Id": {"c"}}, ""))
		r.get(t.Context(), Task{ID: "t"})
		for _, p := range m.points(t) {
			if strings.HasPrefix(p, "http.client.request.duration") && !strings.HasSuffix(p, "1 in 0") {
				t.Error(p)
			}
		}
	})
}
