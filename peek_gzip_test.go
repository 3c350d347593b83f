package fedhttp

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestGzipToTheEndOfConnection: gzip has an end of its own, but what it ends may be one
// member of several, and the connection may have broken off between them.
func TestGzipToTheEndOfConnection(t *testing.T) {
	t.Parallel()
	member := func(text string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write([]byte(text))
		_ = z.Close()
		return b.String()
	}
	const head = "HTTP/1.1 503 x\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n"
	whole := member("no healthy upstream")
	all := whole + member(" in zone x: tried in zone y")
	for name, tt := range map[string]struct {
		wire  string
		sends int
	}{
		"of known length":                 {head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(whole), whole), 2},
		"chunked":                         {head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(whole), whole), 2},
		"chunked, two members":            {head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(all), all), 1},
		"to the end of the connection":    {head + "Connection: close\r\n\r\n" + whole, 1},
		"the same, on HTTP/1.0":           {"HTTP/1.0" + head[len("HTTP/1.1"):] + "\r\n" + whole, 1},
		"of known length, two members":    {head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(all), all), 1},
		"chunked, broken off in between":  {head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(whole), whole), 1},
		"of a length, broken off between": {head + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(all), whole), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer := fedtest.NewPeer(fedtest.Config{})
			defer peer.Close()
			peer.On("/t", fedtest.Wire(tt.wire))
			tr, err := NewTransport(Config{
				Anchors: StaticAnchors{"b": {Version: "v"}}, Logger: slog.New(slog.DiscardHandler),
				Peers: []Peer{{
					ID: "b", Origins: []string{peer.URL}, Retry: RetryPolicy{MaxAttempts: 2, MinBackoff: 1, MaxBackoff: 1, MinRefreshInterval: 1},
					Signals: Signals{Dialects: []Dialect{{Kind: DialectEnvoy, Hops: []Hop{{Name: "edge"}}}}},
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer tr.Close()
			req, err := http.NewRequestWithContext(ContextWithTask(t.Context(), Task{ID: "t"}), http.MethodGet, peer.URL+"/t", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if n := peer.Sends("/t"); n != tt.sends {
				d, _ := DecisionFromResponse(resp)
				t.Errorf("%d sends, want %d: %+v", n, tt.sends, d)
			}
		})
	}
}
