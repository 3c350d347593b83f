package fedconfig_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedconfig"
)

const everything = `
version: 1
peers:
  - id: org-b
    origins: [https://registry.b.example, "http://b.internal:8080"]
    default_terms: {retention: 30d}
    routes:
      - pattern: POST /v1/tasks/{id}
        task:
          id: t-1
          capability: translate
          scope: eu
          obligations: {residency: eu}
          policy_deadline: 2027-01-31T12:00:00Z
    require_task: true
    signals:
      policy_evaluated: X-Evaluated
      correlation_id: X-Corr
      anchor_issued_at: X-Anchor-At
      policy_reason: X-Reason
      receipt: X-Receipt
      degraded: X-Degraded
      policy_digest: X-Digest
      negotiation_epoch: X-Epoch
      anchor_version: X-Anchor-Version
      correlation_prefixes: {pe-: policy, rt-: routing}
      failure_statuses: [403, 503]
      read_problem_detail: true
      dialects:
        - {kind: proxy-status, hops: [{name: edge, envoy: true}, {name: opa, policy: true}]}
        - {kind: linkerd}
    retry:
      max_attempts: 2
      min_backoff: 150ms
      max_backoff: 2s
      min_refresh_interval: 3s
      attempt_timeout: 1m30s
      budget_ratio: 0.5
      trust_http2_refusal: true
    breaker: {failures: -1, open_for: 5s, trials: 2}
    hold: {max: 7, max_wait: 1h, release_rate: 20}
    denial: {hold_off: -1s, budget: 4, window: 2h}
    receipt: require
    propagation: none
    allow_plaintext: true
    require_anchor: true
`

func TestEveryField(t *testing.T) {
	t.Parallel()
	want := []fedhttp.Peer{{
		ID:           "org-b",
		Origins:      []string{"https://registry.b.example", "http://b.internal:8080"},
		DefaultTerms: fedhttp.Terms{"retention": "30d"},
		Routes: []fedhttp.Route{{Pattern: "POST /v1/tasks/{id}", Task: fedhttp.Task{
			ID: "t-1", Capability: "translate", Scope: "eu", Obligations: fedhttp.Terms{"residency": "eu"},
			PolicyDeadline: time.Date(2027, 1, 31, 12, 0, 0, 0, time.UTC),
		}}},
		RequireTask: true,
		Signals: fedhttp.Signals{
			PolicyEvaluated: "X-Evaluated", CorrelationID: "X-Corr", AnchorIssuedAt: "X-Anchor-At", PolicyReason: "X-Reason",
			Receipt: "X-Receipt", Degraded: "X-Degraded",
			PolicyDigest: "X-Digest", NegotiationEpoch: "X-Epoch", AnchorVersion: "X-Anchor-Version",
			CorrelationPrefixes: map[string]fedhttp.Layer{"pe-": fedhttp.LayerPolicy, "rt-": fedhttp.LayerRouting},
			FailureStatuses:     []int{403, 503}, ReadProblemDetail: true,
			Dialects: []fedhttp.Dialect{
				{Kind: fedhttp.DialectProxyStatus, Hops: []fedhttp.Hop{{Name: "edge", Envoy: true}, {Name: "opa", Policy: true}}},
				{Kind: fedhttp.DialectLinkerd},
			},
		},
		Retry: fedhttp.RetryPolicy{
			MaxAttempts: 2, MinBackoff: 150 * time.Millisecond, MaxBackoff: 2 * time.Second, MinRefreshInterval: 3 * time.Second,
			AttemptTimeout: 90 * time.Second, BudgetRatio: 0.5, TrustHTTP2Refusal: true,
		},
		Breaker:        fedhttp.BreakerPolicy{Failures: -1, OpenFor: 5 * time.Second, Trials: 2},
		Hold:           fedhttp.HoldPolicy{Max: 7, MaxWait: time.Hour, ReleaseRate: 20},
		Denial:         fedhttp.DenialPolicy{HoldOff: -time.Second, Budget: 4, Window: 2 * time.Hour},
		Receipt:        fedhttp.RequireReceipt,
		Propagation:    fedhttp.PropagateNone,
		AllowPlaintext: true,
		RequireAnchor:  true,
	}}
	got, err := fedconfig.Parse("peers.yaml", []byte(everything))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const asJSON = "{\"peers\":\r\n\t[{\"id\": \"\\u006frg-b\", \"origins\": [\"https:\\/\\/b.example\"]}]}"
	const asYAML = "peers:\r\n- id: org-b\r\n  origins: [https://b.example]\r\n"
	want := []fedhttp.Peer{{ID: "org-b", Origins: []string{"https://b.example"}}}
	for name, content := range map[string]string{
		"p.json": asJSON, "p.JSON": asJSON, "p.yaml": asYAML, "p.yml": asYAML, "p": asYAML,
		"j.yaml": `{"peers": [{"id": "org-b", "origins": ["https://b.example"]}]}`, "bom.yaml": "\uFEFF" + asYAML, "bom.json": "\uFEFF" + asJSON,
	} {
		got, err := fedconfig.Load(write(name, content))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
	var faults *fedconfig.Error
	for _, name := range []string{"yaml.json", "yaml.JSON"} {
		if _, err := fedconfig.Load(write(name, asYAML)); !errors.As(err, &faults) {
			t.Errorf("%s has YAML: %v", name, err)
		}
	}
	if _, err := fedconfig.Load(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := fedconfig.Load(dir); err == nil || errors.As(err, &faults) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := fedconfig.Load(write("large.yaml", asYAML+strings.Repeat("#", 1<<20))); !errors.As(err, &faults) {
		t.Errorf("a file beyond the limit: %v", err)
	}
}
