package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

func TestOverridden(t *testing.T) {
	t.Parallel()
	route := func(pattern string, task fedhttp.Task) fedhttp.Route {
		return fedhttp.Route{Pattern: pattern, Task: task}
	}
	target := targetsOf([]fedhttp.Peer{{ID: "org-b", Origins: []string{"https://b.example"}, Routes: []fedhttp.Route{
		route("POST /v1/tasks", fedhttp.Task{Capability: "summarize", Scope: "s", Obligations: fedhttp.Terms{"residency": "eu", "a": "b"}}),
		route("/v1/{id}", fedhttp.Task{Capability: "any"}),
		route("/v1/a/b", fedhttp.Task{Capability: "deep"}),
	}}})["org-b"]
	terms := func(entries ...string) fedhttp.Task {
		terms, err := parseTerms("--obligation", entries)
		if err != nil {
			t.Fatal(err)
		}
		return fedhttp.Task{Obligations: terms}
	}
	for _, c := range []struct {
		method, path string
		said         fedhttp.Task
		want         string
	}{
		{"POST", "/v1/tasks", fedhttp.Task{}, ""},
		{"POST", "/v1/tasks", terms("residency=eu", "more=x"), ""},
		{"POST", "/v1/tasks", fedhttp.Task{ID: "task-7", Capability: "summarize", Scope: "s"}, ""},
		{"POST", "/v1/tasks", terms("residency=us"), "Fedhttp-Obligations: residency"},
		{"POST", "/v1/tasks", terms("a=", "residency=us"), "Fedhttp-Obligations: a"},
		{"POST", "/v1/tasks", fedhttp.Task{Capability: "other"}, headerCapability},
		{"POST", "/v1/tasks", fedhttp.Task{Scope: "other"}, headerScope},
		{"POST", "/v1//tasks", terms("residency=us"), "Fedhttp-Obligations: residency"}, // which fedhttp cleans first
		{"post", "/v1/tasks", terms("residency=us"), "Fedhttp-Obligations: residency"},  // which a server may take for POST
		{"GET", "/v1/tasks", terms("residency=us"), ""},
		{"GET", "/v1/tasks", fedhttp.Task{Scope: "other"}, ""},
		{"GET", "/v1/a%2Fb", fedhttp.Task{Capability: "deep"}, headerCapability}, // two readings, two routes
		{"GET", "/v1/a%2Fb", fedhttp.Task{Capability: "any"}, headerCapability},
		{"GET", "/elsewhere", fedhttp.Task{Capability: "other"}, ""},
	} {
		u, ok := target.at(c.path, "")
		if !ok {
			t.Fatal(c.path)
		}
		if got := target.routes.overridden(c.method, u, c.said); got != c.want {
			t.Errorf("%s %s, %+v: %q, want %q", c.method, c.path, c.said, got, c.want)
		}
	}
}

// TestProxyRoutes: a client adds to what the operator has written, and changes nothing.
func TestProxyRoutes(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{Handler: http.HandlerFunc(echo)})
	p := startProxy(t, "-peers", peersOf(t, peer, "hold: {max: -1}", "routes: [{pattern: POST /v1/tasks, task: {capability: summarize, scope: s, obligations: {residency: eu}}}]"))
	for _, header := range [][]string{{headerObligations, "residency=us"}, {headerCapability, "other"}, {headerScope, "other"}} {
		a := p.do(t, "POST", "/org-b/v1/tasks", strings.NewReader("x"), header...)
		if got := a.problem(t); got.Status != 403 || got.Outcome != "refused" || !strings.Contains(got.Detail, header[0]) {
			t.Errorf("%q: %+v", header, got)
		}
	}
	a := p.do(t, "POST", "/org-b/v1/tasks", strings.NewReader("x"), headerObligations, "residency=eu, more=x")
	if got := a.problem(t); got.Outcome != "policy_unresolved" || got.Capability != "summarize" {
		t.Errorf("%+v", got)
	}
	if a := p.do(t, "GET", "/org-b/v1/tasks", nil, headerScope, "other"); a.StatusCode != 200 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}
