package realtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/rego"

	"github.com/fedhttp/fedhttp"
)

var record = flag.Bool("record", false, "write what the peer answers to testdata/captures")

// policy is the peer's. Two tasks are there for what OPA itself can come to: one
// whose decision takes too long, and one whose rules contradict each other.
const policy = `package federation

decision := {"allow": true} if startswith(input.task, "permit")

decision := {"allow": true} if startswith(input.task, "app-")

decision := {"allow": false, "reason": "redistribution is not granted"} if startswith(input.task, "deny")

decision := {"allow": true} if {
	startswith(input.task, "timeout")
	some i in numbers.range(1, 20000)
	some j in numbers.range(1, 20000)
	i * j == -1
}

decision := {"allow": true} if startswith(input.task, "conflict")

decision := {"allow": false} if startswith(input.task, "conflict")
`

// guarded is a peer whose policy engine is OPA. Its routing layer knows one
// route. It says who answers: the routing layer that nothing came to the engine,
// the guard that the engine has decided. Of an engine that has not decided,
// because it is not there, is too slow or fails, it says nothing: the guard
// cannot know what has been looked at.
type guarded struct {
	query *rego.PreparedEvalQuery // nil: the engine is not there
	limit time.Duration
	app   http.Handler
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	task, routed := strings.CutPrefix(r.URL.Path, "/v1/tasks/")
	if !routed {
		w.Header().Set("X-Federation-Policy-Evaluated", "false")
		http.Error(w, "no such route", http.StatusNotFound)
		return
	}
	allow, reason, err := g.decide(r.Context(), task)
	if err != nil {
		http.Error(w, "no decision", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("X-Federation-Policy-Evaluated", "true")
	w.Header().Set("X-Federation-Policy-Digest", policyDigest())
	if !allow {
		if reason != "" {
			w.Header().Set("X-Federation-Policy-Reason", reason)
		}
		http.Error(w, "denied", http.StatusForbidden)
		return
	}
	g.app.ServeHTTP(w, r)
}

var errNoEngine = errors.New("the policy engine is not there")

// decide asks OPA. A decision that is undefined is an empty result without an
// error: no rule allows the task, so it is denied.
func (g *guarded) decide(ctx context.Context, task string) (allow bool, reason string, err error) {
	if g.query == nil {
		return false, "", errNoEngine
	}
	ctx, cancel := context.WithTimeout(ctx, g.limit)
	defer cancel()
	results, err := g.query.Eval(ctx, rego.EvalInput(map[string]any{"task": task}))
	if err != nil || len(results) == 0 {
		return false, "", err
	}
	decision, ok := results[0].Expressions[0].Value.(map[string]any)
	if !ok {
		return false, "", errors.New("the decision is no object")
	}
	allow, _ = decision["allow"].(bool)
	reason, _ = decision["reason"].(string)
	return allow, reason, nil
}

func policyDigest() string {
	sum := sha256.Sum256([]byte(policy))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// newGuarded starts two peers before the same application: one with its engine,
// one that has lost it.
func newGuarded(t *testing.T, app *app) (up, down string) {
	t.Helper()
	query, err := rego.New(rego.Query("data.federation.decision"), rego.Module("federation.rego", policy)).PrepareForEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	start := func(query *rego.PreparedEvalQuery) string {
		server := httptest.NewServer(&guarded{query, time.Second, http.HandlerFunc(app.serve)})
		t.Cleanup(server.Close)
		return server.URL
	}
	return start(&query), start(nil)
}

func TestOPA(t *testing.T) {
	t.Parallel()
	trust := newTrust(t)
	app := newApp(t, nil)
	up, down := newGuarded(t, app)
	terms := fedhttp.Terms{"output-licensing": "internal-reuse-only"}
	key := fedhttp.PolicyKey{Peer: "opa", Capability: "summarize", Epoch: 1}
	book := &fedhttp.PolicyBook{}
	if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: policyDigest()}); err != nil {
		t.Fatal(err)
	}
	book.Accept(fedhttp.Policy{PolicyKey: key, Digest: policyDigest(), Terms: terms})

	s := &site{server: "opa", url: up, app: app, trust: trust, book: book, prefix: "/v1/tasks", peer: func(p *fedhttp.Peer) {
		p.Receipt = fedhttp.RequireReceipt
		p.Routes = []fedhttp.Route{{Pattern: "/", Task: fedhttp.Task{Capability: "summarize", Obligations: terms}}}
	}}
	s.gateway = newGateway(t, trust, up, down)
	s.play(t, []situation{
		{name: "permit-200", app: 1},
		{name: "deny-403"},
		{name: "undefined-403"},
		{name: "timeout-503"},
		{name: "conflict-503"},
		{name: "down-503", url: down},
		{name: "app-403-passthrough", app: 1},
		{name: "app-503-passthrough", app: 1},
		{name: "unknown-route-404", path: "/v2/nothing", sends: 3},
	})
}

// TestOPADecides: what the situations are named for is what OPA does.
func TestOPADecides(t *testing.T) {
	t.Parallel()
	query, err := rego.New(rego.Query("data.federation.decision"), rego.Module("federation.rego", policy)).PrepareForEval(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := guarded{query: &query, limit: time.Second}
	for task, want := range map[string]string{
		"permit": "allow", "deny": "redistribution is not granted", "undefined": "",
		"timeout": "eval_cancel_error", "conflict": "eval_conflict_error",
	} {
		allow, got, err := g.decide(t.Context(), task)
		if allow {
			got = "allow"
		}
		if err != nil {
			got = err.Error()
		}
		if failed := strings.HasPrefix(want, "eval_"); failed != (err != nil) || !failed && got != want || !strings.Contains(got, want) {
			t.Errorf("%s: allow %v, %q, %v; want %s", task, allow, got, err, want)
		}
	}
}

// TestOPACaptures holds the recorded answers to what the peer says now; with
// -record it writes them.
func TestOPACaptures(t *testing.T) {
	t.Parallel()
	up, down := newGuarded(t, newApp(t, nil))
	for name, at := range map[string]string{
		"permit-200": up, "deny-403": up, "undefined-403": up, "timeout-503": up, "conflict-503": up, "down-503": down,
		"app-403-passthrough": up, "app-503-passthrough": up, "unknown-route-404": up,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := "/v1/tasks/" + name
			if strings.HasPrefix(name, "unknown-route") {
				path = "/v2/nothing"
			}
			got := exchange(t, strings.TrimPrefix(at, "http://"), path)
			file := filepath.Join(capturesDir, "opa-"+name+".http")
			if *record {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(undated(got), undated(want)) {
				t.Errorf("the peer says\n%s\nrecorded was\n%s", got, want)
			}
		})
	}
}

// exchange sends a request and returns the bytes of the answer.
func exchange(t *testing.T, addr, path string) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: registry.example\r\nContent-Length: 6\r\n\r\na task"); err != nil {
		t.Fatal(err)
	}
	var raw bytes.Buffer
	resp, err := http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &raw)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return raw.Bytes()
}

func undated(answer []byte) []byte {
	var kept [][]byte
	for line := range bytes.SplitSeq(answer, []byte("\r\n")) {
		if !bytes.HasPrefix(line, []byte("Date: ")) {
			kept = append(kept, line)
		}
	}
	return bytes.Join(kept, []byte("\r\n"))
}
