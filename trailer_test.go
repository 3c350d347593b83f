package fedhttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// TestSignalInTrailer: where the peer announces its word for a trailer, the one in the
// header is not the last, and nothing is sent again by it.
func TestSignalInTrailer(t *testing.T) {
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		for announced, want := range map[string]fedhttp.Outcome{
			"X-Federation-Policy-Evaluated": fedhttp.OutcomeAmbiguous, "X-Other": fedhttp.OutcomeDelivered,
		} {
			var came atomic.Int32
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if came.Add(1) > 1 {
					return
				}
				w.Header().Set("Trailer", announced)
				w.Header().Set("X-Federation-Policy-Evaluated", "false")
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, "no")
				w.Header().Set(http.TrailerPrefix+announced, "true")
			}))
			server.EnableHTTP2 = http2
			if http2 {
				server.StartTLS()
			} else {
				server.Start()
			}
			t.Cleanup(server.Close)
			version := new(atomic.Int32)
			tr := newTestTransport(t, fedhttp.Config{
				Base: server.Client().Transport, Peers: []fedhttp.Peer{testPeer("b", server.URL)},
				Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
					return fedhttp.Anchor{Version: string('a' + version.Add(1))}, nil
				}),
			})
			resp := getWith(context.Background(), t, tr, server.URL)
			resp.Body.Close()
			d, _ := fedhttp.DecisionFromResponse(resp)
			if d.Outcome != want || (came.Load() == 1) != (want == fedhttp.OutcomeAmbiguous) {
				t.Errorf("HTTP/2 %v, %s: %v (%v), sent %d times", http2, announced, d.Outcome, d.Reason, came.Load())
			}
		}
	}
}
