package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// TestFigures checks every figure of the job that is exact, and the bounds of
// those that depend on which task comes first.
func TestFigures(t *testing.T) {
	fedtest.CheckLeaks(t)
	traces := newTraces()
	defer traces.close()
	r, err := replay(t.Context(), traces, nil, &progress{w: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if missed := r.figures.missed(); len(missed) > 0 {
		t.Errorf("not as promised:\n%s", strings.Join(missed, "\n"))
	}

	wantNaive := boundaryFigures{Tasks: 200, PolicyEvaluations: 480, Denials: 480, MaxSendsPerDeniedTask: 4, Quarantined: true}
	if got := r.figures.Boundary.Naive; got != wantNaive {
		t.Errorf("boundary.naive is\n%+v, want\n%+v", got, wantNaive)
	}
	got := r.figures.Boundary.Fedhttp
	// Tasks of a scope that are on their way when its first denial comes are
	// denied as well: at most as many as A has on their way at a time.
	if got.Denials < deniedScopes || got.Denials > deniedScopes+boundaryCalls-1 {
		t.Errorf("boundary.fedhttp.denials is %d, want %d to %d", got.Denials, deniedScopes, deniedScopes+boundaryCalls-1)
	}
	want := boundaryFigures{
		Tasks: 200, PolicyEvaluations: droppedTasks + got.Denials, Denials: got.Denials, MaxSendsPerDeniedTask: 1,
		RefusedLocally: deniedTasks - got.Denials, Recovered: 80, AnchorRefreshes: 1,
	}
	if got != want {
		t.Errorf("boundary.fedhttp is\n%+v, want\n%+v", got, want)
	}
	if got, want := r.figures.Preflight.Naive, (preflightFigures{Tasks: 1140, Sends: 1087 + 4*53, SentBeforeAgreement: 1140, WrongPolicy: 1087, Pending: 53}); got != want {
		t.Errorf("preflight.naive is\n%+v, want\n%+v", got, want)
	}
	if got, want := r.figures.Preflight.Fedhttp, (preflightFigures{Tasks: 1140, Sends: 1087, RightPolicy: 1087, Pending: 53, CoordinatorSignals: 20}); got != want {
		t.Errorf("preflight.fedhttp is\n%+v, want\n%+v", got, want)
	}

	if got := [2]string{r.naiveBoundary.nextTask, r.fedBoundary.nextTask}; got != [2]string{"refused: QUARANTINED", "ran"} {
		t.Errorf("an ordinary task afterwards: %q", got)
	}
	if got, want := r.signalsOff, (signalsOff{tasks: 6, sends: 6, ambiguous: 6, escalations: 6, policy: 3, routing: 3}); got != want {
		t.Errorf("with the signals off: %+v, want %+v", got, want)
	}
	checkOthers(t, r.others)
	var found []string
	for _, root := range traces.examples() {
		found = append(found, root.kind())
	}
	if !slices.Equal(found, kindNames()) {
		t.Errorf("traces of %q, want one of each of %q", found, kindNames())
	}
}

func checkOthers(t *testing.T, got others) {
	t.Helper()
	// Sent once each: the mismatch, the canceled, the ambiguous; then three times
	// each, until the breaker opens.
	want := others{
		outcomes: []fedhttp.Outcome{
			fedhttp.OutcomeUnknownPeer, fedhttp.OutcomeTaskRequired, fedhttp.OutcomePolicyMismatch, fedhttp.OutcomeCanceled,
			fedhttp.OutcomeAmbiguous, // while B is degraded
			fedhttp.OutcomeRoutingFailed, fedhttp.OutcomeRoutingFailed, fedhttp.OutcomeRoutingFailed, fedhttp.OutcomePeerUnavailable,
		},
		sends: 3 + 3*3, escalations: 2 + 3,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the other outcomes are\n%v: %v want\n%v: %v", got.outcomes, got, want.outcomes, want)
	}
}

// TestKinds checks that no outcome was forgotten.
func TestKinds(t *testing.T) {
	t.Parallel()
	for o := fedhttp.OutcomeDelivered; ; o++ {
		name, err := o.MarshalText()
		if err != nil {
			break // there is no such outcome: that was all of them
		}
		if meaningOf(string(name)) == "" {
			t.Errorf("nothing is said of %s", name)
		}
	}
}

// TestPlan checks that the incident is the one that it says it is.
func TestPlan(t *testing.T) {
	t.Parallel()
	plan := planPreflight()
	var lasts []time.Duration
	tasks, hurried := 0, 0
	for _, c := range plan {
		lasts = append(lasts, c.negotiation)
		tasks += perCapability
		hurried += c.hurried
		if c.hurried > 0 && c.negotiation < 4*hurry {
			t.Errorf("%s: %d tasks in a hurry, and a negotiation of only %v", c.offer.Capability, c.hurried, c.negotiation)
		}
	}
	slices.Sort(lasts)
	if tasks != 1140 || hurried != 53 {
		t.Errorf("%d tasks, %d in a hurry, want 1140 and 53", tasks, hurried)
	}
	median := (lasts[capabilities/2-1] + lasts[capabilities/2]) / 2
	if d := (median - medianNegotiation).Abs(); d > time.Second {
		t.Errorf("the median is %v, want %v", median, medianNegotiation)
	}
	if d := (lasts[capabilities-1] - p99Negotiation).Abs(); d > time.Second {
		t.Errorf("the longest is %v, want %v", lasts[capabilities-1], p99Negotiation)
	}
}

func TestJSON(t *testing.T) {
	fedtest.CheckLeaks(t)
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-json"}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &stderr)
	}
	dec := json.NewDecoder(&stdout)
	var got map[string]map[string]map[string]any
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(io.MultiReader(dec.Buffered(), &stdout)); err != nil || strings.TrimSpace(string(rest)) != "" {
		t.Errorf("standard output goes on with %q", rest)
	}
	boundary := []string{
		"tasks", "policy_evaluations", "denials", "max_sends_per_denied_task", "refused_locally", "recovered",
		"anchor_refreshes", "escalations", "quarantined",
	}
	preflight := []string{
		"tasks", "sends", "sent_before_agreement", "wrong_policy", "right_policy", "pending", "coordinator_signals",
	}
	want := map[string]map[string][]string{
		"boundary":  {"naive": boundary, "fedhttp": boundary},
		"preflight": {"naive": preflight, "fedhttp": preflight},
	}
	shape := map[string]map[string][]string{}
	for incident, clients := range got {
		shape[incident] = map[string][]string{}
		for client, fields := range clients {
			for field, value := range fields {
				shape[incident][client] = append(shape[incident][client], field)
				switch value := value.(type) {
				case bool:
					if field != "quarantined" {
						t.Errorf("%s.%s.%s is %v", incident, client, field, value)
					}
				case float64:
					if field == "quarantined" || value != float64(int(value)) {
						t.Errorf("%s.%s.%s is %v", incident, client, field, value)
					}
				default:
					t.Errorf("%s.%s.%s is %v", incident, client, field, value)
				}
			}
			slices.Sort(shape[incident][client])
		}
	}
	slices.Sort(boundary)
	slices.Sort(preflight)
	if !reflect.DeepEqual(shape, want) {
		t.Errorf("the shape is\n%v, want\n%v", shape, want)
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"-nonsense"}, 2, "-nonsense"},
		{[]string{"stray"}, 2, `unexpected argument: "stray"`},
		{[]string{"-json", "stray"}, 2, `unexpected argument: "stray"`},
		{[]string{"-json=maybe"}, 2, "maybe"},
		{[]string{"-otlp"}, 2, "needs an argument"},
		{[]string{"-otlp", ""}, 2, "want HOST:PORT"},
		{[]string{"-otlp", "localhost"}, 2, "want HOST:PORT"},
		{[]string{"-otlp", "http://localhost:4318"}, 2, "want HOST:PORT"},
		{[]string{"-wire", "stray"}, 2, `unexpected argument: "stray"`},
		{[]string{"-wire", "-otlp", "localhost:4318"}, 2, "-otlp does not go with -wire"},
		{[]string{"-otlp", "localhost:4318", "-json", "-wire"}, 2, "-otlp does not go with -wire"},
		{[]string{"-tls", "-wire"}, 2, "-tls goes with -json only"},
		{[]string{"-fleet"}, 2, "needs an argument"},
		{[]string{"-fleet", "three"}, 2, "want a number from 1 to 9"},
		{[]string{"-fleet", "0"}, 2, "want a number from 1 to 9"},
		{[]string{"-fleet", "10"}, 2, "want a number from 1 to 9"},
		{[]string{"-fleet", "3", "-tls"}, 2, "-fleet goes with -json only"},
		{[]string{"-fleet", "3", "-metrics", "m.prom"}, 2, "-fleet goes with -json only"},
		{[]string{"-tls", "-report", "r.html"}, 2, "-tls goes with -json only"},
		{[]string{"-wire", "-report", "r.html"}, 2, "-report does not go with -wire"},
		{[]string{"-wire", "-metrics", "m.prom"}, 2, "-metrics does not go with -wire"},
		{[]string{"-metrics", ""}, 2, "want a file"},
		{[]string{"-metrics", "/"}, 1, "-metrics: / is not a regular file"},
		{[]string{"-report"}, 2, "needs an argument"},
		{[]string{"-report", ""}, 2, "want a file"},
		{[]string{"-ui", "http://localhost:16686"}, 2, "-ui does not go without -otlp"},
		{[]string{"-otlp", "localhost:4318", "-ui", "localhost:16686"}, 2, "want a URL"},
		{[]string{"-otlp", "localhost:4318", "-ui", "javascript://x"}, 2, "want a URL"},
		{[]string{"-otlp", "localhost:4318", "-ui", "http://localhost/search?service=x"}, 2, "want a URL"},
		{[]string{"-h"}, 0, "-otlp HOST:PORT"},
		{[]string{"-h"}, 0, "-ui URL"},
		{[]string{"-h"}, 0, "-report FILE"},
		{[]string{"-h"}, 0, "-wire"},
		{[]string{"-h"}, 0, "-fleet N"},
		{[]string{"-h"}, 0, "-metrics FILE"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), c.args, &stdout, &stderr); code != c.code {
			t.Errorf("%q: exit code %d, want %d", c.args, code, c.code)
		}
		if !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%q: stderr is %q, which does not say %q", c.args, &stderr, c.says)
		}
		if stdout.Len() > 0 {
			t.Errorf("%q: stdout is %q", c.args, &stdout)
		}
	}
}

// TestInterrupted checks that a job that is broken off says so and leaves
// nothing running, wherever it is.
func TestInterrupted(t *testing.T) {
	fedtest.CheckLeaks(t)
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 900 * time.Millisecond, 1500 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		var stdout, stderr bytes.Buffer
		if code := run(ctx, []string{"-json"}, &stdout, &stderr); code != 1 {
			t.Errorf("after %v: exit code %d, want 1", after, code)
		}
		cancel()
		if stdout.Len() > 0 || !strings.Contains(stderr.String(), "example: ") {
			t.Errorf("after %v: stdout %q, stderr %q", after, &stdout, &stderr)
		}
	}
}

func TestExport(t *testing.T) {
	fedtest.CheckLeaks(t)
	traces := newTraces()
	defer traces.close()
	if _, err := runSignalsOff(t.Context(), fedhttpClient(traces, nil)); err != nil {
		t.Fatal(err)
	}
	var requests, received atomic.Int64
	status := http.StatusOK
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPost && r.URL.Path == "/v1/traces" && r.Header.Get("Content-Type") == "application/x-protobuf" {
			requests.Add(1)
			received.Add(n)
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(status)
	}))
	defer collector.Close()
	address := collector.Listener.Addr().String()

	ended := len(traces.spans.Ended()) // more may end meanwhile: an escalation is sent on its own
	sent, err := traces.export(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if sent < ended || sent > len(traces.spans.Ended()) || requests.Load() == 0 || received.Load() < int64(100*ended) {
		t.Errorf("sent %d of %d spans, in %d requests of %d bytes", sent, ended, requests.Load(), received.Load())
	}

	status = http.StatusBadRequest
	if sent, err := traces.export(t.Context(), address); err == nil || sent != 0 || !strings.Contains(err.Error(), "400") {
		t.Errorf("a collector that refuses: sent %d, error %v", sent, err)
	}
	collector.Close()
	if sent, err := traces.export(t.Context(), address); err == nil || sent != 0 {
		t.Errorf("no collector: sent %d, error %v", sent, err)
	}
}
