package fedhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// frameControlLimit is after how many requests a framePeer gives in and answers
// 200, so that net/http itself comes to an end.
const frameControlLimit = 4

// http2Failures are the ways in which a peer makes net/http send again.
var http2Failures = map[string]func(c *frameConn, stream uint32){
	"PROTOCOL_ERROR": func(c *frameConn, stream uint32) { c.reset(stream, codeProtocol) },
	"GOAWAY":         func(c *frameConn, _ uint32) { c.goAway(0, 0) },
	"REFUSED_STREAM": func(c *frameConn, stream uint32) { c.reset(stream, codeRefused) },
}

// failingPeer starts a framePeer that fails limit times, and then answers.
func failingPeer(t *testing.T, secure bool, limit int64, fail func(*frameConn, uint32)) *framePeer {
	return newFramePeer(t, secure, func(c *frameConn, stream uint32, n int64) {
		if n > limit {
			c.ok(stream)
		} else {
			fail(c, stream)
		}
	})
}

// TestFenceHTTP2 is the table of what an HTTP/2 server sees of one request that
// it does not want: through net/http and through fedhttp, whose base is an
// http.Transport or one that hides it and passes the context on.
func TestFenceHTTP2(t *testing.T) {
	for _, secure := range []bool{true, false} {
		for name, fail := range http2Failures {
			for _, method := range []string{http.MethodGet, http.MethodPost} {
				for _, trust := range []bool{false, true} {
					for _, wrapped := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s/%s/%s/trust=%v/wrapped=%v", schemeName(secure), name, method, trust, wrapped), func(t *testing.T) {
							checkLeaks(t)
							t.Parallel()
							limit := int64(frameControlLimit)
							if name == "REFUSED_STREAM" {
								limit = 1 // net/http waits for seconds between more
							}
							control := failingPeer(t, secure, limit, fail)
							plain := frameBase(secure)
							if err := rawSend(plain, requestOf(method, control.url)); err != nil {
								t.Errorf("net/http: %v", err)
							}
							control.drain(plain)
							if n := control.whole.Load(); n != limit+1 {
								t.Errorf("net/http delivers %d times, want %d: nothing is tested", n, limit+1)
							}

							peer := failingPeer(t, secure, max(limit, 3), fail)
							own := frameBase(secure)
							var base http.RoundTripper = own
							if wrapped {
								base = roundTripFunc(own.RoundTrip)
							}
							cfg := testPeer("b", peer.url)
							cfg.Retry.TrustHTTP2Refusal = trust
							tr := newTestTransport(t, fedhttp.Config{Base: base, Anchors: fenceEager(), Escalator: fenceQuiet, Peers: []fedhttp.Peer{cfg}})
							err := rawSend(tr, requestOf(method, peer.url))
							peer.drain(tr, own)
							got := peer.whole.Load()
							t.Logf("delivered: net/http %d times and more, fedhttp %d times: %v", limit+1, got, err)
							// Where net/http's own pool has the connections, it shows a REFUSED_STREAM
							// only, by the next attempt; not in the clear below a base that is not
							// ours, which is not known as HTTP/2.
							shown := name == "REFUSED_STREAM" && (secure || !wrapped) || name == "GOAWAY" && secure && !wrapped
							if trust && shown {
								d := fenceDecision(t, err)
								if got != 2 || d.Attempts != 2 || d.Outcome != fedhttp.OutcomeRoutingFailed || d.Delivery != fedhttp.DeliveryPossible {
									t.Errorf("delivered %d times, %+v; want twice, as a routing failure", got, d)
								}
								return
							}
							if got != 1 {
								t.Errorf("delivered %d times, want once", got)
							}
							checkAmbiguous(t, err)
							if errors.Is(err, context.Canceled) {
								t.Errorf("got %v, but nobody canceled the call", err)
							}
						})
					}
				}
			}
		}
	}
}

// TestFenceHTTP2Failures: what net/http does not send again comes to the caller
// as it is, and is in doubt.
func TestFenceHTTP2Failures(t *testing.T) {
	for name, fail := range map[string]func(c *frameConn, stream uint32){
		"INTERNAL_ERROR": func(c *frameConn, stream uint32) { c.reset(stream, codeInternal) },
		"the end":        func(c *frameConn, _ uint32) { c.conn.Close() },
		"not HTTP/2":     func(c *frameConn, _ uint32) { _, _ = c.conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) },
	} {
		for _, secure := range []bool{true, false} {
			t.Run(name+"/"+schemeName(secure), func(t *testing.T) {
				checkLeaks(t)
				t.Parallel()
				peer := failingPeer(t, secure, frameControlLimit, fail)
				tr := fenced(t, frameBase(secure), peer.url)
				err := rawSend(tr, requestOf(http.MethodPost, peer.url))
				checkAmbiguous(t, err)
				peer.drain(tr)
				if n := peer.whole.Load(); n != 1 {
					t.Errorf("delivered %d times, want once", n)
				}
			})
		}
	}
}

// TestFenceHTTP2Neighbours: fencing one stream of a connection lets all the
// others be, whether or not the connection takes new streams afterwards.
func TestFenceHTTP2Neighbours(t *testing.T) {
	const streams, victim = 50, 25
	for _, secure := range []bool{true, false} {
		for _, name := range []string{"REFUSED_STREAM", "PROTOCOL_ERROR"} {
			t.Run(schemeName(secure)+"/"+name, func(t *testing.T) {
				checkLeaks(t)
				t.Parallel()
				var arrived []uint32 // only one connection's goroutine uses it
				rest := make(chan func(), 1)
				var pooled atomic.Bool
				peer := newFramePeer(t, secure, func(c *frameConn, stream uint32, _ int64) {
					if !pooled.Load() {
						c.ok(stream) // one of those that make the connection
						return
					}
					if arrived = append(arrived, stream); len(arrived) != streams {
						return
					}
					http2Failures[name](c, arrived[victim])
					rest <- func() {
						for i, stream := range arrived {
							if i != victim {
								c.ok(stream)
							}
						}
					}
				})
				tr := fenced(t, frameBase(secure), peer.url)
				pool(t, tr, peer.url)
				pooled.Store(true)
				connections, requests := peer.accepted.Load(), peer.whole.Load()
				results := make(chan error, streams)
				for range streams {
					go func() { results <- rawSend(tr, requestOf(http.MethodPost, peer.url)) }()
				}
				answerRest := <-rest
				checkAmbiguous(t, <-results) // nobody else can have ended yet
				answerRest()
				for range streams - 1 {
					if err := <-results; err != nil {
						t.Errorf("a neighbour: %v", err)
					}
				}
				peer.drain(tr)
				if n := peer.accepted.Load() - connections; n != 0 {
					t.Errorf("%d more connections, want none", n)
				}
				if n := peer.whole.Load() - requests; n != streams {
					t.Errorf("%d requests, want %d", n, streams)
				}
			})
		}
	}
}

// pool sends until the connection comes from the pool: net/http puts one of HTTP/2
// there only after it has handed it to whoever waited for it.
func pool(t *testing.T, tr http.RoundTripper, url string) {
	t.Helper()
	for reused := false; !reused; {
		req := requestOf(http.MethodGet, url)
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { reused = got.Reused }})
		if err := rawSend(tr, req.WithContext(ctx)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFenceHTTP2LateHeaders: net/http gives a canceled request up while its
// header is still on its way, and it arrives. So nothing is proven of a request
// that was canceled on HTTP/2, even where the peer had not got it.
func TestFenceHTTP2LateHeaders(t *testing.T) {
	errStopped := errors.New("the user has left")
	for _, timeout := range []bool{false, true} {
		for _, secure := range []bool{true, false} {
			t.Run(fmt.Sprintf("timeout=%v/%s", timeout, schemeName(secure)), func(t *testing.T) {
				checkLeaks(t)
				t.Parallel()
				arrived := make(chan struct{}, 8)
				peer := newFramePeer(t, secure, func(c *frameConn, stream uint32, n int64) {
					arrived <- struct{}{}
					c.ok(stream)
				})
				tap := &wireTap{}
				base := frameBase(secure)
				base.DialContext = tap.dial
				tr := fenced(t, base, peer.url)
				pool(t, tr, peer.url)
				for len(arrived) > 0 {
					<-arrived
				}
				requests := peer.whole.Load()
				writing, gate := make(chan struct{}, 64), make(chan struct{})
				tap.last().intercept(func([]byte) (int, error) {
					writing <- struct{}{}
					<-gate
					return 0, nil
				})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				failed := make(chan error, 1)
				go func() {
					failed <- rawSend(tr, requestOf(http.MethodGet, peer.url+"/late").WithContext(ctx))
				}()
				<-writing
				if !timeout {
					cancel(errStopped)
				} else if n := fedhttp.EndAttempts(tr, nil); n != 1 {
					t.Errorf("%d attempts are under way, want one", n)
				}
				err := <-failed
				d := fenceDecision(t, err)
				if n := peer.whole.Load() - requests; n != 0 {
					t.Errorf("the peer has %d requests already", n)
				}
				close(gate)
				<-arrived // it was delivered all the same
				if d.Delivery != fedhttp.DeliveryPossible || d.Attempts != 1 {
					t.Errorf("got %+v, want one attempt, possibly delivered", d)
				}
				if timeout {
					checkAmbiguous(t, err)
					var t2 interface{ Timeout() bool }
					if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &t2) || !t2.Timeout() {
						t.Errorf("got %v, want a timeout", err)
					}
				} else if d.Outcome != fedhttp.OutcomeCanceled || !errors.Is(err, context.Canceled) || !errors.Is(err, errStopped) {
					t.Errorf("got %v, want the context's error and its cause", err)
				}
				if strings.Contains(err.Error(), "another send") {
					t.Errorf("got %v, but nothing was stopped", err)
				}
			})
		}
	}
}
