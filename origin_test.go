package fedhttp

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// TestOrigins: spellings of one origin are one origin.
func TestOrigins(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://registry.b.example":      "https://registry.b.example",
		"https://registry.b.example/":     "https://registry.b.example",
		"https://registry.b.example:443":  "https://registry.b.example",
		"https://registry.b.example:0443": "https://registry.b.example",
		"https://registry.b.example:":     "https://registry.b.example",
		"HTTPS://Registry.B.Example":      "https://registry.b.example",
		"https://registry.b.example.":     "https://registry.b.example",
		"https://registry.b.example.:443": "https://registry.b.example",
		"https://registry.b.example:8443": "https://registry.b.example:8443",
		"https://registry.b.example:80":   "https://registry.b.example:80",
		"https://xn--bcher-kva.example":   "https://xn--bcher-kva.example",
		"http://localhost:80":             "http://localhost",
		"http://127.0.0.1:8080":           "http://127.0.0.1:8080",
		"http://[::1]":                    "http://[::1]",
		"http://[::ffff:127.0.0.1]":       "http://127.0.0.1",
		"https://[::FFFF:c000:201]:443":   "https://192.0.2.1",
		"http://[0:0:0:0:0:0:0:1]:80":     "http://[::1]",
		"https://[2001:DB8::1]:443":       "https://[2001:db8::1]",
		"https://a_b.example":             "https://a_b.example",
		"https://" + longHost(253):        "https://" + longHost(253),
	} {
		got, err := parseOrigin(text)
		if err != nil || got.String() != want {
			t.Errorf("parseOrigin(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
}

func longHost(n int) string { return strings.Repeat("a.", n/2) + strings.Repeat("a", n%2) }

func TestBadOrigins(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "registry.b.example", "registry.b.example:443", "//registry.b.example", "https:", "https://", "https:///path", "https://:443",
		"ftp://registry.b.example", "wss://registry.b.example", "https:registry.b.example",
		"https://user@registry.b.example", "https://user:secret@registry.b.example",
		"https://registry.b.example/v1", "https://registry.b.example?x", "https://registry.b.example?", "https://registry.b.example#x",
		"https://registry.b.example:0", "https://registry.b.example:65536", "https://registry.b.example:-1", "https://registry.b.example:+443",
		"https://registry.b.example:443:443", "https://registry.b.example:https", "https://registry.b.example:4４3",
		"https://bücher.example", "https://ｒegistry.example", "https://*.b.example", "https://a b.example", "https://a%20b.example",
		"https://.", "https://..", "https://b.example..", "https://a..b.example", "https://.b.example",
		"https://[::1", "https://::1", "https://[127.0.0.1]", "https://[b.example]", "https://[::1]443", "https://[]",
		"https://" + longHost(255) + "b",
	} {
		if got, err := parseOrigin(text); err == nil {
			t.Errorf("parseOrigin(%q) = %q, want an error", text, got)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error shows a password: %v", err)
		} else if bare := !strings.Contains(text, "//"); bare != strings.Contains(err.Error(), "no scheme, such") {
			t.Errorf("parseOrigin(%q): %v", text, err)
		}
	}
}

// TestOriginOfHandmadeURLs: a URL that was not parsed can hold anything.
func TestOriginOfHandmadeURLs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		url  *url.URL
		want string // "": an error
	}{
		{"nil", nil, ""},
		{"zero", &url.URL{}, ""},
		{"no host", &url.URL{Scheme: "https"}, ""},
		{"scheme in upper case", &url.URL{Scheme: "HTTPS", Host: "b.example"}, ""},
		{"userinfo", &url.URL{Scheme: "https", Host: "b.example", User: url.UserPassword("u", "p")}, "https://b.example"},
		{"userinfo in the host", &url.URL{Scheme: "https", Host: "u@b.example"}, ""},
		{"path in the host", &url.URL{Scheme: "https", Host: "b.example/v1"}, ""},
		{"host with a zone", &url.URL{Scheme: "http", Host: "[fe80::1%eth0]:80"}, "http://[fe80::1%eth0]"},
		{"line break", &url.URL{Scheme: "https", Host: "b.example\r\n"}, ""},
		{"NUL", &url.URL{Scheme: "https", Host: "b.example\x00"}, ""},
		{"not UTF-8", &url.URL{Scheme: "https", Host: "b\xff.example"}, ""},
		{"port 0", &url.URL{Scheme: "https", Host: "b.example:0"}, ""},
		{"port 65536", &url.URL{Scheme: "https", Host: "b.example:65536"}, ""},
		{"port 0443", &url.URL{Scheme: "https", Host: "b.example:0443"}, "https://b.example"},
		{"other scheme", &url.URL{Scheme: "gopher", Host: "b.example"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := originOf(test.url)
			if test.want == "" {
				if err == nil {
					t.Errorf("originOf = %q, want an error", got)
				}
				return
			}
			if err != nil || got.String() != test.want {
				t.Errorf("originOf = %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

func TestLoopback(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"http://127.0.0.1": true, "http://127.9.9.9": true, "http://[::1]": true, "http://localhost": true, "http://a.localhost": true,
		"http://LOCALHOST.": true, "http://localhost.example": false, "http://notlocalhost": false, "http://10.0.0.1": false,
		"http://0.0.0.0": false, "http://127.0.0.1.example": false, "http://[::ffff:10.0.0.1]": false,
	} {
		o, err := parseOrigin(text)
		if err != nil || o.loopback() != want {
			t.Errorf("%s: loopback is %v, %v; want %v", text, o.loopback(), err, want)
		}
	}
}

// A task with obligations does not leave through the back door.
func TestPassUnlistedWithObligations(t *testing.T) {
	t.Parallel()
	var sends atomic.Int64
	tr := bubbleTransport(t, Config{Unlisted: PassUnlisted, Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
		sends.Add(1)
		return answer(req, 200, http.NoBody), nil
	})})
	task := Task{Capability: "c", Obligations: Terms{"a": "b"}}
	if _, err := getFrom(t, tr, ContextWithTask(t.Context(), task)); !errors.Is(err, ErrUnknownPeer) || sends.Load() != 0 {
		t.Errorf("%v after %d sends", err, sends.Load())
	}
	if _, err := getFrom(t, tr, t.Context()); err != nil || sends.Load() != 1 {
		t.Errorf("%v after %d sends", err, sends.Load())
	}
}
