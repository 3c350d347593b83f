package fedhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// neutralExchange is a request whose bytes must be those of plain net/http.
type neutralExchange struct {
	name    string
	request func(t *testing.T, url string) *http.Request
	// writes tells that the number of writes is the same as well. It is not for
	// bodies without GetBody, which are watched, so that net/http does not know
	// them for ones that are in memory.
	writes bool
	reuse  bool // a second request on the connection
}

func newNeutral(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequest(method, url+"/v1/tasks?q=a%20b", body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// stream is a reader that net/http does not know.
type stream struct{ io.Reader }

func neutralExchanges(t *testing.T) []neutralExchange {
	file := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(file, bytes.Repeat([]byte("file"), 15_000), 0o600); err != nil {
		t.Fatal(err)
	}
	simple := func(name, method string, body func() io.Reader, change func(*http.Request)) neutralExchange {
		return neutralExchange{name: name, writes: true, request: func(t *testing.T, url string) *http.Request {
			var r io.Reader
			if body != nil {
				r = body()
			}
			req := newNeutral(t, method, url, r)
			if change != nil {
				change(req)
			}
			return req
		}}
	}
	text := func() io.Reader { return strings.NewReader("a task") }
	unknown := func() io.Reader { return stream{strings.NewReader("a task")} }
	watched := func(e neutralExchange) neutralExchange { e.writes = false; return e }
	reused := simple("GET twice", http.MethodGet, nil, nil)
	reused.reuse = true
	return []neutralExchange{
		simple("GET", http.MethodGet, nil, nil), reused,
		simple("GET with headers", http.MethodGet, nil, func(r *http.Request) { r.Header["x-odd"] = []string{"a", "b"} }),
		simple("GET of another host", http.MethodGet, nil, func(r *http.Request) { r.Host = "other.example" }),
		simple("GET, close", http.MethodGet, nil, func(r *http.Request) { r.Close = true }),
		simple("GET with a body", http.MethodGet, text, nil),
		simple("GET without User-Agent", http.MethodGet, nil, func(r *http.Request) { r.Header["User-Agent"] = []string{""} }),
		simple("GET, no header at all", http.MethodGet, nil, nil),
		simple("HEAD", http.MethodHead, nil, nil),
		simple("OPTIONS", http.MethodOptions, nil, nil),
		simple("DELETE", http.MethodDelete, nil, nil),
		simple("POST with a length", http.MethodPost, text, nil),
		simple("POST of nothing", http.MethodPost, nil, nil),
		simple("POST of NoBody", http.MethodPost, func() io.Reader { return http.NoBody }, nil),
		simple("POST of a large body", http.MethodPost, func() io.Reader { return strings.NewReader(strings.Repeat("x", 30_000)) }, nil),
		watched(simple("POST without a length", http.MethodPost, unknown, nil)),
		watched(simple("POST without a length, empty", http.MethodPost, func() io.Reader { return stream{strings.NewReader("")} }, nil)),
		watched(simple("POST of a stream with a length", http.MethodPost, unknown, func(r *http.Request) { r.ContentLength = 6 })),
		watched(simple("POST with a trailer", http.MethodPost, unknown, func(r *http.Request) {
			r.Trailer = http.Header{"X-Sum": {"1"}}
		})),
		simple("PUT, Expect: 100-continue", http.MethodPut, text, func(r *http.Request) { r.Header.Set("Expect", "100-continue") }),
		watched(simple("PUT without a length, Expect: 100-continue", http.MethodPut, unknown, func(r *http.Request) {
			r.Header.Set("Expect", "100-continue")
		})),
		watched(neutralExchange{name: "PUT of a file", request: func(t *testing.T, url string) *http.Request {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			req := newNeutral(t, http.MethodPut, url, f)
			req.ContentLength = 60_000
			return req
		}}),
	}
}

// answerWhole reads HTTP/1 requests and answers each with 204.
func answerWhole(conn net.Conn) {
	br := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		if req.Header.Get("Expect") != "" {
			_, _ = io.WriteString(conn, "HTTP/1.1 100 Continue\r\n\r\n")
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		if _, err := io.WriteString(conn, rawNoContent); err != nil {
			return
		}
	}
}

// speaking returns a Transport that adds all the headers it has to a request
// with the context.
func speaking(t *testing.T, base http.RoundTripper, url string) (*fedhttp.Transport, context.Context) {
	t.Helper()
	key := fedhttp.PolicyKey{Peer: "b", Capability: "cap", Epoch: 7}
	book := &fedhttp.PolicyBook{}
	if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "sha256:1"}); err != nil {
		t.Fatal(err)
	}
	book.Accept(fedhttp.Policy{PolicyKey: key, Digest: "sha256:1"})
	tr := newTestTransport(t, fedhttp.Config{
		Base: base, Book: book, Anchors: fenceEager(), Escalator: fenceQuiet, Peers: []fedhttp.Peer{testPeer("b", url)},
	})
	return tr, fedhttp.ContextWithTask(t.Context(), fedhttp.Task{Capability: "cap", Obligations: fedhttp.Terms{"residency": "eu"}})
}

var ownHeaders = []string{"X-Federation-Policy-Digest", "X-Federation-Negotiation-Epoch", "X-Federation-Anchor-Version"}

// withoutOwn removes the header lines that are fedhttp's, each of which has to be
// there once.
func withoutOwn(t *testing.T, wire string) string {
	t.Helper()
	for _, name := range ownHeaders {
		before, rest, found := strings.Cut(wire, "\r\n"+name+": ")
		_, after, _ := strings.Cut(rest, "\r\n")
		if wire = before + "\r\n" + after; !found || strings.Contains(wire, name) {
			t.Errorf("%s is not there once", name)
		}
	}
	return wire
}

// TestByteNeutralHTTP1 compares what leaves on an HTTP/1 connection, byte by
// byte and write by write, with and without fedhttp.
func TestByteNeutralHTTP1(t *testing.T) {
	for _, e := range neutralExchanges(t) {
		t.Run(e.name, func(t *testing.T) {
			checkLeaks(t)
			t.Parallel()
			peer := listenRaw(t, nil, answerWhole)
			// record returns what left on the one connection that was used.
			record := func(chain func(*http.Transport) (http.RoundTripper, context.Context)) (string, int) {
				tap := &wireTap{}
				base := &http.Transport{DialContext: tap.dial, ExpectContinueTimeout: time.Minute}
				rt, ctx := chain(base)
				for n := range 2 {
					if n == 1 && !e.reuse {
						break
					}
					if err := rawSend(rt, e.request(t, peer.url).WithContext(ctx)); err != nil {
						t.Fatal(err)
					}
				}
				base.CloseIdleConnections()
				conn := tap.last()
				if tap.dialed() != 1 {
					t.Errorf("%d connections", tap.dialed())
				}
				conn.mu.Lock()
				defer conn.mu.Unlock()
				return conn.wrote.String(), conn.writes
			}
			plain, plainWrites := record(func(base *http.Transport) (http.RoundTripper, context.Context) { return base, t.Context() })
			silent, silentWrites := record(func(base *http.Transport) (http.RoundTripper, context.Context) {
				return newTestTransport(t, fedhttp.Config{Base: base, Peers: []fedhttp.Peer{testPeer("b", peer.url)}}), t.Context()
			})
			spoken, spokenWrites := record(func(base *http.Transport) (http.RoundTripper, context.Context) { return speaking(t, base, peer.url) })
			if silent != plain {
				t.Errorf("with fedhttp %q\nwithout it %q", silent, plain)
			}
			if !e.reuse {
				if got := withoutOwn(t, spoken); got != plain {
					t.Errorf("with fedhttp, its headers removed, %q\nwithout it %q", got, plain)
				}
			}
			if e.writes && (silentWrites != plainWrites || spokenWrites != plainWrites) {
				t.Errorf("%d and %d writes with fedhttp, %d without it", silentWrites, spokenWrites, plainWrites)
			}
		})
	}
}

// TestByteNeutralHTTP2 compares the frames of requests with and without
// fedhttp: settings, header blocks and data as they are.
func TestByteNeutralHTTP2(t *testing.T) {
	for _, secure := range []bool{true, false} {
		for _, e := range neutralExchanges(t) {
			t.Run(schemeName(secure)+"/"+e.name, func(t *testing.T) {
				checkLeaks(t)
				t.Parallel()
				record := func(chain func(base *http.Transport, url string) http.RoundTripper) []frame {
					peer := newFramePeer(t, secure, func(c *frameConn, stream uint32, _ int64) { c.ok(stream) })
					peer.onHeaders = func(c *frameConn, stream uint32) {
						if strings.Contains(e.name, "Expect") {
							c.goOn(stream)
						}
					}
					base := frameBase(secure)
					base.ExpectContinueTimeout = time.Minute
					base.HTTP2 = &http.HTTP2Config{MaxReadFrameSize: 1 << 17}
					rt := chain(base, peer.url)
					for n := range 2 {
						if n == 1 && !e.reuse {
							break
						}
						req := e.request(t, peer.url)
						if req.Host != "other.example" {
							req.Host = "b.example" // ports differ, and with them the header blocks
						}
						if err := rawSend(rt, req); err != nil {
							t.Fatal(err)
						}
					}
					peer.drain(rt.(idler))
					return peer.seen()
				}
				plain := record(func(base *http.Transport, _ string) http.RoundTripper { return base })
				silent := record(func(base *http.Transport, url string) http.RoundTripper {
					return newTestTransport(t, fedhttp.Config{Base: base, Peers: []fedhttp.Peer{testPeer("b", url)}})
				})
				if !slices.Equal(silent, plain) {
					t.Errorf("with fedhttp %v\nwithout it %v", silent, plain)
				}
				if len(plain) < 2 {
					t.Errorf("only %v was recorded", plain)
				}
			})
		}
	}
}

// TestByteNeutralHTTP2Headers compares what a server reads from the header
// blocks where fedhttp has headers to add: with those removed it is the same.
// (The order of fields is net/http's, which takes them from a map.)
func TestByteNeutralHTTP2Headers(t *testing.T) {
	for _, e := range neutralExchanges(t) {
		t.Run(e.name, func(t *testing.T) {
			checkLeaks(t)
			t.Parallel()
			var mu sync.Mutex
			var seen []string
			peer := httptestHTTP2(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				lines := []string{fmt.Sprint(r.Method, r.Host, r.URL, r.Proto, r.ContentLength, string(body), r.Trailer)}
				for _, name := range slices.Sorted(maps.Keys(r.Header)) {
					lines = append(lines, fmt.Sprint(name, r.Header[name]))
				}
				seen = append(seen, strings.Join(lines, "\r\n")+"\r\n")
			}))
			base := func() *http.Transport {
				return &http.Transport{TLSClientConfig: trusting(), ForceAttemptHTTP2: true, ExpectContinueTimeout: time.Minute}
			}
			plain := base()
			defer plain.CloseIdleConnections()
			tr, ctx := speaking(t, base(), peer)
			if err := rawSend(plain, e.request(t, peer)); err != nil {
				t.Fatal(err)
			}
			if err := rawSend(tr, e.request(t, peer).WithContext(ctx)); err != nil {
				t.Fatal(err)
			}
			tr.CloseIdleConnections()
			got := strings.ReplaceAll(strings.ReplaceAll(seen[1], "[", ": ["), "\r\n: [", "\r\n[")
			got = strings.ReplaceAll(withoutOwn(t, got), ": [", "[")
			if got != seen[0] {
				t.Errorf("with fedhttp %q\nwithout it %q", got, seen[0])
			}
		})
	}
}
