package fedhttp_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// TestHostOfAnotherPeer: servers go by the Host. One that is another peer's would have
// that peer answer, under what was agreed with the peer of the URL.
func TestHostOfAnotherPeer(t *testing.T) {
	t.Parallel()
	peers := []fedhttp.Peer{
		{ID: "b", Origins: []string{"https://b.example", "https://b2.example", "https://shared.example:1"}},
		{ID: "c", Origins: []string{"https://c.example:8443", "https://shared.example:2", "https://[2001:db8::1]"}},
	}
	const bURL, elsewhere = "https://b.example/v1", "https://elsewhere.example/v1"
	for _, tt := range []struct {
		url, host string
		want      fedhttp.Reason // ReasonNone: it is sent
	}{
		{url: bURL},
		{url: bURL, host: "b.example"},
		{url: bURL, host: "B.example.:443"},
		{url: bURL, host: "b2.example"},
		{url: bURL, host: "elsewhere.example"},
		{url: bURL, host: "shared.example"},
		{url: "https://shared.example:1/", host: "shared.example:2"}, // whose Host says no port to many servers
		{url: elsewhere},
		{url: elsewhere, host: "other.example"},

		{url: bURL, host: "c.example", want: fedhttp.ReasonBadURL},
		{url: bURL, host: "c.example:8443", want: fedhttp.ReasonBadURL},
		{url: bURL, host: "C.Example.", want: fedhttp.ReasonBadURL},
		{url: bURL, host: "[2001:DB8:0::1]", want: fedhttp.ReasonBadURL},
		{url: bURL, host: "\uff43.example", want: fedhttp.ReasonBadURL},
		{url: bURL, host: "c.example/x", want: fedhttp.ReasonBadURL},
		{url: elsewhere, host: "c.example", want: fedhttp.ReasonBadURL},
	} {
		sent := false
		base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
			sent = true
			return answering(response(200))(r)
		})
		tr := newTestTransport(t, fedhttp.Config{Base: base, Peers: peers, Unlisted: fedhttp.PassUnlisted})
		req, err := http.NewRequest(http.MethodGet, tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.host != "" {
			req.Host = tt.host
		}
		resp, err := tr.RoundTrip(req)
		var failed *fedhttp.Error
		switch {
		case err == nil:
			resp.Body.Close()
			if tt.want != fedhttp.ReasonNone {
				t.Errorf("%s with Host %q was sent", tt.url, tt.host)
			}
		case !errors.As(err, &failed) || failed.Decision.Reason != tt.want || sent || !errors.Is(err, fedhttp.ErrUnknownPeer):
			t.Errorf("%s with Host %q: %v", tt.url, tt.host, err)
		}
	}
}
