package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

// program is a gateway in a process of its own.
type program struct {
	*exec.Cmd
	url  string
	logs *lockedBuffer
}

func startProgram(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	return startAs(t, exec.CommandContext(t.Context(), os.Args[0], append([]string{"proxy", "-listen", "127.0.0.1:0"}, args...)...), env)
}

// startAs starts the gateway that the command line is.
func startAs(t *testing.T, command *exec.Cmd, env []string) *program {
	t.Helper()
	p := &program{Cmd: command, logs: &lockedBuffer{}}
	p.Env = append(append(os.Environ(), asProgram+"=1"), env...)
	p.Stderr = p.logs
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no address: %v, %s", err, p.logs)
	}
	p.url = strings.TrimSpace(line)
	return p
}

// end sends the signal and waits for the program.
func (p *program) end(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := p.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("%v: %s", err, p.logs)
	}
}

func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("%s is not installed", name)
		}
		t.Skipf("%s is not installed: clients that are not Go are not tested", name)
	}
	return path
}

const python = `
import json, sys, urllib.request, urllib.error
base = sys.argv[1]
def call(path, data=None, **headers):
    req = urllib.request.Request(base + path, data=data, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        resp = urllib.request.urlopen(req)
    except urllib.error.HTTPError as e:
        resp = e
    body = resp.read()
    print(resp.status, resp.headers["Fedhttp-Decision"])
    return body
assert call("/org-b/v1/tasks", data=b"x" * 100000) == b'{"status":"ok"}\n', "the body"
call("/org-b/denied")
problem = json.loads(call("/org-b/x", Fedhttp_Capability="c", Fedhttp_Obligations="residency=eu", Fedhttp_Policy_Wait="0s"))
print(problem["outcome"], problem["sent"], problem["safe_to_resend"])
call("/org-z/x")
`

func TestClients(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	for range 2 { // one for each client
		peer.On("/denied", fedtest.Deny("SCOPE_NARROWED"))
	}
	p := startProgram(t, nil, "-peers", peersOf(t, peer))
	t.Run("curl", func(t *testing.T) {
		curl := need(t, "curl")
		for want, args := range map[string][]string{
			"200 outcome=delivered, peer=\"org-b\"":  {"/org-b/v1/tasks"},
			"200 outcome=delivered, peer=\"org-b\"|": {"-d", "x=1", "/org-b/v1/tasks"},
			"403 outcome=rejected, reason=denied":    {"/org-b/denied"},
			"503 outcome=policy_unresolved":          {"-H", "Fedhttp-Capability: c", "-H", "Fedhttp-Obligations: residency=eu", "-H", "Fedhttp-Policy-Wait: 0s", "/org-b/x"},
			"400 outcome=refused":                    {"--path-as-is", "/org-b/../x"},
			"404 outcome=unknown_peer":               {"/org-z/x"},
		} {
			args[len(args)-1] = p.url + args[len(args)-1]
			args = append([]string{"-sS", "-o", os.DevNull, "-w", "%{http_code} %header{fedhttp-decision}"}, args...)
			out, err := exec.CommandContext(t.Context(), curl, args...).CombinedOutput()
			if err != nil || !strings.HasPrefix(string(out), strings.TrimSuffix(want, "|")) {
				t.Errorf("%q: %s, %v; want %s", args, out, err, want)
			}
		}
	})
	t.Run("python", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), need(t, "python3"), "-c", python, p.url)
		cmd.Env = append(os.Environ(), "no_proxy=*")
		out, err := cmd.CombinedOutput()
		lines := strings.Split(string(out), "\n")
		for i, want := range []string{"200 outcome=delivered, peer=\"org-b\"", "403 outcome=rejected, reason=denied", "503 outcome=policy_unresolved, reason=policy_deadline", "policy_unresolved no True", "404 outcome=unknown_peer"} {
			if err != nil || !strings.HasPrefix(lines[min(i, len(lines)-1)], want) {
				t.Fatalf("%v, line %d, want %s:\n%s", err, i+1, want, out)
			}
		}
	})
	p.end(t, syscall.SIGTERM)
	if !strings.Contains(p.logs.String(), "msg=stopping") {
		t.Errorf("%s", p.logs)
	}
}

func TestExports(t *testing.T) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"} {
		t.Setenv(name, "")
	}
	for set, want := range map[string]string{ // traces, metrics
		"": "false false", "OTEL_EXPORTER_OTLP_ENDPOINT=http://c": "true true", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://c": "true false",
		"OTEL_METRICS_EXPORTER=otlp": "false true", "OTEL_TRACES_EXPORTER=none": "false false",
	} {
		t.Run(set, func(t *testing.T) {
			if name, value, ok := strings.Cut(set, "="); ok {
				t.Setenv(name, value)
			}
			if got := sprint(exports("TRACES"), exports("METRICS")); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// TestExport has a collector look at what arrives.
func TestExport(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	received := map[string]string{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if unzipped, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, _ = io.ReadAll(unzipped)
		}
		mu.Lock()
		defer mu.Unlock()
		received[r.URL.Path] += string(body)
	}))
	defer collector.Close()
	peer := newPeer(t, fedtest.Config{})
	get := func(p *program) {
		resp, err := http.Get(p.url + "/org-b/x")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	silent := startProgram(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_SDK_DISABLED=true"}, "-peers", peersOf(t, peer))
	get(silent)
	silent.end(t, os.Interrupt)
	p := startProgram(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + collector.URL, "OTEL_SERVICE_NAME=gateway-of-a"}, "-peers", peersOf(t, peer))
	get(p)
	p.end(t, syscall.SIGTERM)
	mu.Lock()
	defer mu.Unlock()
	for path, want := range map[string][]string{
		"/v1/traces": {"gateway-of-a", "federation request", "federation.outcome"}, "/v1/metrics": {"federation.client.decisions"},
	} {
		for _, text := range want {
			if !strings.Contains(received[path], text) {
				t.Errorf("%s has no %s", path, text)
			}
		}
	}
	if n := strings.Count(received["/v1/traces"], "federation request"); n != 1 {
		t.Errorf("%d calls were exported, want that of the second gateway alone", n)
	}
}

// TestVerboseSamples: who looks at the trace on stderr sees all of it, and the
// collector gets what it is to get.
func TestVerboseSamples(t *testing.T) {
	var mu sync.Mutex
	traces := 0
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		traces++
	}))
	defer collector.Close()
	peer := newPeer(t, fedtest.Config{})
	peers := peersOf(t, peer)
	t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.URL+"/v1/traces")
	for _, c := range []struct {
		sampler, argument string
		want              int
	}{{"always_off", "", 0}, {"always_on", "", 1}, {"", "", 1}, {"parentbased_always_off", "", 0}, {"traceidratio", "0", 0}, {"traceidratio", "1", 1}} {
		t.Setenv("OTEL_TRACES_SAMPLER", c.sampler)
		t.Setenv("OTEL_TRACES_SAMPLER_ARG", c.argument)
		runWith(t, "", "get", "-v", "-p", peers, peer.URL).want(t, 0, "* federation request", "* └─ GET")
		mu.Lock()
		if traces != c.want {
			t.Errorf("%s %s: %d exports, want %d", c.sampler, c.argument, traces, c.want)
		}
		traces = 0
		mu.Unlock()
	}
}
