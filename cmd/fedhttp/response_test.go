package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestReadResponse(t *testing.T) {
	t.Parallel()
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	_, _ = w.Write([]byte("RBAC: access denied"))
	_ = w.Close()
	for name, c := range map[string]struct {
		input, proto, body, header string
		status, notes              int
	}{
		"CRLF":                   {"HTTP/1.1 403 Forbidden\r\nA: 1\r\nA: 2\r\n\r\nx\r\n", "HTTP/1.1", "x\r\n", "1|2", 403, 1},
		"LF":                     {"HTTP/1.0 403 Forbidden\nA: 1\n\nx\n", "HTTP/1.0", "x\n", "1", 403, 1},
		"no phrase":              {"HTTP/1.1 403\n\n", "HTTP/1.1", "", "", 403, 0},
		"HTTP/2":                 {"HTTP/2 403 \r\na: 1\r\n\r\nx", "HTTP/2.0", "x", "1", 403, 0},
		"HTTP/3":                 {"HTTP/3 200\n\n", "HTTP/3.0", "", "", 200, 0},
		"a folded line":          {"HTTP/1.1 403 x\nA: 1\n  2\n\n", "HTTP/1.1", "", "1 2", 403, 0},
		"a byte order mark":      {"\xEF\xBB\xBFHTTP/1.1 403 x\n\n", "HTTP/1.1", "", "", 403, 0},
		"interim responses":      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/2 103\r\nA: 0\r\n\r\nHTTP/1.1 403 x\r\nA: 1\r\n\r\n", "HTTP/1.1", "", "1", 403, 2},
		"switching protocols":    {"HTTP/1.1 101 x\nA: 1\n\nx", "HTTP/1.1", "", "1", 101, 2},
		"through a proxy":        {"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 403 x\r\nA: 1\r\n\r\n", "HTTP/1.1", "", "1", 403, 1},
		"a body like a response": {"HTTP/1.1 403 x\nA: 1\n\nHTTP/1.1 200 OK\n\n", "HTTP/1.1", "HTTP/1.1 200 OK\n\n", "1", 403, 2},
		"chunks, decoded":        {"HTTP/1.1 403 x\nTransfer-Encoding: chunked\n\nhello", "HTTP/1.1", "hello", "", 403, 0},
		"chunks, as sent":        {"HTTP/1.1 403 x\nTransfer-Encoding: chunked\n\n5\r\nhello\r\n0\r\n\r\n", "HTTP/1.1", "hello", "", 403, 1},
		"gzip, decoded":          {"HTTP/1.1 403 x\nContent-Encoding: gzip\n\nRBAC: access denied", "HTTP/1.1", "RBAC: access denied", "", 403, 2},
		"gzip, as sent":          {"HTTP/1.1 403 x\nContent-Encoding: gzip\n\n" + zipped.String(), "HTTP/1.1", "RBAC: access denied", "", 403, 2},
		"chunks with a trailer":  {"HTTP/1.1 403 x\nTransfer-Encoding: chunked\n\n5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n", "HTTP/1.1", "hello", "", 403, 1},
		"chunks of HTTP/1.0":     {"HTTP/1.0 403 x\nTransfer-Encoding: chunked\n\n5\r\nhello\r\n0\r\n\r\n", "HTTP/1.0", "5\r\nhello\r\n0\r\n\r\n", "", 403, 1},
		"a length":               {"HTTP/1.1 403 x\nContent-Length: 5\nContent-Length: 5\n\nhello", "HTTP/1.1", "hello", "", 403, 0},
		"more than the length":   {"HTTP/1.1 403 x\nContent-Length: 5\n\nhello, world", "HTTP/1.1", "hello", "", 403, 1},
		"gzip of another length": {"HTTP/1.1 403 x\nContent-Encoding: gzip\nContent-Length: 42\n\nRBAC: access denied", "HTTP/1.1", "RBAC: access denied", "", 403, 1},
		"no content":             {"HTTP/1.1 204 x\n\nhello", "HTTP/1.1", "", "", 204, 1},
		"not modified":           {"HTTP/1.1 304 x\nContent-Length: 5\n\n", "HTTP/1.1", "", "", 304, 0},
		"HTTP/2, a wrong length": {"HTTP/2 403 \ncontent-length: abc\n\nhello", "HTTP/2.0", "hello", "", 403, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := readResponse([]byte(c.input), "GET")
			if err != nil {
				t.Fatal(err)
			}
			r := got.response
			if r.StatusCode != c.status || r.Proto != c.proto || string(got.body) != c.body || strings.Join(r.Header["A"], "|") != c.header || len(got.notes) != c.notes {
				t.Errorf("%d %s %q %q %q", r.StatusCode, r.Proto, got.body, r.Header, got.notes)
			}
			if got.broken || r.Header.Get("Transfer-Encoding")+r.Header.Get("Content-Encoding") != "" {
				t.Errorf("broken %t, header %q", got.broken, r.Header)
			}
		})
	}
	for _, input := range []string{"x", "HTTP/1.1 403x\n\n", "HTTP/1.1 1000 x\n\n", "HTTP/11 403 x\n\n", "GET / HTTP/1.1\n\n", "HTTP/1.1 100 x\n\nx"} {
		if c, err := readResponse([]byte(input), "GET"); err == nil {
			t.Errorf("%q: %+v", input, c)
		}
	}
	for _, input := range []string{"", "\r\n", "HTTP/1.1 100 x\n\n"} {
		if c, err := readResponse([]byte(input), "GET"); err != nil || c.response != nil {
			t.Errorf("%q: %+v, %v", input, c, err)
		}
	}
	for input, broken := range map[string]bool{
		"HTTP/1.1 403 x\nContent-Length: 1000\n\nhello":                       true,
		"HTTP/2 403 \ncontent-length: 3\n\nhello":                             true, // where net/http makes an error of it
		"HTTP/1.1 403 x\nTransfer-Encoding: chunked\n\n5\r\nhello\r\n":        true,
		"HTTP/1.1 403 x\nTransfer-Encoding: chunked\n\n5\r\nhello\r\n0\r\nX":  true,
		"HTTP/1.1 403 x\nTransfer-Encoding: chunked\n\n5\r\nhello, world\r\n": true,
		"HTTP/1.1 403 x\nContent-Encoding: gzip\n\n" + zipped.String()[:20]:   true,
		"HTTP/1.1 403 x\nTransfer-Encoding: chunked\n\n":                      false,
		"HTTP/1.1 403 x\nContent-Length: 5\n\nhello, world":                   false,
	} {
		if c, err := readResponse([]byte(input), "GET"); err != nil || c.broken != broken {
			t.Errorf("%q: %+v, %v", input, c, err)
		}
	}
	if c, err := readResponse([]byte("HTTP/1.1 403 x\nContent-Length: 5\n\nhello"), "HEAD"); err != nil || c.broken || len(c.body) > 0 {
		t.Errorf("HEAD: %+v, %v", c, err)
	}
}

// TestReadAsNetHTTP sends the same bytes over a connection: what net/http does not
// take must not be explained, and what it reads of a body is what a dialect is given.
func TestReadAsNetHTTP(t *testing.T) {
	t.Parallel()
	for _, header := range []string{
		"", "Content-Length: 19", "Content-Length: abc", "Content-Length: -1", "Content-Length: 0\r\nContent-Length: 5", "Content-Length: 3\r\nContent-Length: 3",
		"Content-Length: 100", "Content-Length: 5", "Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: identity",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5", "A : b", ": b", "A: b\x01", "A: \r\n b", "no colon",
	} {
		for _, body := range []string{"\r\n", "\r\nno healthy upstream", "\r\n13\r\nno healthy upstream\r\n0\r\n\r\n", "\r\n13\r\nno healthy upstream\r\n0\r\nX: y\r\n\r\n", "\r\n13\r\nno healthy", ""} {
			for _, version := range []string{"1.0", "1.1"} {
				for _, method := range []string{"GET", "HEAD"} {
					input := "HTTP/" + version + " 503 x\r\nA: 1\r\n"
					if header != "" {
						input += header + "\r\n"
					}
					input += body
					c, err := readResponse([]byte(input), method)
					if err != nil {
						t.Errorf("%q: %v", input, err)
						continue
					}
					resp, err := overConnection(t, method, input)
					if (err == nil) != (c.response != nil) {
						t.Errorf("%q: %v, but %+v", input, err, c)
					}
					if err != nil || c.response == nil {
						continue
					}
					text, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					decoded := len(c.response.TransferEncoding) > 0 && string(text) == "" // as curl prints it
					if shows(resp) != shows(c.response) {
						t.Errorf("%q: the end shows: %t", input, shows(c.response))
					}
					if !decoded && (string(text) != string(c.body) || (err != nil) != c.broken) {
						t.Errorf("%s %q: %q, %v, but %q, broken %t", method, input, text, err, c.body, c.broken)
					}
				}
			}
		}
	}
}

// shows reports whether there is proof that the body is whole.
func shows(r *http.Response) bool { return r.ContentLength >= 0 || len(r.TransferEncoding) > 0 }

// overConnection is what http.Transport makes of the bytes.
func overConnection(t *testing.T, method, text string) (*http.Response, error) {
	t.Helper()
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			defer theirs.Close()
			if _, err := http.ReadRequest(bufio.NewReader(theirs)); err == nil {
				_, _ = io.WriteString(theirs, text)
			}
		}()
		return ours, nil
	}}
	t.Cleanup(transport.CloseIdleConnections)
	req, err := http.NewRequestWithContext(t.Context(), method, "http://b.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return transport.RoundTrip(req)
}

const archive = `{"log":{"entries":[
 {"request":{"method":"GET","url":"https://other.example/"},"response":{"status":200}},
 {"request":{"method":"POST","url":"https://registry.b.example/v1/tasks?token=SECRET"},"timings":{"connect":-1},
  "response":{"status":421,"httpVersion":"h2","headers":[{"name":":status","value":"421"},{"name":"x-correlation-id","value":"a\nb"}],
   "content":{"text":"eA==","encoding":"base64"}}},
 {"request":{"method":"GET","url":"https://registry.b.example/"},"response":{"status":0}}]}}`

func TestHAR(t *testing.T) {
	t.Parallel()
	peers := onePeer + "    signals: {dialects: [{kind: http, hops: [{name: any}]}]}\n  - {id: org-c, origins: [https://c.example]}\n"
	e := explained(t, archive, peers, "-entry", "2")
	if e.Peer != "org-b" || e.Request != "POST /v1/tasks" || e.Response != "HTTP/2 421, 1 bytes of body" || e.CorrelationID != "a" || e.Verdict != "ambiguous" {
		t.Errorf("%+v", e) // a 421 on a connection that others had used proves nothing
	}
	if e := explained(t, strings.Replace(archive, `"connect":-1`, `"connect":3.5`, 1), peers, "-entry", "2"); e.Verdict != "routing" {
		t.Errorf("%+v", e)
	}
	if e := explained(t, strings.Replace(archive, `"status":421`, `"status":103`, 1), peers, "-entry", "2"); e.Status != 0 || e.Outcome != "ambiguous" || len(e.Notes) == 0 {
		t.Errorf("an interim response: %+v", e)
	}
	if e := explained(t, archive, peers, "-entry", "2", "-request", "HEAD /"); !strings.HasSuffix(e.Response, " 0 bytes of body") {
		t.Errorf("HEAD: %+v", e)
	}
	if e := explained(t, archive, peers, "-entry", "3"); e.Status != 0 || e.Outcome != "ambiguous" {
		t.Errorf("%+v", e)
	}
	if e := explained(t, archive, peers, "-entry", "1", "-peer", "org-c"); e.Peer != "org-c" || e.Outcome != "delivered" {
		t.Errorf("%+v", e)
	}
	path := write(t, "peers.yaml", peers)
	r := runWith(t, archive, "explain", "-p", path)
	r.want(t, exitUsage, "which entry?", "2  POST https://registry.b.example/v1/tasks  421")
	if strings.Contains(r.err, "SECRET") {
		t.Errorf("%s", r.err)
	}
	runWith(t, archive, "explain", "-p", path, "-entry", "4").want(t, exitUsage, "has 3")
	runWith(t, archive, "explain", "-p", path, "-entry", "1").want(t, exitUsage, "which peer?", "org-b org-c")
	runWith(t, `{"log":{}}`, "explain", "-p", path).want(t, exitFailed, "no entries")
	runWith(t, `{`, "explain", "-p", path).want(t, exitFailed, "no HAR file")
}
