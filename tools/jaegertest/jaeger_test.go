package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	program = flag.String("jaeger", "../../bin/jaeger", "Jaeger's `program`, which make jaeger builds")
	example = flag.String("example", "", "the example's `program`; empty: build it")
)

const (
	testTimeout = 3 * time.Minute
	readTimeout = time.Minute // for Jaeger to show what it has taken
)

// TestJaeger sends the example's traces to Jaeger and reads them back. What went
// over the wire is checked against the contract of the spans, and Jaeger's
// answers against what went over the wire.
func TestJaeger(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	job := buildExample(ctx, t)
	j := startJaeger(ctx, t)
	r := newRelay(t, address(j.otlpHTTP))

	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, job, "-json", "-otlp", r.Listener.Addr().String())
	cmd.Stderr = &stderr
	from := time.Now()
	stdout, err := cmd.Output()
	if err != nil {
		t.Fatalf("the example: %v\n%s", err, &stderr)
	}
	var totals figures
	if err := json.Unmarshal(stdout, &totals); err != nil {
		t.Fatalf("the example's figures: %v", err)
	}
	sent := r.sent(t)
	jaeger := api{base: "http://" + address(j.query), from: from, to: time.Now()}
	traces := await(ctx, t, jaeger, len(sent))
	if t.Failed() {
		return
	}

	roots, problems := forest(sent)
	complain(t, "the shape", problems)
	t.Logf("%d spans in %d traces", len(sent), len(roots))
	t.Run("outcomes", func(t *testing.T) { testOutcomes(t, roots, totals) })
	t.Run("attributes", func(t *testing.T) { testAttributes(t, roots) })
	t.Run("contract", func(t *testing.T) { testContract(t, roots) })
	t.Run("api", func(t *testing.T) { testUI(t, traces, sent) })
	t.Run("api v3", func(t *testing.T) {
		got, err := jaeger.spans(ctx)
		if err != nil {
			t.Fatal(err)
		}
		testOTLP(t, got, sent)
	})
	t.Run("search", func(t *testing.T) { testSearch(ctx, t, jaeger, sent) })
}

// buildExample returns the path of the example's program.
func buildExample(ctx context.Context, t *testing.T) string {
	if *example != "" {
		return *example
	}
	path := filepath.Join(t.TempDir(), "example")
	build := exec.CommandContext(ctx, "go", "build", "-C", "../../example", "-o", path, ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the example: %v\n%s", err, out)
	}
	return path
}

// startJaeger starts Jaeger on free ports. Its log is shown where the test fails.
func startJaeger(ctx context.Context, t *testing.T) *jaeger {
	var log logBuffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("Jaeger's log:\n%s", log.String())
		}
	})
	// A port that was free a moment ago can be taken.
	for try := 1; ; try++ {
		j, err := start(ctx, *program, freePorts(t), &log)
		if err == nil {
			t.Cleanup(j.stop)
			return j
		}
		if try == 3 || ctx.Err() != nil {
			t.Fatalf("%s: %v", *program, err)
		}
		t.Logf("try %d: %v", try, err)
	}
}

func freePorts(t *testing.T) (p ports) {
	for _, port := range p.each() {
		l, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // all are taken until all are chosen
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return p
}

// logBuffer is written by the process and read by the test.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// await polls until Jaeger shows as many spans as were sent, and returns them.
func await(ctx context.Context, t *testing.T, a api, want int) []uiTrace {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		traces, err := a.traces(ctx, nil)
		got := 0
		for _, trace := range traces {
			got += len(trace.Spans)
		}
		if err == nil && got >= want && want > 0 {
			return traces
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("Jaeger shows %d spans of %d after %v; error: %v", got, want, readTimeout, err)
		}
	}
}

// figures are those of the example's that its traces must agree with. They come
// from the peers' own ledgers.
type figures struct {
	Boundary struct {
		Fedhttp struct {
			Denials        int
			RefusedLocally int `json:"refused_locally"`
		}
	}
	Preflight struct {
		Fedhttp struct{ Tasks, Pending int }
	}
}

// testOutcomes checks that each outcome has a trace, and as many as there were
// such calls where the example counts them in another way.
func testOutcomes(t *testing.T, roots []*node, counted figures) {
	count, negotiated := map[string]int{}, 0
	for _, root := range roots {
		count[root.text("federation.outcome")]++
		if strings.HasPrefix(root.Name(), "federation dataset-") {
			negotiated++
		}
	}
	for _, outcome := range outcomeNames() {
		t.Logf("%5d  %s", count[outcome], outcome)
		if count[outcome] == 0 {
			t.Errorf("there is no trace of outcome %q", outcome)
		}
	}
	for outcome, want := range map[string]int{
		"rejected":          counted.Boundary.Fedhttp.Denials,
		"scope_denied":      counted.Boundary.Fedhttp.RefusedLocally,
		"policy_unresolved": counted.Preflight.Fedhttp.Pending,
	} {
		if count[outcome] != want {
			t.Errorf("%d traces of outcome %q, the example counted %d", count[outcome], outcome, want)
		}
	}
	if want := counted.Preflight.Fedhttp.Tasks; negotiated != want {
		t.Errorf("%d traces of tasks that need a policy, the example counted %d", negotiated, want)
	}
}

// testAttributes checks every span against the contract, and that nothing of
// the contract goes without an example.
func testAttributes(t *testing.T, roots []*node) {
	var problems []string
	missing := map[string]bool{}
	for _, key := range []string{
		"peer.id", "capability.id", "task.id", "scope", "outcome", "reason", "policy.digest", "policy.basis",
		"negotiation.epoch", "correlation_id", "policy.reason", "attempts", "refreshes", "anchor.version", "held_ms",
		"peer.degraded", "escalated", "layer", "verdict", "evidence", "delivery", "anchor.result",
	} {
		missing["federation."+key] = true
	}
	for _, root := range roots {
		problems = append(problems, faults(root)...)
		root.walk(func(n *node) {
			for key := range n.Attributes().All() {
				delete(missing, key)
			}
		})
	}
	complain(t, "the attributes", problems)
	if len(missing) > 0 {
		t.Errorf("on no span: %q", slices.Sorted(maps.Keys(missing)))
	}
}

// testUI checks /api/traces, whose answer was awaited.
func testUI(t *testing.T, traces []uiTrace, sent []span) {
	type found struct {
		uiSpan
		service string
	}
	got := map[string]found{}
	for _, trace := range traces {
		for _, s := range trace.Spans {
			got[s.TraceID+s.SpanID] = found{s, trace.Processes[s.ProcessID].ServiceName}
		}
	}
	var problems []string
	for _, s := range sent {
		f, ok := got[s.TraceID().String()+s.SpanID().String()]
		if !ok {
			problems = append(problems, title(s)+": not in Jaeger's answer")
			continue
		}
		problems = append(problems, differUI(f.uiSpan, f.service, s)...)
	}
	if len(got) != len(sent) {
		problems = append(problems, fmt.Sprintf("%d spans, want %d", len(got), len(sent)))
	}
	complain(t, "/api/traces", problems)
}

// testOTLP checks what /api/v3/traces answered.
func testOTLP(t *testing.T, answer, sent []span) {
	got := map[string]span{}
	for _, s := range answer {
		got[s.TraceID().String()+s.SpanID().String()] = s
	}
	var problems []string
	for _, s := range sent {
		g, ok := got[s.TraceID().String()+s.SpanID().String()]
		if !ok {
			problems = append(problems, title(s)+": not in Jaeger's answer")
			continue
		}
		problems = append(problems, differOTLP(g, s)...)
	}
	if len(got) != len(sent) || len(answer) != len(sent) {
		problems = append(problems, fmt.Sprintf("%d spans, %d of them different, want %d", len(answer), len(got), len(sent)))
	}
	complain(t, "/api/v3/traces", problems)
}

// testSearch looks for each outcome by its tag, as an operator does, and wants
// all traces in which a call ended so, and no others.
func testSearch(ctx context.Context, t *testing.T, a api, sent []span) {
	for _, outcome := range outcomeNames() {
		want := map[string]bool{}
		for _, s := range sent {
			if v, ok := s.Attributes().Get("federation.outcome"); ok && v.AsString() == outcome {
				want[s.TraceID().String()] = true
			}
		}
		traces, err := a.traces(ctx, map[string]string{"federation.outcome": outcome})
		if err != nil {
			t.Error(err)
			continue
		}
		got := map[string]bool{}
		for _, trace := range traces {
			got[trace.TraceID] = true
		}
		t.Logf("federation.outcome=%s finds %d", outcome, len(got))
		if !maps.Equal(got, want) || len(traces) != len(want) || len(want) == 0 {
			t.Errorf("federation.outcome=%s finds\n%q, want\n%q", outcome, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
	}
}

// complain fails the test with the first of the problems.
func complain(t *testing.T, what string, problems []string) {
	t.Helper()
	if len(problems) == 0 {
		return
	}
	slices.Sort(problems)
	t.Errorf("%s: %d problems:\n%s", what, len(problems), strings.Join(problems[:min(len(problems), 20)], "\n"))
}

// TestLoopback checks what Jaeger listens on, by the kernel's word.
func TestLoopback(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("reads Linux's /proc")
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	j := startJaeger(ctx, t)
	got := listeners(t, j.pid)
	var want []string
	for _, port := range j.each() {
		want = append(want, "tcp "+address(*port))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("Jaeger listens on\n%q, want\n%q", got, want)
	}
}
