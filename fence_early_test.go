package fedhttp_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
)

// eagerPeer answers once too often: each connection's first request a second time, when
// told to.
type eagerPeer struct {
	*rawServer
	extra string
	once  chan struct{} // closed to have the second answer sent
	got   chan struct{} // closed when the request to /doomed has come
	count atomic.Int64  // how often it has
}

func newEagerPeer(t *testing.T, config *tls.Config, extra string) *eagerPeer {
	p := &eagerPeer{extra: extra, once: make(chan struct{}), got: make(chan struct{})}
	p.rawServer = listenRaw(t, config, p.serve)
	return p
}

func (p *eagerPeer) serve(conn net.Conn) {
	br := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		if req.URL.Path == "/doomed" && p.count.Add(1) == 1 {
			close(p.got)
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			return
		}
		if req.URL.Path == "/first" {
			<-p.once
			if _, err := io.WriteString(conn, p.extra); err != nil {
				return
			}
		}
	}
}

// TestFenceEarlyAnswer: a peer answers once too often, with words that would have the
// next request sent again, or with what looks like its result. That comes when the
// request has a connection, and nothing of it is written: it answers another one, and
// the request leaves on another connection.
func TestFenceEarlyAnswer(t *testing.T) {
	const evaluated = "X-Federation-Policy-Evaluated: "
	for name, extra := range map[string]string{
		"routing":           "HTTP/1.1 503 Late\r\n" + evaluated + "false\r\nContent-Length: 0\r\n\r\n",
		"routing, a body":   "HTTP/1.1 503 Late\r\n" + evaluated + "false\r\nContent-Length: 4\r\n\r\nlate",
		"rejection":         "HTTP/1.1 403 Late\r\n" + evaluated + "true\r\nContent-Length: 0\r\n\r\n",
		"result":            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate",
		"result, no length": "HTTP/1.1 200 OK\r\n\r\nlate",
		"idle for too long": "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
	} {
		for over, config := range map[string]*tls.Config{"TCP": nil, "TLS": serverTLS(true, "http/1.1")} {
			t.Run(name+"/"+over, func(t *testing.T) {
				checkLeaks(t)
				t.Parallel()
				peer := newEagerPeer(t, config, extra)
				tr := fenced(t, &http.Transport{TLSClientConfig: trusting()}, peer.url)
				if err := rawGet(tr, peer.url+"/first"); err != nil {
					t.Fatal(err)
				}
				heard := make(chan struct{})
				var field, first sync.Once
				ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{
					WroteHeaderField: func(string, []string) { // into a buffer
						field.Do(func() { close(peer.once); <-heard })
					},
					GotFirstResponseByte: func() { first.Do(func() { close(heard) }) },
				})
				if err := rawSend(tr, requestOf(http.MethodPost, peer.url+"/doomed").WithContext(ctx)); err != nil {
					t.Errorf("nothing had left, and it was not sent again: %v", err)
				}
				// Nor is the answer that was due taken for that of the next request.
				if err := rawGet(tr, peer.url+"/next"); err != nil {
					t.Errorf("the next request: %v", err)
				}
				peer.drain(tr)
				if n := peer.count.Load(); n != 1 {
					t.Errorf("the peer got it %d times, want once", n)
				}
			})
		}
	}
}
