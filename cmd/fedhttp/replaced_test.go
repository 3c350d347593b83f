package main

import (
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// replace puts another file in the place of one, which is as old as all the others that
// are put there: files that a build has made reproducible are, and those that a tool has
// copied with their times.
func replace(t *testing.T, path, content string) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(next, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

// TestPoliciesReplaced: a file of policies is taken for what it has, not for its age.
func TestPoliciesReplaced(t *testing.T) {
	t.Parallel()
	path := write(t, "policies.yaml", "")
	logs := &lockedBuffer{}
	w := &policyWatch{path: path, book: &fedhttp.PolicyBook{}, logger: slog.New(slog.NewTextHandler(logs, nil)), known: func(string) bool { return true }}
	if err := w.load(); err != nil {
		t.Fatal(err)
	}
	goes := func(want string) {
		t.Helper()
		auth, _ := w.book.Authorize("org-b", fedhttp.Task{Capability: "c", Obligations: fedhttp.Terms{"residency": "eu"}}, nil, time.Now())
		if auth.Digest != want {
			t.Errorf("a task goes under %q, want %q; %s", auth.Digest, want, logs)
		}
	}
	agreed := func(digest string) string {
		return "policies: [{peer: org-b, capability: c, epoch: 1, digest: " + digest + "}]"
	}
	look := func() { w.look(t.Context()) }

	replace(t, path, agreed("d1"))
	look()
	goes("d1")
	replace(t, path, agreed("d2"))
	look()
	goes("d2")

	// A writer that begins with an empty file has not taken everything back yet.
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look()
	goes("d2")
	replace(t, path, agreed("d3"))
	look()
	goes("d3")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	look()
	look()
	goes("")
	replace(t, path, agreed("d4"))
	look()
	goes("d4")

	// One that is not there changes nothing, which is said once.
	away := path + ".away"
	for range 2 {
		if err := os.Rename(path, away); err != nil {
			t.Fatal(err)
		}
		look()
		look()
		goes("d4")
		if err := os.Rename(away, path); err != nil {
			t.Fatal(err)
		}
		look()
	}
	if n := strings.Count(logs.String(), "policies not taken"); n != 2 {
		t.Errorf("it was away twice, and that is said %d times: %s", n, logs)
	}
}

// TestAnchorsReplaced: an anchor that stands in another file was written anew, however old
// that is.
func TestAnchorsReplaced(t *testing.T) {
	t.Parallel()
	path := write(t, "anchors.yaml", "")
	replace(t, path, "anchors: [{peer: org-b, version: v1}]")
	file, err := newAnchorFile(path, &http.Transport{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(want string) {
		t.Helper()
		if a, err := file.FetchAnchor(t.Context(), "org-b"); a.Version != want || (err != nil) != (want == "") {
			t.Errorf("%+v, %v; want %q", a, err, want)
		}
	}
	fetch("v1")
	fetch("")
	replace(t, path, "anchors: [{peer: org-b, version: v2}]")
	fetch("v2")
	fetch("")
}
