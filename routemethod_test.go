package fedhttp_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// TestRouteMethods: many servers read a method in any letter case, so that another
// spelling must not be rid of what the route's task is obliged to.
func TestRouteMethods(t *testing.T) {
	t.Parallel()
	tr := newTestTransport(t, fedhttp.Config{Base: answering(response(200)), Logger: quietLogger, Peers: []fedhttp.Peer{{
		ID: "b", Origins: []string{stubURL}, Hold: fedhttp.HoldPolicy{Max: -1},
		Routes: []fedhttp.Route{
			{Pattern: "POST /v1/tasks", Task: fedhttp.Task{Capability: "summarise", Obligations: fedhttp.Terms{"residency": "eu"}}},
			{Pattern: "purge /v1/cache", Task: fedhttp.Task{Capability: "purge", Obligations: fedhttp.Terms{"residency": "eu"}}},
			{Pattern: "CONNECT /v2/{rpc}/go/", Task: fedhttp.Task{Capability: "rpc", Obligations: fedhttp.Terms{"residency": "eu"}}},
			{Pattern: "/v1/any/", Task: fedhttp.Task{Capability: "any", Obligations: fedhttp.Terms{"residency": "eu"}}},
		},
	}}})
	for _, tt := range []struct {
		method, path string
		held         bool
	}{
		{"POST", "/v1/tasks", true},
		{"post", "/v1/tasks", true},
		{"pOsT", "/v1/./tasks", true},
		{"purge", "/v1/cache", true},
		{"PURGE", "/v1/cache", false}, // the pattern has no such method
		{"get", "/v1/tasks", false},
		{"GET", "//v1/./any/1", true},
		{"CONNECT", "/v1/any/1", true},
		{"CONNECT", "//v1/./any/1", true},
		{"CONNECT", "/v2/../v1/any/", true},
		{"CONNECT", "/v1/any/../other", true}, // ServeMux leaves the path of a CONNECT as it is
		{"CONNECT", "/v1/any", true},
		{"CONNECT", "/v2/x/go/1", true},
		{"CONNECT", "/v2/x/go", true}, // it would send that to the path with a slash
		{"CONNECT", "/v1/other", false},
		{"", "/v1/tasks", false},
	} {
		req, err := http.NewRequest(http.MethodGet, stubURL+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Method = tt.method
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		if held := errors.Is(err, fedhttp.ErrPolicyUnresolved); held != tt.held || err != nil && !held {
			t.Errorf("%q %s: %v", tt.method, tt.path, err)
		}
	}
}
