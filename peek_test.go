package fedhttp_test

import (
	"compress/gzip"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// What a dialect has looked into stays whole for the caller.

// peekSizes lie around what is read ahead, 4 KiB.
var peekSizes = []int{0, 1, 512, 4095, 4096, 4097, 8192, 1 << 20}

// peekFramings are the ways in which a body of known bytes is written. Each flushes
// its header first where the length is not to be known.
var peekFramings = map[string]func(w http.ResponseWriter, r *http.Request, body []byte){
	"length": func(w http.ResponseWriter, _ *http.Request, body []byte) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write(body)
	},
	"chunked": func(w http.ResponseWriter, _ *http.Request, body []byte) {
		w.WriteHeader(http.StatusServiceUnavailable)
		flush(w)
		for len(body) > 0 {
			n := min(len(body), 1500)
			_, _ = w.Write(body[:n])
			flush(w)
			body = body[n:]
		}
	},
	"byte by byte": func(w http.ResponseWriter, _ *http.Request, body []byte) {
		w.WriteHeader(http.StatusServiceUnavailable)
		n := min(len(body), 4200) // beyond what is read ahead
		for i := range body[:n] {
			_, _ = w.Write(body[i : i+1])
			flush(w)
		}
		_, _ = w.Write(body[n:])
	},
	"trailer": func(w http.ResponseWriter, _ *http.Request, body []byte) {
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write(body)
		w.Header().Set("X-Sum", "42")
	},
	"gzip": func(w http.ResponseWriter, r *http.Request, body []byte) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			panic("net/http was to ask for gzip")
		}
		w.Header().Set("Content-Encoding", "gzip")
		w.WriteHeader(http.StatusServiceUnavailable)
		zip, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		_, _ = zip.Write(body)
		_ = zip.Close()
	},
	"broken off": func(w http.ResponseWriter, _ *http.Request, body []byte) {
		w.Header().Set("Content-Length", fmt.Sprint(len(body)+1))
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write(body)
		flush(w)
		panic(http.ErrAbortHandler)
	},
	"chunked, broken off": func(w http.ResponseWriter, _ *http.Request, body []byte) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write(body)
		flush(w)
		panic(http.ErrAbortHandler)
	},
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// peekBody are bytes in which no stretch is like another, so that one that is
// lost, doubled or swapped shows.
func peekBody(n int) []byte {
	b := make([]byte, 0, n+16)
	for i := 0; len(b) < n; i++ {
		b = append(strconv.AppendInt(b, int64(i), 10), ',')
	}
	return b[:n]
}

// TestPeekedBodies: the caller reads what it would read of net/http alone, and
// the same error after it.
func TestPeekedBodies(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for name, write := range peekFramings {
		for _, size := range peekSizes {
			for _, http2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/http2=%v", name, size, http2), func(t *testing.T) {
					t.Parallel()
					playPeek(t, write, peekBody(size), http2)
				})
			}
		}
	}
}

func playPeek(t *testing.T, write func(http.ResponseWriter, *http.Request, []byte), body []byte, http2 bool) {
	t.Helper()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { write(w, r, body) })
	var url string
	if http2 {
		url = httptestHTTP2(t, handler)
	} else {
		server := httptest.NewUnstartedServer(handler)
		server.Config.ErrorLog = quietLog
		server.Start()
		t.Cleanup(server.Close)
		url = server.URL
	}
	base := &http.Transport{
		ForceAttemptHTTP2: http2, DisableKeepAlives: !http2,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	t.Cleanup(base.CloseIdleConnections)
	peer := testPeer("b", url)
	peer.Signals.Dialects = everyDialect(fedhttp.Hop{Name: "front"})
	tr := newTestTransport(t, fedhttp.Config{
		Base: base, Anchors: fenceEager(), Escalator: fenceQuiet, Peers: []fedhttp.Peer{peer}, Logger: quietLogger,
	})

	type seen struct {
		body, err, trailer string
		length             int64
		uncompressed       bool
	}
	read := func(rt http.RoundTripper) seen {
		resp, err := rt.RoundTrip(newGet(t, url))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		return seen{string(got), fmt.Sprint(err), resp.Trailer.Get("X-Sum"), resp.ContentLength, resp.Uncompressed}
	}
	plain, ours := read(base), read(tr)
	if plain.err == "<nil>" && plain.body != string(body) {
		t.Fatal("the server does not send the body")
	}
	if ours.body != plain.body {
		t.Errorf("%d bytes, want %d; they differ", len(ours.body), len(plain.body))
	}
	if ours.err != plain.err {
		t.Errorf("the body ends with %v, want %v", ours.err, plain.err)
	}
	if ours.trailer != plain.trailer || ours.length != plain.length || ours.uncompressed != plain.uncompressed {
		t.Errorf("trailer %q, length %d, uncompressed %v; want those of net/http: %q, %d, %v",
			ours.trailer, ours.length, ours.uncompressed, plain.trailer, plain.length, plain.uncompressed)
	}
}
