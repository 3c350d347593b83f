package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp/fedconfig"
)

const onePeer = `peers:
  - id: org-b
    origins: [https://registry.b.example]
`

const everything = `peers:
  - id: org-b
    origins: [https://registry.b.example, http://b.internal:8080]
    allow_plaintext: true
    default_terms: {retention: 30d}
    require_task: true
    require_anchor: true
    receipt: require
    propagation: none
    routes:
      - pattern: POST /v1/tasks
        task: {capability: summarize, scope: dataset-12, obligations: {residency: eu}}
    signals:
      policy_evaluated: X-Saw
      correlation_prefixes: {pe-: policy, rt-: routing}
      failure_statuses: [403, 503]
      read_problem_detail: true
      dialects:
        - kind: proxy-status
          hops: [{name: edge.b.example, envoy: true}, {name: pep.b.example, policy: true}]
        - kind: kong
    retry: {max_attempts: 2, min_backoff: 150ms, trust_http2_refusal: true}
    breaker: {failures: -1}
    hold: {max: 7, max_wait: 1h, release_rate: 20}
    denial: {hold_off: 1h30m, budget: 4}
  - id: org-c
    origins: [https://c.example]
    receipt: ignore
    propagation: all
    retry: {max_attempts: 1}
    hold: {max: -1}
    denial: {hold_off: -1s}
`

func TestCheck(t *testing.T) {
	t.Parallel()
	r := runWith(t, "", "check", write(t, "peers.yaml", everything))
	r.want(t, 0,
		"origins        https://registry.b.example\n                 http://b.internal:8080", "plain http is accepted",
		"who evaluated   X-Saw", "else the detail of problem+json", "pe-=policy, rt-=routing", "failures are    403 503\n",
		"proxy-status, pinned: edge.b.example (envoy), pep.b.example (policy)", "kong, unpinned",
		"require: a success must have one", "2 attempts, 150ms to 5s apart", "REFUSED_STREAM", "breaker        off",
		"up to 7 tasks wait 1h for their policy, then go at 20 a second", "refused for 1h30m; 4 in 1h refuse", "does not cross",
		"required: nothing is sent without a valid one", "retention=30d", "required: a request without a capability",
		"POST /v1/tasks  capability summarize, scope dataset-12, demands residency=eu",
		"\n\norg-c\n", "none: only the signals", "receipt        ignore", "nothing is sent again", "a task without its policy is refused at once",
		"a rejection refuses nothing later", "crosses, with baggage")
	if r.err != "" {
		t.Errorf("stderr: %s", r.err)
	}
}

func TestCheckFaults(t *testing.T) {
	t.Parallel()
	path := write(t, "peers.yaml", "peers:\n  - id: org-b\n    origin: [https://b.example]\n    receipt: maybe\n")
	r := runWith(t, "", "check", path)
	r.want(t, exitFailed, path+":3:5: peers[0]: unknown key \"origin\"; did you mean origins?", path+":4:14: peers[0].receipt:")
	if r.out != "" || strings.Contains(r.err, "fedhttp:") {
		t.Errorf("stdout %q, stderr %q: want the faults alone", r.out, r.err)
	}
	runWith(t, "", "check", path+".none").want(t, exitFailed, "no such file")
}

// TestDefaults compares the defaults that check shows with those that fedconfig
// tells of, which are fedhttp's.
func TestDefaults(t *testing.T) {
	t.Parallel()
	const zeros = `peers:
  - id: org-b
    origins: [https://b.example]
    signals: {policy_evaluated: "", correlation_id: "", anchor_issued_at: "", policy_reason: "", receipt: "", degraded: ""}
    retry: {max_attempts: 0, min_backoff: 0s, max_backoff: 0s, min_refresh_interval: 0s, attempt_timeout: 0s, budget_ratio: 0}
    breaker: {failures: 0, open_for: 0s, trials: 0}
    hold: {max: 0, max_wait: 0s}
    denial: {hold_off: 0s, window: 0s}
`
	_, err := fedconfig.Parse("p.yaml", []byte(zeros))
	if err == nil {
		t.Fatal("no fault")
	}
	seen := 0
	for _, m := range regexp.MustCompile(`\.(\w+): would mean the default, (.*?);`).FindAllStringSubmatch(err.Error(), -1) {
		seen++
		if defaults[m[1]] != m[2] {
			t.Errorf("%s: %q is shown, and the default is %q", m[1], defaults[m[1]], m[2])
		}
	}
	if seen != len(defaults) {
		t.Errorf("%d of %d defaults were compared:\n%v", seen, len(defaults), err)
	}
	source, err := os.ReadFile("../../signals.go")
	if err != nil {
		t.Fatal(err)
	}
	if want := "FailureStatuses are the statuses where the author matters, each from 400\n\t// to 599. Nil: " + strings.ReplaceAll(failureStatuses, " ", ", "); !strings.Contains(string(source), want) {
		t.Errorf("the statuses that are failures by default are not %s", failureStatuses)
	}
}
