package main

import (
	"bytes"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// believing is a peer whose every dialect is believed, so that every reader runs.
func believing() fedhttp.Peer {
	p := fedhttp.Peer{ID: "org-b", Origins: []string{"https://b.example"}, Receipt: fedhttp.RequireReceipt}
	p.Signals.ReadProblemDetail = true
	p.Signals.CorrelationPrefixes = map[string]fedhttp.Layer{"pe-": fedhttp.LayerPolicy, "rt-": fedhttp.LayerRouting}
	for kind := fedhttp.DialectUnset + 1; ; kind++ {
		if _, err := kind.MarshalText(); err != nil {
			return p
		}
		p.Signals.Dialects = append(p.Signals.Dialects, fedhttp.Dialect{Kind: kind, Hops: []fedhttp.Hop{{Name: "a", Envoy: kind == fedhttp.DialectProxyStatus}}})
	}
}

// mustExplain explains what was read, to a peer that is believed all and to one
// that is believed nothing.
func mustExplain(t *testing.T, c *captured) {
	t.Helper()
	var at circumstances
	if err := at.read(c, "", "", nil); err != nil {
		t.Fatal(err)
	}
	for _, p := range []fedhttp.Peer{believing(), {ID: "org-b", Origins: []string{"https://b.example"}}} {
		e, err := explain(background, p, at, c)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		e.write(&out)
		if strings.IndexFunc(out.String(), unprintable) >= 0 {
			t.Fatalf("not printable: %q", out.String())
		}
	}
}

func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"", "HTTP/1.1 403 Forbidden\r\nX-Federation-Policy-Evaluated: true\r\n\r\n", "HTTP/2 503 \n\nno healthy upstream",
		"HTTP/1.1 100 Continue\n\nHTTP/1.1 502 x\nProxy-Status: a;error=connection_refused, \"b\"\nRetry-After: 1\n\n",
		"HTTP/1.1 401 x\nWWW-Authenticate: Bearer error=\"insufficient_scope\"\nTransfer-Encoding: chunked\n\n1\r\nx\r\n0\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	captures, _ := filepath.Glob("../../testdata/captures/*.http")
	for _, path := range captures {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if c, err := readResponse(data, "GET"); err == nil {
			mustExplain(t, c)
		}
	})
}

func FuzzHAR(f *testing.F) {
	f.Add([]byte(archive), 2)
	f.Add([]byte(`{"log":{"entries":[{"response":{"status":403,"headers":[{"name":"a b","value":"\n\n"}]}}]}}`), 0)
	f.Fuzz(func(t *testing.T, data []byte, entry int) {
		if c, err := readHAR(data, entry, ""); err == nil {
			mustExplain(t, c)
		}
	})
}

// FuzzPath: whatever a client asks for stays at the peer's origin, and a server
// finds no way up in it.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"/org-b/v1", "/org-b/%2e%2e/x", "/org-b/a%2Fb", "/org-b/@evil.example", "//org-b", "/org-b/..;a"} {
		f.Add(seed)
	}
	targets := targetsOf([]fedhttp.Peer{{ID: "org-b", Origins: []string{"https://b.example"}}})
	f.Fuzz(func(t *testing.T, asked string) {
		in, err := url.ParseRequestURI(asked)
		if err != nil {
			return
		}
		id, rest, ok := split(in.EscapedPath())
		if !ok || targets[id] == nil {
			return
		}
		to, ok := targets[id].at(rest, in.RawQuery)
		if !ok {
			return
		}
		out, err := url.Parse(to.String())
		if err != nil || out.Host != "b.example" || out.Scheme != "https" || out.EscapedPath() != rest {
			t.Errorf("%q became %q (%v)", asked, to, err)
		}
		for _, segment := range strings.Split(out.Path, "/") {
			if segment == "." || segment == ".." {
				t.Errorf("%q became %q", asked, to)
			}
		}
	})
}
