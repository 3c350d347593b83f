package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// collector takes traces, and keeps what it took.
type collector struct {
	*httptest.Server
	mu      sync.Mutex
	took    []byte
	refuses bool
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		w.Header().Set("Content-Type", "application/x-protobuf")
		if c.refuses {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c.took = append(c.took, body...)
	}))
	t.Cleanup(c.Close)
	return c
}

// has tells whether the collector took a span of the trace.
func (c *collector) has(traceID string) bool {
	id, err := hex.DecodeString(traceID)
	c.mu.Lock()
	defer c.mu.Unlock()
	return err == nil && len(id) == 16 && bytes.Contains(c.took, id)
}

var linkLine = regexp.MustCompile(`(?m)^(\S.*?)   +(http\S+)$`)

// checkLinks checks the printed links: all traces, and one of each kind, which
// the collector has.
func checkLinks(t *testing.T, printed, ui string, c *collector) (traceIDs []string) {
	t.Helper()
	_, printed, _ = strings.Cut(printed, "IN JAEGER\n")
	var names []string
	for _, line := range linkLine.FindAllStringSubmatch(printed, -1) {
		names = append(names, line[1])
		if line[1] == "all traces" {
			if want := ui + "/search?service=fedhttp-example"; line[2] != want {
				t.Errorf("all traces are at %s, want %s", line[2], want)
			}
			continue
		}
		id, ok := strings.CutPrefix(line[2], ui+"/trace/")
		if !ok || !c.has(id) {
			t.Errorf("%s is at %s, which was not sent", line[1], line[2])
		}
		traceIDs = append(traceIDs, id)
	}
	if want := append([]string{"all traces"}, kindNames()...); !slices.Equal(names, want) {
		t.Errorf("links to %q, want %q, in\n%s", names, want, printed)
	}
	slices.Sort(traceIDs)
	if len(slices.Compact(slices.Clone(traceIDs))) != len(traceIDs) {
		t.Errorf("a trace is shown twice: %q", traceIDs)
	}
	return traceIDs
}

// TestReport has the job make a report, and looks at it in a browser.
func TestReport(t *testing.T) {
	c := newCollector(t)
	file := filepath.Join(t.TempDir(), "report.html")
	var stdout, stderr bytes.Buffer
	const ui = "http://jaeger.example:1234/base"
	args := []string{"-json", "-otlp", c.Listener.Addr().String(), "-ui", ui + "/", "-report", file}
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &stderr)
	}
	var f figures
	if err := json.Unmarshal(stdout.Bytes(), &f); err != nil {
		t.Fatalf("standard output is not the figures alone: %v", err)
	}
	traceIDs := checkLinks(t, stderr.String(), ui, c)
	if !strings.Contains(stderr.String(), "report in "+file+"\n") {
		t.Errorf("standard error is %q", &stderr)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range traceIDs {
		if !bytes.Contains(text, []byte(`<a href="`+ui+"/trace/"+id+`">`)) {
			t.Errorf("no link to trace %s", id)
		}
	}

	b := openChromium(t)
	for _, w := range []window{{1280, "light"}, {400, "dark"}} {
		b.resize(w.width, 900, w.scheme)
		b.open(file)
		img := b.picture(fmt.Sprintf("report-%s-%d", w.scheme, w.width))
		checkAlone(t, b)
		boundary, preflight := b.figures("boundary"), b.figures("preflight")
		checkBars(t, img, w, boundary)
		checkBars(t, img, w, preflight)
		checkShown(t, f, append(boundary, preflight...))

		var shown []string
		for _, trace := range b.waterfalls() {
			shown = append(shown, trace.Kind)
			for _, span := range trace.Spans {
				_, length := stretch(img, span.Y, palettes[w.scheme][span.Role])
				if length < 2 || math.Abs(float64(length)-span.Bar) > 3 { // both ends are rounded to pixels
					t.Errorf("%v: %s: the bar of %s (%s) is %d px, want %.1f", w, trace.Kind, span.Name, span.Role, length, span.Bar)
				}
			}
			root := trace.Spans[0]
			if failed := root.Role == "failed"; failed == strings.HasPrefix(trace.Kind, "delivered") {
				t.Errorf("%v: %s: the call failed: %v", w, trace.Kind, failed)
			}
		}
		if !slices.Equal(shown, kindNames()) {
			t.Errorf("%v: waterfalls of %q, want %q", w, shown, kindNames())
		}
		checkFit(t, b, w)
		checkContrast(t, b, w)
	}
}

// checkShown checks that the numbers on the page are the job's.
func checkShown(t *testing.T, f figures, rows []shownFigure) {
	t.Helper()
	b, p := f.Boundary, f.Preflight
	for label, want := range map[string][2]int{
		"denials against A":                   {b.Naive.Denials, b.Fedhttp.Denials},
		"sends of a denied task, at most":     {b.Naive.MaxSendsPerDeniedTask, b.Fedhttp.MaxSendsPerDeniedTask},
		"recovered: run under the new anchor": {b.Naive.Recovered, b.Fedhttp.Recovered},
		"tasks sent before agreement":         {p.Naive.SentBeforeAgreement, p.Fedhttp.SentBeforeAgreement},
		"run under the wrong policy":          {p.Naive.WrongPolicy, p.Fedhttp.WrongPolicy},
		"run under the right policy":          {p.Naive.RightPolicy, p.Fedhttp.RightPolicy},
		"pending: not run, policy unresolved": {p.Naive.Pending, p.Fedhttp.Pending},
	} {
		i := slices.IndexFunc(rows, func(r shownFigure) bool { return r.Label == label })
		if i < 0 {
			t.Errorf("no row %q", label)
			continue
		}
		if got := [2]string{rows[i].Stock.Text, rows[i].Fedhttp.Text}; got != [2]string{fmt.Sprint(want[0]), fmt.Sprint(want[1])} {
			t.Errorf("%s: %q, want %d", label, got, want)
		}
	}
}

// TestLinks checks the links that go to standard output, below the report.
func TestLinks(t *testing.T) {
	c := newCollector(t)
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-otlp", c.Listener.Addr().String()}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &stderr)
	}
	checkLinks(t, stdout.String(), "http://127.0.0.1:16686", c)
	for _, want := range []string{"BOUNDARY  200 tasks", "PREFLIGHT  1140 tasks", "SIGNALS TURNED OFF  6 more", "THE OTHER OUTCOMES  9 more", "\nrouting_failed\n"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &stdout)
		}
	}

	// Where nothing was sent there is nothing to see.
	c.mu.Lock()
	c.refuses = true
	c.mu.Unlock()
	stdout.Reset()
	stderr.Reset()
	if code := run(t.Context(), []string{"-json", "-otlp", c.Listener.Addr().String()}, &stdout, &stderr); code != 1 {
		t.Errorf("refused: exit code %d, want 1", code)
	}
	if strings.Contains(stderr.String(), "IN JAEGER") || !strings.Contains(stderr.String(), "the traces were not all sent to "+c.Listener.Addr().String()) {
		t.Errorf("refused: %q", &stderr)
	}
}

func TestJaegerOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ otlp, ui, want string }{
		{"127.0.0.1:4318", "", "http://127.0.0.1:16686"},
		{"collector.example:4318", "", "http://collector.example:16686"},
		{"[::1]:4318", "", "http://[::1]:16686"},
		{"127.0.0.1:4318", "https://jaeger.example/", "https://jaeger.example"},
		{"127.0.0.1:4318", "http://localhost:1/base", "http://localhost:1/base"},
	} {
		if got := jaegerOf(c.otlp, c.ui); string(got) != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
