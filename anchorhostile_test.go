package fedhttp

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// HTTPAnchorSource against servers that are wrong, or not the peer's.

var discardLog = log.New(io.Discard, "", 0)

func serving(cert tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{cert}}
}

// TestHTTPAnchorRefused: an answer that is not a set is none.
func TestHTTPAnchorRefused(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	good := jwks(t, []jwk{signingKey("1")})
	over, over2 := newTestCA(t, "over", expiring(time.Unix(1e9, 0))), newTestCA(t, "over2", expiring(time.Unix(1.1e9, 0)))
	status := func(code int, fields ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", jwksType)
			for i := 0; i < len(fields); i += 2 {
				w.Header().Set(fields[i], fields[i+1])
			}
			w.WriteHeader(code)
			if code >= 200 && code != 204 && code != 304 {
				_, _ = w.Write(good)
			}
		}
	}
	typed := func(contentType string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = nil
			if contentType != "" {
				w.Header().Set("Content-Type", contentType)
			}
			_, _ = w.Write(good)
		}
	}
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"created":               {status(201), "status 201"},
		"no content":            {status(204), "status 204"},
		"a part":                {status(206), "status 206"},
		"several":               {status(300), "status 300"},
		"not modified":          {status(304, "ETag", `"1"`), "status 304"},
		"a redirect to nowhere": {status(307), "status 307"},
		"unauthorized":          {status(401, "WWW-Authenticate", "Basic realm=x"), "status 401"},
		"not found":             {status(404), "status 404"},
		"down":                  {status(503, "Retry-After", "1"), "status 503"},
		"a captive portal":      {typed("text/html; charset=utf-8"), `content type "text/html; charset=utf-8" is no`},
		"no type":               {typed(""), `content type "" is no`},
		"a malformed type":      {typed("application/json; ="), "content type"},
		"two types":             {typed("application/json, text/html"), "content type"},
		"bytes":                 {typed("application/octet-stream"), "content type"},
		"a set said to be PEM":  {typed(pemType), "no certificate in it"},
		"PEM said to be a set":  {answerWith(jwksType, pemOf(newTestCA(t, "ca"))), "no JSON object"},
		"an empty set":          {answerWith(jwksType, []byte(`{"keys":[]}`)), "empty"},
		"an empty body":         {answerWith(pemType, nil), "no certificate in it"},
		"brotli":                {answerWith(jwksType, good, "Content-Encoding", "br"), `content encoding "br"`},
		"a private key":         {answerWith("text/plain", pemBlock("RSA PRIVATE KEY", []byte("SECRET"))), `"RSA PRIVATE KEY"`},
		"nothing but expired":   {answerWith(pemType, pemOf(over2, over)), "expired, the last at 2004-11-09T11:33:20Z"},
		"an expired set":        {answerWith(jwksType, jwks(t, []jwk{x509Key(over), signingKey("1")})), "expired, the last at 2001-09-09T01:46:40Z"},
		"cut short":             {answerWith(jwksType, good, "Content-Length", "1000"), "unexpected EOF"},
		"a long complaint":      {answerWith(strings.Repeat("x\u202e", 5000), good), "content type"},
	} {
		t.Run(name, func(t *testing.T) { fetchFails(t, anchorAt(t, c.answer), c.want) })
	}
	// One of two is enough.
	fetch(t, anchorAt(t, answerWith(pemType, pemOf(over, newTestCA(t, "ca")))))
}

// TestHTTPAnchorRollback: what a peer's set once had it has for ever: a replica
// that was left behind is not believed.
func TestHTTPAnchorRollback(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	ca := newTestCA(t, "ca")
	at := func(n int, keys ...jwk) http.HandlerFunc {
		return answerWith(jwksType, jwks(t, append(keys, signingKey("1")), "spiffe_sequence", n), "ETag", fmt.Sprintf("%q", fmt.Sprint(n)))
	}
	s := anchorAt(t, scripted(t,
		answerWith(jwksType, jwks(t, []jwk{signingKey("1")})),
		at(5), at(5), at(4, x509Key(ca)),
		answerWith(jwksType, jwks(t, []jwk{signingKey("1"), x509Key(ca)})),
		answerWith(pemType, pemOf(ca)),
		func(w http.ResponseWriter, r *http.Request) {
			vtWant(t, "If-None-Match", r.Header.Get("If-None-Match"), `"5"`)
			w.WriteHeader(http.StatusNotModified)
		},
		at(6, x509Key(ca)),
	))
	first := fetch(t, s)
	vtWant(t, "the same with a sequence", fetch(t, s).Version, first.Version)
	fetch(t, s)
	fetchFails(t, s, "spiffe_sequence 4 is older than one before it, 5")
	fetchFails(t, s, "it has no spiffe_sequence, and one before it has 5")
	fetchFails(t, s, "it has no spiffe_sequence")
	vtWant(t, "unchanged", fetch(t, s).Version, first.Version)
	if a := fetch(t, s); a.Version == first.Version || !a.Roots.Equal(poolOf(ca)) {
		t.Errorf("%+v is not the next", a)
	}
}

// TestHTTPAnchorSize: the limit is of what is read, and what is read is decoded.
func TestHTTPAnchorSize(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	good := jwks(t, []jwk{signingKey("1")})
	zipped := func(body []byte) http.HandlerFunc {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = z.Write(body)
		_ = z.Close()
		return func(w http.ResponseWriter, r *http.Request) {
			vtWant(t, "Accept-Encoding", r.Header.Get("Accept-Encoding"), "gzip")
			answerWith(jwksType, b.Bytes(), "Content-Encoding", "gzip")(w, r)
		}
	}
	bomb := append(bytes.Repeat([]byte(" "), 8<<20), good...)
	limit := func(n int) func(*HTTPAnchors) { return func(cfg *HTTPAnchors) { cfg.MaxBytes = int64(n) } }
	fetch(t, anchorAt(t, answerWith(jwksType, good), limit(len(good))))
	fetch(t, anchorAt(t, zipped(good), limit(len(good))))
	fetch(t, anchorAt(t, answerWith(jwksType, bomb[len(bomb)-1<<20:])))
	fetchFails(t, anchorAt(t, answerWith(jwksType, good), limit(len(good)-1)), fmt.Sprintf("longer than %d bytes", len(good)-1))
	fetchFails(t, anchorAt(t, zipped(good), limit(len(good)-1)), "longer than")
	fetchFails(t, anchorAt(t, answerWith(jwksType, bomb[len(bomb)-1<<20-1:])), "longer than 1048576 bytes")
	fetchFails(t, anchorAt(t, zipped(bomb)), "longer than 1048576 bytes")
	fetchFails(t, anchorAt(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jwksType)
		for chunk := bytes.Repeat([]byte(" "), 64<<10); ; {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}), "longer than 1048576 bytes")
	fetchFails(t, anchorAt(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Long", strings.Repeat("x", maxAnchorHeader+4096))
		answerWith(jwksType, good)(w, r)
	}), "headers exceeded")
}

// TestHTTPAnchorSlow: an answer that does not come to its end is given up, at
// Timeout or when the caller's context ends.
func TestHTTPAnchorSlow(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	drip := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jwksType)
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
			_, _ = w.Write([]byte(" "))
			w.(http.Flusher).Flush()
		}
	}
	hang := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, h := range map[string]http.HandlerFunc{"hangs": hang, "drips": drip} {
		t.Run(name, func(t *testing.T) {
			s := anchorAt(t, h, func(cfg *HTTPAnchors) { cfg.Timeout = 50 * time.Millisecond })
			if err := fetchError(t, s, "no whole answer within 50ms"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v is no deadline", err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("the operator left")
			s = anchorAt(t, func(w http.ResponseWriter, r *http.Request) {
				cancel(why)
				h(w, r)
			}, func(cfg *HTTPAnchors) { cfg.Timeout = time.Hour })
			if a, err := s.FetchAnchor(ctx, "b"); !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
				t.Errorf("%+v, %v; want the context's error and its cause", a, err)
			}
		})
	}
	if s := anchorAt(t, hang); s.timeout >= anchorFetchTimeout {
		t.Errorf("the default of Timeout is %v, and the Transport gives up after %v", s.timeout, anchorFetchTimeout)
	}
}

// TestHTTPAnchorRedirects: another host is not asked, nor this one in another way.
func TestHTTPAnchorRedirects(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	good := jwks(t, []jwk{signingKey("1")})
	var strays atomic.Int64
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		strays.Add(1)
		answerWith(jwksType, good)(w, r)
	}))
	defer other.Close()
	redirect := func(to func(r *http.Request) string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to(r), http.StatusFound) }
	}
	for name, c := range map[string]struct {
		to   func(r *http.Request) string
		want string
	}{
		"another host": {func(*http.Request) string { return "https://evil.example/a?SECRET" }, "redirected to https://evil.example/a, and only https://127.0.0.1:"},
		"another port": {func(*http.Request) string { return other.URL }, "redirected to " + other.URL},
		"plain http":   {func(r *http.Request) string { return "http://" + r.Host + "/" }, "redirected to http://127.0.0.1:"},
		"userinfo":     {func(r *http.Request) string { return "https://user:SECRET@" + r.Host + "/" }, "redirected to https://127.0.0.1:"},
		"another kind": {func(*http.Request) string { return "file:///etc/passwd" }, "redirected to file:///etc/passwd"},
		"a long name":  {func(*http.Request) string { return "https://" + strings.Repeat("x", 5000) + "\u202e.example/" }, "redirected to https://"},
	} {
		s := anchorAt(t, redirect(c.to), func(cfg *HTTPAnchors) { cfg.Roots.AddCert(other.Certificate()) })
		t.Run(name, func(t *testing.T) { fetchFails(t, s, c.want) })
	}
	vtWant(t, "requests to the other", strays.Load(), 0)

	// Within its origin it may have moved.
	for n, want := range map[int]int{3: 4, 4: 4} {
		var requests atomic.Int64
		s := anchorAt(t, func(w http.ResponseWriter, r *http.Request) {
			if requests.Add(1) <= int64(n) {
				http.Redirect(w, r, fmt.Sprintf("//%s/%d", r.Host, requests.Load()), http.StatusPermanentRedirect)
				return
			}
			answerWith(jwksType, good)(w, r)
		})
		if n == 3 {
			fetch(t, s)
		} else {
			fetchFails(t, s, "more than 3 redirects")
		}
		vtWant(t, fmt.Sprint("requests with ", n, " redirects"), int(requests.Load()), want)
	}
}

// TestHTTPAnchorGarbage: what is no HTTP at all is an error of bounded length.
func TestHTTPAnchorGarbage(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for name, answer := range map[string]string{
		"nothing":         "",
		"another":         "SSH-2.0-" + strings.Repeat("\x1b[31m", 5000) + "\r\n\r\n",
		"a bad status":    "HTTP/1.1 " + strings.Repeat("2", 5000) + " OK\r\n\r\n",
		"a bad length":    "HTTP/1.1 200 OK\r\nContent-Length: " + strings.Repeat("9", 5000) + "\r\n\r\n",
		"a bad location":  "HTTP/1.1 302 Found\r\nLocation: https://[" + strings.Repeat("x", 5000) + "?SECRET\r\n\r\n",
		"a bad chunk":     "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + strings.Repeat("z", 5000) + "\r\n",
		"informed at end": strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n", 5000),
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan struct{})
			go func() {
				defer close(served)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = http.ReadRequest(bufio.NewReader(conn))
				_, _ = io.WriteString(conn, answer)
			}()
			fetchFails(t, newAnchors(t, HTTPAnchors{URLs: map[string]string{"b": "http://" + l.Addr().String() + "/anchor"}}), "")
			l.Close()
			<-served
		})
	}
}
