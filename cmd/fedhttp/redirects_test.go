package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestRedirects: clients that follow redirects never come to another peer so.
func TestRedirects(t *testing.T) {
	t.Parallel()
	for name, follow := range map[string]func(t *testing.T, p *running, from string) (end string){
		"curl": func(t *testing.T, _ *running, from string) string {
			out, _ := exec.CommandContext(t.Context(), need(t, "curl"), "-sSL", "--noproxy", "*", "--max-redirs", "3", "-d", "task", from).CombinedOutput() // it may give up
			return string(out)
		},
		"WHATWG": followWHATWG,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := newPeer(t, fedtest.Config{})
			peer := newPeer(t, fedtest.Config{})
			p := startProxy(t, "-peers", write(t, "peers.yaml", "peers:\n  - {id: org-b, origins: ["+peer.URL+"]}\n  - {id: org-c, origins: ["+other.URL+"]}\n"))
			port := p.url[strings.LastIndexByte(p.url, ':'):]
			for _, location := range []string{"/%2e%2e/org-c/stolen", "/.%2E/org-c/stolen", "http://localhost" + port + "/org-c/stolen", "http://127.1" + port + "/org-c/stolen",
				"http:/org-c/stolen", p.url + "/org-c/stolen", "/../org-c/stolen", "\\..\\org-c\\stolen", "/.\t./org-c/stolen"} {
				// As it is, it leads there.
				to, err := whatwg.ParseRef(p.url+"/org-b/x", location)
				if err != nil || to.Pathname() != "/org-c/stolen" || ":"+to.Port() != port {
					t.Errorf("%q leads to %v, %v", location, to, err)
				}
				peer.Otherwise(fedtest.Wire("HTTP/1.1 307 x\r\nLocation: " + location + "\r\nContent-Length: 0\r\n\r\n"))
				end := follow(t, p, p.url+"/org-b/x")
				if log := other.Routing.Log(); len(log) > 0 {
					t.Fatalf("%q leads to the other peer: %s", location, end)
				}
			}
		})
	}
}

// followWHATWG follows redirects as browsers and fetch do: by the WHATWG URL Standard, to
// which an escaped dot is a dot, a backslash a slash and 127.1 an address, unlike to Go.
func followWHATWG(t *testing.T, p *running, from string) (end string) {
	for range 4 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, from, strings.NewReader("task"))
		if err != nil {
			return err.Error()
		}
		resp, err := p.client.Do(req)
		if err != nil {
			return err.Error()
		}
		resp.Body.Close()
		location := resp.Header.Get("Location")
		if location == "" {
			return fmt.Sprint(from, " ", resp.StatusCode)
		}
		next, err := whatwg.ParseRef(from, location)
		if err != nil {
			return err.Error()
		}
		from = next.Href(true)
	}
	return "too many redirects"
}
