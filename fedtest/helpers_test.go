package fedtest_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

// answer is a response that was read to its end.
type answer struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

func (a answer) problem(t *testing.T) map[string]any {
	t.Helper()
	var p map[string]any
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("body %q: %v", a.body, err)
	}
	return p
}

func request(t *testing.T, url, body string, header ...string) *http.Request {
	t.Helper()
	method, reader := http.MethodGet, io.Reader(nil)
	if body != "" {
		method, reader = http.MethodPost, strings.NewReader(body)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, url, reader)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

func do(c *http.Client, req *http.Request) (answer, error) {
	resp, err := c.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}, nil
}

// get sends a GET, or a POST where there is a body, and wants an answer.
func get(t *testing.T, p *fedtest.Peer, path string, header ...string) answer {
	t.Helper()
	a, err := do(p.Client(), request(t, p.URL+path, "", header...))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// modes are the ways in which a peer can be reached. Whatever a peer does, it
// does in all of them.
var modes = map[string]func(fedtest.Config) *fedtest.Peer{
	"memory": fedtest.NewUnstartedPeer,
	"socket": fedtest.NewPeer,
	"tls":    fedtest.NewTLSPeer,
	"h2c": func(c fedtest.Config) *fedtest.Peer {
		c.HTTP2 = true
		return fedtest.NewUnstartedPeer(c)
	},
	"h2": func(c fedtest.Config) *fedtest.Peer {
		c.HTTP2 = true
		return fedtest.NewTLSPeer(c)
	},
	"memory, separate engine": func(c fedtest.Config) *fedtest.Peer {
		c.SeparateEngine = true
		return fedtest.NewUnstartedPeer(c)
	},
	"socket, separate engine": func(c fedtest.Config) *fedtest.Peer {
		c.SeparateEngine = true
		return fedtest.NewPeer(c)
	},
	"h2, separate engine": func(c fedtest.Config) *fedtest.Peer {
		c.HTTP2, c.SeparateEngine = true, true
		return fedtest.NewTLSPeer(c)
	},
}

func eachMode(t *testing.T, cfg fedtest.Config, test func(t *testing.T, p *fedtest.Peer)) {
	for name, newPeer := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fedtest.CheckLeaks(t)
			p := newPeer(cfg)
			t.Cleanup(p.Close)
			test(t, p)
		})
	}
}

func wantEqual[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func narrowed(r fedtest.Request) fedtest.Verdict {
	if r.Header.Get("X-Scope") == "narrowed" {
		return fedtest.Verdict{Deny: true, Reason: "SCOPE_NARROWED"}
	}
	return fedtest.Verdict{}
}
