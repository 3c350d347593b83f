package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// asProgram makes the test's own binary the program, for tests that need a
// process.
const asProgram = "FEDHTTP_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Unsetenv(peersVariable)
	for _, s := range fleetSettings {
		os.Unsetenv(s.variable)
	}
	os.Exit(m.Run())
}

// result is what a command line came to.
type result struct {
	code     int
	out, err string
}

func runWith(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, streams{strings.NewReader(stdin), &out, &errs})
	return result{code, out.String(), errs.String()}
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (r result) want(t *testing.T, code int, out ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.out, r.err)
	}
	for _, part := range out {
		if !strings.Contains(r.out+r.err, part) {
			t.Errorf("%q is missing in\nstdout: %s\nstderr: %s", part, r.out, r.err)
		}
	}
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	want := map[fedhttp.Outcome]int{
		fedhttp.OutcomeDelivered: 0, fedhttp.OutcomeRejected: 10, fedhttp.OutcomeRoutingFailed: 11, fedhttp.OutcomeAmbiguous: 12,
		fedhttp.OutcomePolicyUnresolved: 13, fedhttp.OutcomeScopeDenied: 14, fedhttp.OutcomePeerUnavailable: 15,
		fedhttp.OutcomeUnknownPeer: 16, fedhttp.OutcomeTaskRequired: 17, fedhttp.OutcomePolicyMismatch: 18, fedhttp.OutcomeCanceled: 19,
	}
	docs, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	for o := fedhttp.OutcomeDelivered; ; o++ {
		if _, err := o.MarshalText(); err != nil {
			break // past the end of the set
		}
		code, listed := want[o]
		if !listed || exitCode(o) != code {
			t.Errorf("%v: code %d, want %d", o, exitCode(o), code)
		}
		if row := fmt.Sprintf("| `%v` | %d |", o, code); !strings.Contains(string(docs), row) {
			t.Errorf("docs/cli.md has no row %q", row)
		}
		if o != fedhttp.OutcomeDelivered && !strings.Contains(string(docs), `<a id="`+o.String()+`"></a>`) {
			t.Errorf("docs/cli.md has no place for problems of the type %v", o)
		}
	}
}

func TestUsage(t *testing.T) {
	t.Parallel()
	peers := write(t, "peers.yaml", onePeer)
	for _, args := range [][]string{
		{"nonsense"}, {"check"}, {"check", "--nonsense", peers}, {"explain"}, {"explain", "-p", peers, "--entry", "x"},
		{"explain", "-p", peers, "a", "b"}, {"explain", "-p", peers, "--peer", "org-z", "-"},
		{"explain", "-p", peers, "--request", "GET", "-"}, {"explain", "-p", peers, "--request", "GET x", "-"},
		{"explain", "-p", peers, "--request", "g\tet /", "-"}, {"explain", "-p", peers, "--entry", "1", "-"},
		{"explain", "-p", peers, "--anchor-issued-at", "now", "-"}, {"explain", "-p", peers, "--obligation", "a=b", "-"},
	} {
		if r := runWith(t, "HTTP/1.1 403 Forbidden\n\n", args...); r.code != exitUsage || r.err == "" {
			t.Errorf("%q: exit code %d, want %d; stderr %q", args, r.code, exitUsage, r.err)
		}
	}
	for _, args := range [][]string{{}, {"-h"}, {"-help"}, {"help", "explain"}, {"completion", "bash"}, {"-version"}} {
		if r := runWith(t, "", args...); r.code != 0 || r.out == "" {
			t.Errorf("%q: exit code %d, stdout %q", args, r.code, r.out)
		}
	}
}

func TestSingleDash(t *testing.T) {
	t.Parallel()
	root := newRoot(streams{})
	for in, want := range map[string]string{
		"explain -peers a -peer b -json":      "explain --peers a --peer b --json",
		"explain -peers=a":                    "explain --peers=a",
		"explain -p -peers -json":             "explain -p -peers --json",
		"explain --peer -json -json":          "explain --peer -json --json",
		"explain --json -peers a":             "explain --json --peers a",
		"explain -peers a -- -json":           "explain --peers a -- -json",
		"explain -pa -":                       "explain -pa -",
		"explain -unknown -help":              "explain -unknown --help",
		"explain --json=false -degraded file": "explain --json=false --degraded file",
	} {
		if got := strings.Join(singleDash(root, strings.Fields(in)), " "); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\tb\x1b[2Jé\xff\"\\": `a\tb\x1b[2J\u00e9\xff"\`, strings.Repeat("x", 300): strings.Repeat("x", 256) + "...", "": "",
	} {
		if got := plain(in); got != want || plain(got) != got && len(got) <= maxShown {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

var background = context.Background()

func sprint(values ...any) string { return strings.TrimSuffix(fmt.Sprintln(values...), "\n") }

func TestCompletePeer(t *testing.T) {
	t.Parallel()
	peers := write(t, "peers.yaml", onePeer+"  - {id: \"org d/e\", origins: [https://d.example]}\n")
	runWith(t, "", "__complete", "explain", "-peers", peers, "--peer", "").want(t, 0, "org-b\norg d/e\n")
	if r := runWith(t, "", "__complete", "explain", "-peers", peers+".none", "--peer", ""); strings.Contains(r.out, "org") {
		t.Errorf("%s", r.out)
	}
}
