package fedhttp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// A peer that falls silent leaves the calls given up, for good. Their connection is idle
// then, although nothing acknowledges their end.
func TestHTTP2SilentPeer(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	arrived := make(chan struct{}, 1)
	peer := listenRaw(t, serverTLS(true, "h2"), func(conn net.Conn) {
		c := &frameConn{conn: conn}
		c.write(frameSettings, 0, 0, nil)
		if _, err := io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
			return
		}
		for {
			switch f, err := readFrame(conn); {
			case err != nil:
				return
			case f.kind == frameHeaders:
				arrived <- struct{}{}
			}
		}
	})
	tr := newTestTransport(t, fedhttp.Config{
		Base: frameBase(true), Escalator: fenceQuiet, Peers: []fedhttp.Peer{testPeer("b", peer.url)},
	})
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-arrived; cancel() }()
		if err := rawSend(tr, requestOf(http.MethodGet, peer.url).WithContext(ctx)); err == nil {
			t.Error("an answer")
		}
	}
	if n := peer.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	peer.drain(tr)
}

// An answer that is read has its connection, also where that is all that happens on it.
func TestHTTP2ReadingIsNotIdle(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	more := make(chan struct{})
	s, _, _ := server(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "all of it")
	})
	tr := fenced(t, frameBase(true), s.URL)
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(requestOf(http.MethodGet, s.URL))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	tr.CloseIdleConnections()
	close(more)
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "all of it" {
		t.Errorf("%q, %v", body, err)
	}
}
