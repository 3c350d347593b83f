package fedhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fedhttp/fedhttp"
)

// A caller that ends its call, at every moment that there is: what comes of it is
// what comes of it with a plain http.Transport.

// moment is when the caller's context ends.
type moment struct {
	name   string
	over   []string // the protocols; nil: all
	method string   // "": GET
	body   string   // of the request: "text", which can be sent again, "pipe", which cannot and goes on, or none
	expect bool     // Expect: 100-continue
	serve  func(m *momentRun, w http.ResponseWriter, r *http.Request)
	dial   func(m *momentRun) (net.Conn, error) // nil: as usual
	before bool                                 // it has ended before the request is made
	read   func(m *momentRun, body io.Reader)   // of the answer, nil: to its end
	after  bool                                 // it ends after the answer's body was closed
}

// momentSeen is what came of it.
type momentSeen struct {
	Status     int
	Ended      bool // the error is that of the context
	Timeout    bool
	Body       string
	BodyErr    bool
	BodyEnded  bool // likewise; not compared where the request's body fails as well
	SentClosed bool // the request's body was closed
	Served     int  // requests that the server saw
	Let        bool // HTTP/2: the server was told that the client has gone
}

type momentRun struct {
	t        *testing.T
	url      string
	ctx      *endedByHand
	why      error
	once     sync.Once
	reached  chan struct{} // closed at the moment
	returned chan struct{} // closed when the client has returned
	over     chan struct{} // closed when the client is done
	quit     chan struct{} // closed at the end of the test
	served   sync.WaitGroup

	mu   sync.Mutex
	seen momentSeen
}

// now says that the moment has come, and waits until the context has ended.
func (m *momentRun) now() {
	m.once.Do(func() { close(m.reached) })
	m.wait(m.ctx.Done())
}

// wait waits for the channel, but not for ever.
func (m *momentRun) wait(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-time.After(10 * time.Second):
		return false
	}
}

// endedByHand is a context that ends with any error at any time.
type endedByHand struct {
	context.Context
	done chan struct{}

	mu  sync.Mutex
	err error
}

func (c *endedByHand) Done() <-chan struct{} { return c.done }

func (c *endedByHand) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *endedByHand) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
	}
}

// gone waits until the server knows that the client has gone.
func gone(m *momentRun, r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-m.over:
	}
	if r.ProtoMajor == 1 {
		// There it depends on what the server has read. TLS says goodbye before it is
		// gone, so the end of an answer could still be heard.
		panic(http.ErrAbortHandler)
	}
	let := m.wait(r.Context().Done())
	m.mu.Lock()
	m.seen.Let = let
	m.mu.Unlock()
}

func moments() []moment {
	reads := func(n int, then func(m *momentRun, w http.ResponseWriter, r *http.Request)) func(*momentRun, http.ResponseWriter, *http.Request) {
		return func(m *momentRun, w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex()
			if _, err := io.ReadFull(r.Body, make([]byte, n)); err != nil {
				return
			}
			then(m, w, r)
		}
	}
	waiting := func(m *momentRun, _ http.ResponseWriter, r *http.Request) { m.now(); gone(m, r) }
	status := func(code int, parts ...string) func(*momentRun, http.ResponseWriter, *http.Request) {
		return func(m *momentRun, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(code)
			for _, p := range parts {
				_, _ = io.WriteString(w, p)
			}
			_ = http.NewResponseController(w).Flush()
			gone(m, r)
		}
	}
	whole := func(_ *momentRun, w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "whole") }
	readPart := func(m *momentRun, body io.Reader) {
		p := make([]byte, 4)
		_, _ = io.ReadFull(body, p)
		m.now()
	}
	nowRead := func(m *momentRun, _ io.Reader) { m.now() }
	return []moment{
		{name: "before", before: true, serve: whole},
		{name: "before, text", before: true, serve: whole, method: "POST", body: "text"},
		{name: "before, pipe", before: true, serve: whole, method: "POST", body: "pipe"},
		{name: "dialing", serve: whole, dial: func(m *momentRun) (net.Conn, error) {
			m.now()
			<-m.quit
			return nil, net.ErrClosed
		}},
		{name: "dialing, text", method: "POST", body: "text", serve: whole, dial: func(m *momentRun) (net.Conn, error) {
			m.now()
			<-m.quit
			return nil, net.ErrClosed
		}},
		{name: "dialed", serve: whole, dial: func(m *momentRun) (net.Conn, error) {
			m.now()
			m.wait(m.returned) // which of both comes first is net/http's choice else
			return net.Dial("tcp", strings.TrimPrefix(strings.TrimPrefix(m.url, "https://"), "http://"))
		}},
		{name: "handshake", over: []string{"https", "h2"}, serve: whole, dial: func(m *momentRun) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = theirs.Read(make([]byte, 1))
				m.now()
				<-m.quit
				theirs.Close()
			}()
			return ours, nil
		}},
		{name: "writing", over: []string{"http"}, method: "POST", body: "text", serve: whole, dial: func(m *momentRun) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				_, _ = theirs.Read(make([]byte, 1)) // of the header
				m.now()
				<-m.quit
				theirs.Close()
			}()
			return ours, nil
		}},
		{name: "waiting", serve: waiting},
		{name: "waiting, text", method: "POST", body: "text", serve: reads(4, waiting)},
		{name: "waiting, pipe", method: "POST", body: "pipe", serve: reads(4, waiting)},
		{name: "waiting, HEAD", method: "HEAD", serve: waiting},
		{name: "expecting", method: "POST", body: "text", expect: true, serve: waiting},
		{name: "expecting, pipe", method: "POST", body: "pipe", expect: true, serve: waiting},
		{name: "after 103", serve: func(m *momentRun, w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			waiting(m, w, r)
		}},
		{name: "in the body", serve: status(200, "part"), read: readPart},
		{name: "in the body of 403", serve: status(403, "part"), read: readPart},
		{name: "in the body, pipe", method: "POST", body: "pipe", serve: reads(4, status(200, "part")), read: readPart},
		{name: "in the body of 403, pipe", method: "POST", body: "pipe", serve: reads(4, status(403, "part")), read: readPart},
		{name: "answered 204", serve: status(204), read: nowRead},
		{name: "answered 204, pipe", method: "POST", body: "pipe", serve: reads(4, status(204)), read: nowRead},
		{name: "answered 304, pipe", method: "POST", body: "pipe", serve: reads(4, status(304)), read: nowRead},
		{name: "answered HEAD, pipe", method: "HEAD", body: "pipe", serve: reads(4, status(200)), read: nowRead},
		{name: "at the end", serve: whole, read: func(m *momentRun, body io.Reader) {
			_, _ = io.ReadAll(body)
			m.now()
		}},
		{name: "at the end, pipe", over: []string{"h2"}, method: "POST", body: "pipe", serve: reads(4, whole), read: func(m *momentRun, body io.Reader) {
			_, _ = io.ReadAll(body)
			m.now()
		}},
		{name: "after", serve: whole, after: true},
		{name: "after, closed early", serve: status(200, "part"), read: func(_ *momentRun, body io.Reader) { _, _ = body.Read(make([]byte, 1)) }, after: true},
	}
}

// momentClients are ways to have a Transport around the same http.Transport.
var momentClients = map[string]func(t *testing.T, base http.RoundTripper, url string) http.RoundTripper{
	"alone": momentTransport,
	"over another": func(t *testing.T, base http.RoundTripper, url string) http.RoundTripper {
		return momentTransport(t, momentTransport(t, base, url), url)
	},
	"over one that derives": func(t *testing.T, base http.RoundTripper, url string) http.RoundTripper {
		return momentTransport(t, derivingBase{base}, url)
	},
}

func momentTransport(t *testing.T, base http.RoundTripper, url string) http.RoundTripper {
	t.Helper()
	p := testPeer("b", url)
	p.Denial.HoldOff, p.Breaker.Failures = -1, -1
	return newTestTransport(t, fedhttp.Config{Base: base, Peers: []fedhttp.Peer{p}, Logger: quietLogger})
}

// derivingBase gives each request a context of its own, as one that traces does, or
// one that sets a limit.
type derivingBase struct{ base http.RoundTripper }

func (b derivingBase) RoundTrip(r *http.Request) (*http.Response, error) {
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), key{}, 1))
	resp, err := b.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &derivedBody{resp.Body, cancel}
	return resp, nil
}

func (b derivingBase) CloseIdleConnections() {
	b.base.(interface{ CloseIdleConnections() }).CloseIdleConnections() //nolint:forcetypeassert // an http.Transport
}

type derivedBody struct {
	io.ReadCloser
	cancel func()
}

func (b *derivedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}

func TestMoments(t *testing.T) {
	t.Parallel()
	for _, mo := range moments() {
		for _, over := range []string{"http", "https", "h2"} {
			if mo.over != nil && !slices.Contains(mo.over, over) {
				continue
			}
			for _, why := range []error{context.Canceled, context.DeadlineExceeded} {
				t.Run(fmt.Sprint(mo.name, " ", over, " ", why), func(t *testing.T) {
					checkLeaks(t)
					t.Parallel()
					plain := runMoment(t, mo, over, why, func(_ *testing.T, base http.RoundTripper, _ string) http.RoundTripper { return base })
					for name, client := range momentClients {
						if diff := cmp.Diff(plain, runMoment(t, mo, over, why, client)); diff != "" {
							t.Errorf("%s; - plain, + fedhttp:\n%s", name, diff)
						}
					}
				})
			}
		}
	}
}

func runMoment(t *testing.T, mo moment, over string, why error, wrap func(*testing.T, http.RoundTripper, string) http.RoundTripper) momentSeen {
	t.Helper()
	m := &momentRun{
		t: t, why: why, reached: make(chan struct{}), returned: make(chan struct{}), quit: make(chan struct{}), over: make(chan struct{}),
		ctx: &endedByHand{Context: t.Context(), done: make(chan struct{})},
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.served.Add(1)
		defer m.served.Done()
		m.mu.Lock()
		m.seen.Served++
		m.mu.Unlock()
		mo.serve(m, w, r)
	}))
	server.Config.ErrorLog = quietLog
	base := &http.Transport{}
	switch server.EnableHTTP2 = over == "h2"; over {
	case "http":
		server.Start()
	default:
		server.StartTLS()
		base = server.Client().Transport.(*http.Transport).Clone()
	}
	defer server.Close()
	m.url = server.URL
	base.ExpectContinueTimeout = time.Hour
	base.DialContext = nil
	if mo.dial != nil {
		base.DialContext = func(context.Context, string, string) (net.Conn, error) { return mo.dial(m) }
	}
	client := &http.Client{Transport: wrap(t, base, server.URL)}
	defer client.CloseIdleConnections()
	defer close(m.quit)

	go func() {
		select {
		case <-m.reached:
			m.ctx.end(why)
		case <-m.quit:
		}
	}()
	go func() { defer close(m.returned); m.do(mo, client) }()
	if !m.wait(m.returned) {
		t.Error("the client hangs")
		server.CloseClientConnections()
		<-m.returned
	}
	m.ctx.end(why)
	close(m.over)
	served := make(chan struct{})
	go func() { m.served.Wait(); close(served) }()
	if !m.wait(served) {
		t.Error("the server is not done")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen
}

// closedPipe is a pipe that tells when it is closed.
type closedPipe struct {
	*io.PipeReader
	once   sync.Once
	closed chan struct{}
}

func (p *closedPipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return p.PipeReader.Close()
}

func (m *momentRun) do(mo moment, client *http.Client) {
	if mo.before {
		m.ctx.end(m.why)
	}
	var body io.Reader
	var sent *closedPipe
	switch mo.body {
	case "text":
		body = strings.NewReader("text of the request")
	case "pipe":
		reader, writer := io.Pipe()
		sent = &closedPipe{PipeReader: reader, closed: make(chan struct{})}
		body = sent
		go func() { _, _ = io.WriteString(writer, "text of the request") }() // and it goes on,
		// until then: net/http waits for a Read that is at hand.
		context.AfterFunc(m.ctx, func() { writer.CloseWithError(m.why) })
		defer sent.Close()
	}
	req, err := http.NewRequestWithContext(m.ctx, mo.method, m.url, body)
	if err != nil {
		m.t.Error(err)
		return
	}
	if mo.expect {
		req.Header.Set("Expect", "100-continue")
	}
	resp, err := client.Do(req)
	s := &m.seen
	m.mu.Lock()
	if err != nil {
		var timeout interface{ Timeout() bool }
		s.Ended = errors.Is(err, m.why)
		// What was never sent has not timed out; see Error.Timeout.
		s.Timeout = !mo.before && errors.As(err, &timeout) && timeout.Timeout()
		if other := errors.Is(err, context.Canceled) == errors.Is(err, context.DeadlineExceeded); other {
			m.t.Errorf("the error is %v", err)
		}
	} else {
		s.Status = resp.StatusCode
	}
	m.mu.Unlock()
	if resp != nil {
		if mo.read != nil {
			mo.read(m, resp.Body)
		}
		if !mo.after || mo.read == nil {
			text, err := io.ReadAll(resp.Body)
			m.mu.Lock()
			s.Body, s.BodyErr, s.BodyEnded = string(text), err != nil, mo.body == "" && errors.Is(err, m.why)
			m.mu.Unlock()
		}
		if err := resp.Body.Close(); err != nil {
			m.t.Errorf("closing the body: %v", err)
		}
		m.ctx.end(m.why)
	}
	if sent != nil {
		closed := m.wait(sent.closed)
		m.mu.Lock()
		s.SentClosed = closed
		m.mu.Unlock()
	}
}
