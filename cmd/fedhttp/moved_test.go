package main

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// TestOriginMoved: between two files of peers an origin can be another peer's to the
// transport than to the gateway. What that peer answers is not passed on as the first's.
func TestOriginMoved(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	transport, err := fedhttp.NewTransport(fedhttp.Config{Peers: []fedhttp.Peer{{ID: "org-c", Origins: []string{peer.URL}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	g := newGateway(transport, []fedhttp.Peer{{ID: "org-b", Origins: []string{peer.URL}}}, "0", true, slog.New(slog.DiscardHandler), &client{})
	w := httptest.NewRecorder()
	g.ServeHTTP(w, httptest.NewRequest("GET", "/org-b/x", nil))
	a := answer{Response: w.Result(), body: w.Body.String()}
	if got := a.problem(t); got.Status != 502 || got.Sent != "yes" || got.SafeToResend || got.Peer != "org-b" {
		t.Errorf("%+v", got)
	}
	g.setPeers([]fedhttp.Peer{{ID: "org-c", Origins: []string{peer.URL}}})
	w = httptest.NewRecorder()
	if g.ServeHTTP(w, httptest.NewRequest("GET", "/org-c/x", nil)); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
