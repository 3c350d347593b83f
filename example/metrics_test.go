package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestMetrics has one part of the job measured, and no part of it counted twice.
func TestMetrics(t *testing.T) {
	fedtest.CheckLeaks(t)
	path := filepath.Join(t.TempDir(), "metrics.prom")
	m, err := newMetrics(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	traces := newTraces()
	defer traces.close()
	for range 2 {
		if _, err := runSignalsOff(t.Context(), fedhttpClient(traces, m)); err != nil {
			t.Fatal(err)
		}
	}
	var stderr bytes.Buffer
	if err := m.write(&stderr); err != nil || !strings.Contains(stderr.String(), path) {
		t.Errorf("stderr %q, error %v", &stderr, err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ name, labels, value string }{
		{"federation_client_decisions_total", `federation_outcome="ambiguous",federation_peer_id="org-b",federation_reason="no_signal"`, " 12"}, // of both clients
		{"federation_client_breaker_state", `federation_breaker_state="closed",federation_peer_id="org-b"`, " 1"},                               // of the last
		{"federation_client_denial_budget_remaining", `federation_peer_id="org-b"`, " 100"},
		{"federation_client_anchor_remaining_seconds", `federation_peer_id="org-b"`, ""},
		{"http_client_request_duration_seconds_bucket", `error_type="403"`, ""},
		{"target_info", `service_name="fedhttp-example"`, " 1"},
	} {
		found := false
		for line := range strings.Lines(string(text)) {
			found = found || strings.HasPrefix(line, want.name+"{") && strings.Contains(line, want.labels) && strings.HasSuffix(line, want.value+"\n")
		}
		if !found {
			t.Errorf("no %s{%s} %s", want.name, want.labels, want.value)
		}
	}
}
