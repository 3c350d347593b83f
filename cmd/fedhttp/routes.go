package main

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/fedhttp/fedhttp"
)

// routeTable has the routes of a peer. They match as fedhttp's own do.
type routeTable struct {
	mux   *http.ServeMux
	tasks map[string]fedhttp.Task
}

// routesOf expects routes that fedhttp has accepted.
func routesOf(all []fedhttp.Route) routeTable {
	r := routeTable{http.NewServeMux(), make(map[string]fedhttp.Task, len(all))}
	for _, route := range all {
		r.mux.Handle(route.Pattern, http.NotFoundHandler())
		r.tasks[route.Pattern] = route.Task
	}
	return r
}

// overridden names what a client says of its request and the operator's file says
// otherwise; "" where they agree. To fedhttp the caller is the operator's program, and
// its word counts; a client of the gateway can add to the file, and not change it.
func (r routeTable) overridden(method string, u *url.URL, said fedhttp.Task) string {
	if capitals := strings.ToUpper(method); capitals != method { // which many servers take it for
		if field := r.overridden(capitals, u, said); field != "" {
			return field
		}
	}
	// A path with escapes may be read in two ways, and both count.
	for _, path := range []*url.URL{{Path: u.Path, RawPath: u.RawPath}, {Path: u.Path}} {
		_, pattern := r.mux.Handler(&http.Request{Method: method, URL: path})
		file := r.tasks[pattern]
		switch {
		case differs(said.Capability, file.Capability):
			return headerCapability
		case differs(said.Scope, file.Scope):
			return headerScope
		}
		for _, key := range slices.Sorted(maps.Keys(file.Obligations)) {
			if value, given := said.Obligations[key]; given && value != file.Obligations[key] {
				return headerObligations + ": " + key
			}
		}
	}
	return ""
}

// overrides are fields with which servers let a client replace the method or the path
// of its request line.
var overrides = map[string]bool{
	"X-Http-Method-Override": true, "X-Http-Method": true, "X-Method-Override": true,
	"X-Original-Url": true, "X-Rewrite-Url": true,
}

// evaded names a field by which the peer could take a request for another than the
// routes do; "" where there is none, or no route. Many servers read "_" as "-".
func (r routeTable) evaded(h http.Header) string {
	if len(r.tasks) == 0 {
		return ""
	}
	for name := range h {
		if canonical := http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")); overrides[canonical] {
			return canonical
		}
	}
	return ""
}

func differs(said, file string) bool { return said != "" && file != "" && said != file }
