package observability

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/fedhttp/fedhttp"
)

// TestAnchorResults checks the list of results: the job shows those of refreshes
// that succeed, and a Transport with a source that fails the other.
func TestAnchorResults(t *testing.T) {
	t.Parallel()
	shown := []string{failedResult(t)}
	for result := range exported(t).metrics["federation_client_anchor_refreshes_total"].labels["federation_anchor_result"] {
		shown = append(shown, result)
	}
	want := slices.Sorted(slices.Values(anchorResults))
	if slices.Sort(shown); !slices.Equal(shown, want) {
		t.Errorf("results %q, want %q", shown, want)
	}
}

type noAnchors struct{}

func (noAnchors) FetchAnchor(context.Context, string) (fedhttp.Anchor, error) {
	return fedhttp.Anchor{}, errors.New("none")
}

func failedResult(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	reader := sdkmetric.NewManualReader()
	transport, err := fedhttp.NewTransport(fedhttp.Config{
		Anchors:       noAnchors{},
		Peers:         []fedhttp.Peer{{ID: "b", Origins: []string{server.URL}}},
		MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transport.Close() })
	resp, err := (&http.Client{Transport: transport}).Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == "federation.client.anchor.refreshes" {
				result, _ := m.Data.(metricdata.Sum[int64]).DataPoints[0].Attributes.Value("federation.anchor.result")
				return result.AsString()
			}
		}
	}
	t.Fatal("no refresh was counted")
	return ""
}
