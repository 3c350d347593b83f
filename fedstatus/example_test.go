package fedstatus_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedstatus"
)

// The page belongs on the administrators' listener, behind authentication.
func Example() {
	transport, err := fedhttp.NewTransport(fedhttp.Config{
		Peers: []fedhttp.Peer{{ID: "org-b", Origins: []string{"https://registry.b.example"}}},
	})
	if err != nil {
		panic(err)
	}
	defer transport.Close()
	transport.SetDegraded("org-b", true)

	operatorsOnly := func(page http.Handler) http.Handler { // yours
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, _, ok := r.BasicAuth(); !ok || user != "operator" {
				w.Header().Set("WWW-Authenticate", "Basic")
				http.Error(w, "operators only", http.StatusUnauthorized)
				return
			}
			page.ServeHTTP(w, r)
		})
	}
	admin := http.NewServeMux()
	admin.Handle("/federation", operatorsOnly(fedstatus.Handler(transport)))
	server := httptest.NewServer(admin) // yours listens on 127.0.0.1 or the management network
	defer server.Close()

	// A browser gets the page, and a program the same as JSON.
	req, err := http.NewRequest(http.MethodGet, server.URL+"/federation", nil)
	if err != nil {
		panic(err)
	}
	req.SetBasicAuth("operator", "…")
	req.Header.Set("Accept", "application/json")
	resp, err := server.Client().Do(req)
	if err != nil {
		panic(err)
	}
	defer resp.Body.Close()
	var status fedstatus.Status
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
		panic(err)
	}
	for _, peer := range status.Peers {
		fmt.Println(peer.ID, peer.Breaker, peer.Problems)
	}
	// Output:
	// org-b closed [degraded]
}
