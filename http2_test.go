package fedhttp_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// onOneConn starts a framePeer that answers all, and a Transport that has sent it one
// request: over first. conns has the connection of each that follows.
func onOneConn(t *testing.T) (peer *framePeer, tr *fedhttp.Transport, first *frameConn, conns chan *frameConn) {
	t.Helper()
	conns = make(chan *frameConn, 4)
	peer = newFramePeer(t, true, func(c *frameConn, stream uint32, _ int64) {
		conns <- c
		c.ok(stream)
	})
	peer.pongs = make(chan struct{}, 2)
	tr = fenced(t, frameBase(true), peer.url)
	if err := rawSend(tr, requestOf(http.MethodPost, peer.url)); err != nil {
		t.Fatal(err)
	}
	return peer, tr, <-conns, conns
}

// A GOAWAY that comes after a request was given a connection, and before it has a
// stream, leaves it unsent. That is proof, and not the peer's word.
func TestHTTP2GoAwayBeforeTheStream(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer, tr, first, conns := onOneConn(t)
	gone := sync.OnceFunc(func() {
		first.goAway(1, 0)
		first.write(framePing, 0, 0, make([]byte, 8))
		<-peer.pongs // so the GOAWAY was read
	})
	req := requestOf(http.MethodPost, peer.url)
	req = req.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { gone() }}))
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	d, _ := fedhttp.DecisionFromResponse(resp)
	if d.Outcome != fedhttp.OutcomeDelivered || d.Attempts != 2 || d.Refreshes == 0 {
		t.Errorf("%+v, want a second attempt after a refresh", d)
	}
	if n := peer.whole.Load(); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
	if second := <-conns; second == first {
		t.Error("it went out on the connection that takes nothing")
	}
	peer.drain(tr)
}

// A peer that ends each connection before it takes a request is dialed for each attempt,
// and not as fast as it answers.
func TestHTTP2GoAwayAtOnce(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	var requests atomic.Int64
	peer := listenRaw(t, serverTLS(true, "h2"), func(conn net.Conn) {
		c := &frameConn{conn: conn}
		c.write(frameSettings, 0, 0, nil)
		c.goAway(0, 0)
		if _, err := io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
			return
		}
		for {
			f, err := readFrame(conn)
			if err != nil {
				return
			}
			if f.kind == frameHeaders {
				requests.Add(1)
			}
		}
	})
	const calls = 20
	var tr *fedhttp.Transport
	for range calls {
		before := peer.accepted.Load()
		tr = fenced(t, frameBase(true), peer.url)
		d := fenceDecision(t, rawSend(tr, requestOf(http.MethodGet, peer.url)))
		tr.CloseIdleConnections()
		// net/http may hand an attempt what the one before has dialed, and dial meanwhile.
		if dialed := peer.accepted.Load() - before; dialed > 2*int64(d.Attempts) {
			t.Errorf("%d connections for %d attempts", dialed, d.Attempts)
		}
	}
	peer.drain(tr)
	if n := requests.Load(); n > calls {
		t.Errorf("%d requests of %d calls", n, calls)
	}
}

// server starts one that speaks HTTP/2 and counts the connections that it has had and
// those that are open.
func server(t *testing.T, streams int, handler http.HandlerFunc) (s *httptest.Server, had, open *atomic.Int64) {
	had, open = new(atomic.Int64), new(atomic.Int64)
	s = httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			had.Add(1)
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	s.TLS = &tls.Config{Certificates: serverTLS(true).Certificates}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, had, open
}

// Where a connection takes no more streams, more connections are made, and they stay.
func TestHTTP2StreamsAboveTheLimit(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	const callers, streams = 100, 8 // fewer than net/http takes for granted before the settings come
	var inside atomic.Int64
	all := make(chan struct{})
	s, had, _ := server(t, streams, func(_ http.ResponseWriter, r *http.Request) {
		if inside.Add(1) == callers {
			close(all)
		}
		select {
		case <-all:
		case <-r.Context().Done():
		}
	})
	tr := fenced(t, frameBase(true), s.URL)
	defer tr.CloseIdleConnections()
	together(t, callers, tr, s.URL)
	before := had.Load()
	if before < callers/streams {
		t.Errorf("%d connections for %d calls at the same time, %d on each", before, callers, streams)
	}
	more := int64(-1)
	for range 20 { // what was dialed for calls that went over another connection comes later
		before = had.Load()
		for range callers {
			if err := rawSend(tr, requestOf(http.MethodGet, s.URL)); err != nil {
				t.Fatal(err)
			}
		}
		if more = had.Load() - before; more == 0 {
			break
		}
	}
	if more != 0 {
		t.Errorf("%d more connections for calls one after the other", more)
	}
}

// together makes calls at the same time.
func together(t *testing.T, callers int, rt http.RoundTripper, url string) {
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			if err := rawSend(rt, requestOf(http.MethodGet, url)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// The first calls to a peer may each dial, as net/http cannot know that one connection
// will do. One is kept.
func TestHTTP2FirstCallsTogether(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	s, had, open := server(t, 0, func(http.ResponseWriter, *http.Request) {})
	tr := fenced(t, frameBase(true), s.URL)
	together(t, 50, tr, s.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for open.Load() > 1 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if n := open.Load(); n != 1 {
		t.Errorf("%d connections are open, want 1", n)
	}
	before := had.Load()
	together(t, 50, tr, s.URL)
	if n := had.Load() - before; n != 0 {
		t.Errorf("%d more connections", n)
	}
	tr.CloseIdleConnections()
}

// Where net/http keeps no connections of its own, those of HTTP/2 are found here.
func TestHTTP2NothingPooledElsewhere(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	s, had, _ := server(t, 0, func(http.ResponseWriter, *http.Request) {})
	base := frameBase(true)
	base.MaxIdleConnsPerHost = -1
	tr := fenced(t, base, s.URL)
	for range 5 {
		if err := rawSend(tr, requestOf(http.MethodGet, s.URL)); err != nil {
			t.Fatal(err)
		}
	}
	if n := had.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	tr.CloseIdleConnections()
}

// With DisableKeepAlives a connection has one request, also while that goes on.
func TestHTTP2WithoutKeepAlives(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	s, had, _ := server(t, 0, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	base := frameBase(true)
	base.DisableKeepAlives = true
	tr := fenced(t, base, s.URL)
	for i := range 3 {
		resp, err := tr.RoundTrip(requestOf(http.MethodGet, s.URL))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if d, _ := fedhttp.DecisionFromResponse(resp); d.Attempts != 1 || had.Load() != int64(i+1) {
			t.Errorf("request %d: %d attempts, %d connections", i+1, d.Attempts, had.Load())
		}
	}
}
