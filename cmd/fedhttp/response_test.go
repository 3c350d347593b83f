package main

import (
	"bytes"
	"compress/gzip"
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
		"CRLF":                   {"HTTP/1.1 403 Forbidden\r\nA: 1\r\nA: 2\r\n\r\nx\r\n", "HTTP/1.1", "x\r\n", "1|2", 403, 0},
		"LF":                     {"HTTP/1.0 403 Forbidden\nA: 1\n\nx\n", "HTTP/1.0", "x\n", "1", 403, 0},
		"no phrase":              {"HTTP/1.1 403\n\n", "HTTP/1.1", "", "", 403, 0},
		"HTTP/2":                 {"HTTP/2 403 \r\na: 1\r\n\r\nx", "HTTP/2.0", "x", "1", 403, 0},
		"HTTP/3":                 {"HTTP/3 200\n\n", "HTTP/3.0", "", "", 200, 0},
		"a folded line":          {"HTTP/1.1 403 x\nA: 1\n  2\n\n", "HTTP/1.1", "", "1 2", 403, 0},
		"no empty line":          {"HTTP/1.1 403 x\nA: 1", "HTTP/1.1", "", "1", 403, 0},
		"a status line alone":    {"HTTP/1.1 403 x", "HTTP/1.1", "", "", 403, 0},
		"a byte order mark":      {"\xEF\xBB\xBFHTTP/1.1 403 x\n\n", "HTTP/1.1", "", "", 403, 0},
		"interim responses":      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/2 103\r\nA: 0\r\n\r\nHTTP/1.1 403 x\r\nA: 1\r\n\r\n", "HTTP/1.1", "", "1", 403, 2},
		"switching protocols":    {"HTTP/1.1 101 x\nA: 1\n\nx", "HTTP/1.1", "x", "1", 101, 0},
		"through a proxy":        {"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 403 x\r\nA: 1\r\n\r\n", "HTTP/1.1", "", "1", 403, 1},
		"a body like a response": {"HTTP/1.1 403 x\nA: 1\n\nHTTP/1.1 200 OK\n\n", "HTTP/1.1", "HTTP/1.1 200 OK\n\n", "1", 403, 1},
		"chunks, decoded":        {"HTTP/1.1 403 x\nTransfer-Encoding: chunked\n\nhello", "HTTP/1.1", "hello", "", 403, 0},
		"chunks, as sent":        {"HTTP/1.1 403 x\nTransfer-Encoding: chunked\n\n5\r\nhello\r\n0\r\n\r\n", "HTTP/1.1", "hello", "", 403, 1},
		"gzip, decoded":          {"HTTP/1.1 403 x\nContent-Encoding: gzip\n\nRBAC: access denied", "HTTP/1.1", "RBAC: access denied", "", 403, 1},
		"gzip, as sent":          {"HTTP/1.1 403 x\nContent-Encoding: gzip\n\n" + zipped.String(), "HTTP/1.1", "RBAC: access denied", "", 403, 1},
		"a length that is wrong": {"HTTP/1.1 403 x\nContent-Length: 1000\n\nhello", "HTTP/1.1", "hello", "", 403, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := readResponse([]byte(c.input))
			if err != nil {
				t.Fatal(err)
			}
			r := got.response
			if r.StatusCode != c.status || r.Proto != c.proto || string(got.body) != c.body || strings.Join(r.Header["A"], "|") != c.header || len(got.notes) != c.notes {
				t.Errorf("%d %s %q %q %q", r.StatusCode, r.Proto, got.body, r.Header, got.notes)
			}
			if r.ContentLength != int64(len(got.body)) || r.Header.Get("Transfer-Encoding")+r.Header.Get("Content-Encoding") != "" {
				t.Errorf("length %d, header %q", r.ContentLength, r.Header)
			}
		})
	}
	for _, input := range []string{"x", "HTTP/1.1 403x\n\n", "HTTP/1.1 1000 x\n\n", "HTTP/11 403 x\n\n", "GET / HTTP/1.1\n\n", "HTTP/1.1 403 x\na b\n\n", "HTTP/1.1 100 x\n\nx"} {
		if c, err := readResponse([]byte(input)); err == nil {
			t.Errorf("%q: %+v", input, c)
		}
	}
	for _, input := range []string{"", "\r\n", "HTTP/1.1 100 x\n\n"} {
		if c, err := readResponse([]byte(input)); err != nil || c.response != nil {
			t.Errorf("%q: %+v, %v", input, c, err)
		}
	}
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
