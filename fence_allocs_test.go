package fedhttp_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// maxFenceAllocs is how many allocations a base that has connections may add to
// what the chain costs over a stub: those of the fence, and the three of the
// attempt's end, which nobody asks for over a stub.
const maxFenceAllocs = 6

// cannedConn answers each write, a whole request, with the same response. It
// allocates nothing.
type cannedConn struct {
	net.Conn // nil: nothing else is called
	asked    chan struct{}
	closed   chan struct{}
	answer   []byte
	rest     []byte
}

func dialCanned(context.Context, string, string) (net.Conn, error) {
	return &cannedConn{
		asked: make(chan struct{}, 1), closed: make(chan struct{}),
		answer: []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
	}, nil
}

func (c *cannedConn) Write(p []byte) (int, error) {
	c.asked <- struct{}{}
	return len(p), nil
}

func (c *cannedConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case <-c.asked:
			c.rest = c.answer
		case <-c.closed:
			return 0, io.EOF
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *cannedConn) Close() error {
	close(c.closed)
	return nil
}

func fenceChain(tb testing.TB, base http.RoundTripper, url string) *fedhttp.Transport {
	tb.Helper()
	tr, err := fedhttp.NewTransport(fedhttp.Config{Base: base, Peers: []fedhttp.Peer{{ID: "b", Origins: []string{url}}}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { tr.Close() })
	return tr
}

func fenceCall(tb testing.TB, rt http.RoundTripper, url string) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		tb.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// fenceAllocs returns how many allocations fedhttp adds to a GET over a
// connection of base.
func fenceAllocs(tb testing.TB, base func() *http.Transport, url string) float64 {
	plain := base()
	defer plain.CloseIdleConnections()
	chain := fenceChain(tb, base(), url)
	return testing.AllocsPerRun(1000, func() { fenceCall(tb, chain, url) }) -
		testing.AllocsPerRun(1000, func() { fenceCall(tb, plain, url) })
}

// stubAllocs is the same over a base that asks for no connection, so that the
// fence has nothing to do.
func stubAllocs(tb testing.TB) float64 {
	stub := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
	})
	chain := fenceChain(tb, stub, "http://localhost:1")
	return testing.AllocsPerRun(1000, func() { fenceCall(tb, chain, "http://localhost:1") }) -
		testing.AllocsPerRun(1000, func() { fenceCall(tb, stub, "http://localhost:1") })
}

// TestFenceAllocs holds what the fence costs, over connections that cost nothing
// and over TLS.
func TestFenceAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	checkLeaks(t)
	secure := listenRaw(t, serverTLS(true), cannedServe)
	stub := stubAllocs(t)
	for name, c := range map[string]struct {
		url  string
		base func() *http.Transport
	}{
		"plain": {"http://localhost:1", func() *http.Transport { return &http.Transport{DialContext: dialCanned} }},
		"TLS":   {secure.url, func() *http.Transport { return &http.Transport{TLSClientConfig: trusting()} }},
	} {
		all := fenceAllocs(t, c.base, c.url)
		t.Logf("%s: %v allocations beyond net/http's, %v of them the fence's", name, all, all-stub)
		if all-stub > maxFenceAllocs {
			t.Errorf("%s: the fence costs %v allocations, want at most %d", name, all-stub, maxFenceAllocs)
		}
	}
}

// cannedServe is cannedConn over a socket.
func cannedServe(conn net.Conn) {
	request, end := make([]byte, 4096), []byte("\r\n\r\n")
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	for have := 0; ; {
		n, err := conn.Read(request[have:])
		if err != nil {
			return
		}
		if have += n; !bytes.HasSuffix(request[:have], end) {
			continue
		}
		have = 0
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}
