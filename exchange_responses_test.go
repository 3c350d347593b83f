package fedhttp_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// get is the client of most exchanges: one GET.
func exchangeGet(x *exchangeRun) { x.do(x.request(http.MethodGet, "/", nil)) }

// twice shows what becomes of the connection.
func exchangeTwice(x *exchangeRun) {
	exchangeGet(x)
	exchangeGet(x)
}

func gzipped(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		_, _ = io.WriteString(w, "not compressed")
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(w)
	_, _ = io.WriteString(z, strings.Repeat("compressed ", 1000))
	_ = z.Close()
}

func withTrailers(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Trailer", "X-Announced")
	_, _ = io.WriteString(w, "body")
	w.Header().Set("X-Announced", "1")
	w.Header().Set(http.TrailerPrefix+"X-Sudden", "2")
}

func earlyHints(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Link", "</style.css>")
	w.WriteHeader(http.StatusEarlyHints)
	w.WriteHeader(http.StatusProcessing)
	_, _ = io.WriteString(w, "body")
}

func statusOfPath(w http.ResponseWriter, r *http.Request) {
	var status int
	_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
	w.Header().Set("X-Correlation-ID", "c-1")
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(status)
	if status != http.StatusNoContent && status != http.StatusNotModified {
		_, _ = io.WriteString(w, "\x00the body\xff\n")
	}
}

// signed answers like the layers of a federation.
func signed(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Federation-Policy-Evaluated", r.URL.Query().Get("evaluated"))
	w.Header().Set("X-Federation-Policy-Reason", "SCOPE")
	w.Header().Set("Content-Type", "application/problem+json")
	statusOfPath(w, r)
}

// streamed writes in two parts, so that the length is not known.
func streamed(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "one ")
	_ = http.NewResponseController(w).Flush()
	_, _ = io.WriteString(w, "two")
}

func exchangesOfResponses() []exchange {
	statuses := func(x *exchangeRun) {
		for _, status := range []int{200, 201, 204, 206, 301, 304, 400, 401, 402, 403, 404, 407, 409, 410, 421, 422, 425, 429, 451, 500, 501, 502, 503, 504, 511, 599} {
			x.do(x.request(http.MethodGet, fmt.Sprintf("/%d", status), nil))
		}
	}
	signedStatuses := func(x *exchangeRun) {
		for _, status := range []int{200, 403, 404, 429, 500, 503} {
			for _, evaluated := range []string{"true", "false", "perhaps"} {
				x.do(x.request(http.MethodPost, fmt.Sprintf("/%d?evaluated=%s", status, evaluated), strings.NewReader("task")))
			}
		}
	}
	explicit := func(x *exchangeRun) {
		req := x.request(http.MethodGet, "/", nil)
		req.Header.Set("Accept-Encoding", "gzip")
		x.do(req)
	}
	head := func(x *exchangeRun) { x.do(x.request(http.MethodHead, "/", nil)) }
	partly := func(x *exchangeRun) {
		// What is left is little, much and endless; each time the next request shows
		// whether the connection was kept.
		for _, path := range []string{"/10", "/100000", "/10000000"} {
			x.doThen(x.request(http.MethodGet, path, nil), func(r io.Reader) ([]byte, error) {
				p := make([]byte, 5)
				_, err := io.ReadFull(r, p)
				return p, err
			})
		}
		x.do(x.request(http.MethodGet, "/10", nil))
	}
	sized := func(w http.ResponseWriter, r *http.Request) {
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &n)
		w.Header().Set("Content-Length", fmt.Sprint(n))
		_, _ = io.Copy(w, io.LimitReader(dotsForever{}, int64(n))) // the client may have gone
	}
	large := func(w http.ResponseWriter, _ *http.Request) {
		for i := range 50 {
			w.Header().Set(fmt.Sprintf("X-Large-%d", i), strings.Repeat("v", 1000))
		}
	}
	noGzip := func(t *http.Transport) { t.DisableCompression = true }
	noKeep := func(t *http.Transport) { t.DisableKeepAlives = true }
	closing := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, "last")
	}
	empty := func(http.ResponseWriter, *http.Request) {}

	all := []exchange{
		{name: "responses end by closing", wire: "HTTP/1.1 200 OK\r\n\r\nuntil the end", client: exchangeTwice},
		{name: "HTTP/1.0", wire: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", client: exchangeTwice},
		{name: "status line without a reason", wire: "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", client: exchangeGet},
		{name: "connection close", handler: closing, client: exchangeTwice},
	}
	for _, e := range []exchange{
		{name: "early hints and processing", handler: earlyHints, client: exchangeGet},
		{name: "trailers", handler: withTrailers, client: exchangeGet},
		{name: "HEAD", handler: sized, client: func(x *exchangeRun) { x.do(x.request(http.MethodHead, "/100", nil)) }},
		{name: "HEAD, gzip", handler: gzipped, client: head},
		{name: "statuses", handler: statusOfPath, client: statuses},
		{name: "signed statuses", handler: signed, client: signedStatuses},
		{name: "gzip, transparent", handler: gzipped, client: exchangeGet},
		{name: "gzip, asked for", handler: gzipped, client: explicit},
		{name: "gzip, disabled", handler: gzipped, client: exchangeGet, setup: noGzip},
		{name: "keep-alives disabled", handler: streamed, client: exchangeTwice, setup: noKeep},
		{name: "empty", handler: empty, client: exchangeTwice},
		{name: "unknown length", handler: streamed, client: exchangeTwice},
		{name: "read partly", handler: sized, client: partly},
		{name: "large headers", handler: large, client: exchangeTwice},
	} {
		second := e
		second.name, second.http2 = e.name+", HTTP/2", true
		all = append(all, e, second)
	}
	return all
}

type dotsForever struct{}

func (dotsForever) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '.'
	}
	return len(p), nil
}
