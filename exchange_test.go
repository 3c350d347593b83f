package fedhttp_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fedhttp/fedhttp"
)

// exchange is what a client and a server do with each other. It is done twice,
// with a plain http.Transport and with fedhttp around the same, each time with a
// server of its own, and everything that either side can see must be equal.
type exchange struct {
	name    string
	http2   bool             // over TLS; else HTTP/1 in clear text
	handler http.HandlerFunc // what the server does, or
	wire    string           // what it writes for each request, as it is, before it ends the connection
	setup   func(*http.Transport)
	client  func(x *exchangeRun)
	// unseen says that whether the server sees a request, and the connection that was
	// opened for it, depends on timing. (The client's events have its connections.)
	unseen bool
}

// exchanges are all there are.
func exchanges() []exchange {
	return slices.Concat(exchangesOfResponses(), exchangesOfRequests(), exchangesOfClients(), exchangesThatBreak())
}

// TestExchanges: fedhttp differs in nothing from the http.Transport below it.
func TestExchanges(t *testing.T) {
	t.Parallel()
	for _, e := range exchanges() {
		t.Run(e.name, func(t *testing.T) {
			checkLeaks(t)
			t.Parallel()
			plain := runExchange(t, e, func(t *testing.T, base *http.Transport, _ string) http.RoundTripper {
				t.Cleanup(base.CloseIdleConnections)
				return base
			})
			through := runExchange(t, e, func(t *testing.T, base *http.Transport, url string) http.RoundTripper {
				p := testPeer("b", url)
				p.Denial.HoldOff, p.Breaker.Failures = -1, -1 // nothing may keep the next request back
				p.Origins = append(p.Origins, strings.Replace(url, "127.0.0.1", "localhost", 1))
				return newTestTransport(t, fedhttp.Config{Base: base, Peers: []fedhttp.Peer{p}, Logger: quietLogger})
			})
			if e.unseen {
				plain.Server, through.Server = nil, nil
				plain.Conns, through.Conns = 0, 0
			}
			if len(plain.Client) == 0 || len(plain.Server) == 0 && !e.unseen {
				t.Errorf("the exchange did nothing: %+v", plain)
			}
			if diff := cmp.Diff(plain, through); diff != "" {
				t.Errorf("- plain, + fedhttp:\n%s", diff)
			}
		})
	}
}

// seen is what both sides saw, in order.
type seen struct {
	Client []answerSeen
	Server []requestSeen
	Conns  int // connections that were opened
	Others []string
}

type answerSeen struct {
	Status, Proto    string
	Header, Trailer  http.Header
	ContentLength    int64
	TransferEncoding []string
	Close            bool
	Uncompressed     bool
	TLS              string
	Request          string // the method and URL of Response.Request
	Body, BodyErr    string
	Err              errorSeen
	Events           []string // of httptrace, those that do not depend on timing
}

type requestSeen struct {
	Method, URI, Proto, Host string
	Header, Trailer          http.Header
	ContentLength            int64
	TransferEncoding         []string
	Close                    bool
	Body, BodyErr            string
}

// errorSeen is what a caller can find out about an error.
type errorSeen struct {
	Text, Type string
	Matches    []string
	Timeout    bool
}

// exchangeRun is one run of an exchange.
type exchangeRun struct {
	t      *testing.T
	url    string
	client *http.Client

	begun chan struct{} // closed when a handler runs
	first sync.Once

	mu     sync.Mutex
	active int  // handlers
	over   bool // what comes now is not noted
	ended  sync.Cond
	seen   seen
}

func runExchange(t *testing.T, e exchange, wrap func(*testing.T, *http.Transport, string) http.RoundTripper) seen {
	t.Helper()
	x := &exchangeRun{t: t, begun: make(chan struct{})}
	x.ended.L = &x.mu
	server := httptest.NewUnstartedServer(x.recording(e))
	server.Config.ErrorLog = quietLog
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.seen.Conns++
		}
	}
	base := &http.Transport{}
	if e.http2 {
		server.EnableHTTP2 = true
		server.StartTLS()
		base = server.Client().Transport.(*http.Transport).Clone()
	} else {
		server.Start()
	}
	defer server.Close()
	if e.setup != nil {
		e.setup(base)
	}
	x.url = server.URL
	x.client = &http.Client{Transport: wrap(t, base, server.URL)}
	e.client(x)
	x.client.CloseIdleConnections()
	server.Close()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.handled()
	x.over = true // where the client has ended before, a handler may be about to start
	return x.seen
}

// handled waits until no handler runs. x.mu is held.
func (x *exchangeRun) handled() {
	for x.active > 0 {
		x.ended.Wait()
	}
}

// recording serves the exchange, and notes what comes.
func (x *exchangeRun) recording(e exchange) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.first.Do(func() { close(x.begun) })
		x.mu.Lock()
		if x.over {
			x.mu.Unlock()
			return
		}
		x.active++
		n := len(x.seen.Server)
		x.seen.Server = append(x.seen.Server, requestSeen{
			Method: r.Method, URI: r.RequestURI, Proto: r.Proto, Host: x.neutral(r.Host), Header: x.neutralHeader(r.Header),
			ContentLength: r.ContentLength, TransferEncoding: r.TransferEncoding, Close: r.Close,
		})
		x.mu.Unlock()
		body := &recordedExchangeBody{ReadCloser: r.Body}
		original := r // the server looks at its body again
		r = r.WithContext(r.Context())
		r.Body = body
		defer func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			s := &x.seen.Server[n]
			s.Body, s.BodyErr = body.text.String(), body.err
			if len(original.Trailer) > 0 {
				s.Trailer = original.Trailer.Clone()
			}
			x.active--
			x.ended.Broadcast()
		}()
		if e.handler != nil {
			e.handler(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			x.t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, e.wire)
		conn.Close()
	})
}

type recordedExchangeBody struct {
	io.ReadCloser
	text strings.Builder
	err  string
}

func (b *recordedExchangeBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.text.Write(p[:n])
	if err != nil {
		b.err = err.Error()
	}
	return n, err
}

var (
	loopback   = regexp.MustCompile(`(127\.0\.0\.1|localhost|\[::1\]):\d+`)
	anyPointer = regexp.MustCompile(`0x[0-9a-f]+`)
)

// neutral takes out what differs from run to run.
func (x *exchangeRun) neutral(s string) string {
	return anyPointer.ReplaceAllString(loopback.ReplaceAllString(s, "HOST"), "PTR")
}

func (x *exchangeRun) neutralHeader(h http.Header) http.Header {
	h = h.Clone()
	for name, values := range h {
		for i := range values {
			values[i] = x.neutral(values[i])
		}
		if name == "Date" {
			h[name] = []string{"now"}
		}
	}
	return h
}

// note keeps something else that must be the same.
func (x *exchangeRun) note(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen.Others = append(x.seen.Others, x.neutral(fmt.Sprintf(format, args...)))
}

// request makes one to the path.
func (x *exchangeRun) request(method, path string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(x.t.Context(), method, x.url+path, body)
	if err != nil {
		x.t.Fatal(err)
	}
	return req
}

// do sends the request, reads the answer to its end and notes both.
func (x *exchangeRun) do(req *http.Request) { x.doThen(req, io.ReadAll) }

// doThen sends the request, has the body read by the function, and closes it.
func (x *exchangeRun) doThen(req *http.Request, read func(io.Reader) ([]byte, error)) {
	a := answerSeen{}
	var events sync.Mutex
	event := func(format string, args ...any) {
		events.Lock()
		defer events.Unlock()
		a.Events = append(a.Events, fmt.Sprintf(format, args...))
	}
	trace := &httptrace.ClientTrace{
		GotConn:        func(i httptrace.GotConnInfo) { event("conn, reused %t", i.Reused) },
		Got100Continue: func() { event("100") },
		Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
			event("%d %v", code, h)
			return nil
		},
	}
	before := exchangeSnapshot(req)
	sent := req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	resp, err := x.client.Do(sent)
	if after := exchangeSnapshot(sent); after != before {
		x.note("the request was changed from %s to %s", before, after)
	}
	if err != nil {
		a.Err = x.errorSeen(err)
	}
	if resp != nil {
		a.Status, a.Proto, a.Header = resp.Status, resp.Proto, x.neutralHeader(resp.Header)
		a.ContentLength, a.TransferEncoding, a.Close, a.Uncompressed = resp.ContentLength, resp.TransferEncoding, resp.Close, resp.Uncompressed
		if resp.TLS != nil {
			a.TLS = tls.VersionName(resp.TLS.Version) + " " + resp.TLS.NegotiatedProtocol
		}
		a.Request = x.neutral(resp.Request.Method + " " + resp.Request.URL.String())
		body, err := read(resp.Body)
		a.Body = string(body)
		if err != nil {
			a.BodyErr = fmt.Sprintf("%T %s", err, x.neutral(err.Error()))
		}
		if err := resp.Body.Close(); err != nil {
			x.note("closing the body: %v", err)
		}
		if len(resp.Trailer) > 0 {
			a.Trailer = resp.Trailer.Clone()
		}
	}
	events.Lock()
	defer events.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen.Client = append(x.seen.Client, a)
}

// exchangeSnapshot shows a change of the caller's request.
func exchangeSnapshot(r *http.Request) string {
	return fmt.Sprint(r.Method, r.URL, r.Header, r.ContentLength, r.TransferEncoding, r.Close, r.Host, r.Trailer)
}

// errorSeen describes the error, past fedhttp's own in the chain.
func (x *exchangeRun) errorSeen(err error) errorSeen {
	var timeout interface{ Timeout() bool }
	s := errorSeen{Timeout: errors.As(err, &timeout) && timeout.Timeout()}
	for _, is := range []error{
		io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE,
		http.ErrUseLastResponse, http.ErrHandlerTimeout, http.ErrBodyReadAfterClose, http.ErrSchemeMismatch, errBodyBroke,
		x.t.Context().Err(),
	} {
		if is != nil && errors.Is(err, is) {
			s.Matches = append(s.Matches, is.Error())
		}
	}
	var op *net.OpError
	var verification *tls.CertificateVerificationError
	for name, found := range map[string]bool{"net.OpError": errors.As(err, &op), "tls verification": errors.As(err, &verification)} {
		if found {
			s.Matches = append(s.Matches, name)
		}
	}
	slices.Sort(s.Matches)
	inner := err
	if u := errors.Unwrap(err); u != nil { // of *url.Error
		inner = u
	}
	var own *fedhttp.Error
	if errors.As(err, &own) {
		inner = own.Err
	}
	s.Type, s.Text = fmt.Sprintf("%T", inner), x.neutral(fmt.Sprint(inner))
	return s
}
