package fedhttp

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// TestHTTPAnchorsAndProxy: plain http does not go through a proxy, where anybody on
// the way could say who the peer is. https does. The environment is read once in a
// process, so this is one of its own.
func TestHTTPAnchorsAndProxy(t *testing.T) {
	if at := os.Getenv("FEDHTTP_TEST_ANCHOR"); at != "" {
		s := newAnchors(t, HTTPAnchors{URLs: map[string]string{"b": at}})
		if a, err := s.FetchAnchor(t.Context(), "b"); (err == nil) != strings.HasPrefix(at, "http:") {
			t.Errorf("%s: %+v, %v", at, a, err)
		}
		return
	}
	checkLeaks(t)
	t.Parallel()
	var mu sync.Mutex
	var proxied []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		proxied = append(proxied, r.Method+" "+r.Host)
		mu.Unlock()
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	server := httptest.NewServer(answerWith(pemType, pemOf(newTestCA(t, "ca"))))
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	for at, want := range map[string]string{
		"http://LOCALHOST" + port: "",
		"http://127.0.0.1" + port: "",
		"https://b.example":       "CONNECT b.example:443",
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHTTPAnchorsAndProxy$", "-test.count=1")
		cmd.Env = append(os.Environ(), "FEDHTTP_TEST_ANCHOR="+at, "NO_PROXY=", "no_proxy=",
			"HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "HTTPS_PROXY="+proxy.URL, "https_proxy="+proxy.URL)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", at, err, out)
		}
		mu.Lock()
		vtWant(t, at+": what the proxy was asked", strings.Join(proxied, ", "), want)
		proxied = nil
		mu.Unlock()
	}
}

// TestHTTPAnchorsDialLoopback: a name of loopback may be resolved to any address, and
// only loopback's are dialled. The addresses are those of documentation.
func TestHTTPAnchorsDialLoopback(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for _, host := range []string{"192.0.2.1", "[2001:db8::1]", "[::ffff:192.0.2.1]"} {
		s := newAnchors(t, HTTPAnchors{URLs: map[string]string{"b": "http://anchors.localhost/anchor"}})
		s.peers["b"].url = &url.URL{Scheme: "http", Host: host, Path: "/anchor"} // as if resolved
		fetchFails(t, s, "beyond loopback")
	}
	for _, address := range []string{"127.0.0.1:80", "127.1.2.3:80", "[::1]:80", "[::1%lo]:80", "[::ffff:127.0.0.1]:80"} {
		if err := onlyLoopback("tcp", address, nil); err != nil {
			t.Error(err)
		}
	}
}
