package fedhttp_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// uselessPeer starts a peer whose connections are of no use after what begin and end
// write: at their start, and after each answer. It never ends one.
func uselessPeer(t *testing.T, begin, end func(*frameConn)) *rawServer {
	return listenRaw(t, serverTLS(true, "h2"), func(conn net.Conn) {
		c := &frameConn{conn: conn}
		begin(c)
		if _, err := io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
			return
		}
		for {
			switch f, err := readFrame(conn); {
			case err != nil:
				return
			case f.kind == frameSettings && f.flags&flagAck == 0:
				c.write(frameSettings, flagAck, 0, nil)
			case f.kind == frameHeaders:
				c.ok(f.stream)
				end(c)
			}
		}
	})
}

// streamsOf is the settings frame that lets a client have so many streams.
func (c *frameConn) streams(n uint32) {
	c.write(frameSettings, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 3}, n))
}

// Connections that take nothing more are closed, also where the peer does not: a caller
// must not have ever more of them.
func TestHTTP2UselessConnections(t *testing.T) {
	nothing := func(*frameConn) {}
	settings := func(c *frameConn) { c.write(frameSettings, 0, 0, nil) }
	for name, does := range map[string]struct{ begin, end func(*frameConn) }{
		"GOAWAY after an answer":     {settings, func(c *frameConn) { c.goAway(1, 0) }},
		"no streams after an answer": {settings, func(c *frameConn) { c.streams(0) }},
		"GOAWAY at once":             {func(c *frameConn) { settings(c); c.goAway(0, 0) }, nothing},
		"no streams at once":         {func(c *frameConn) { c.streams(0) }, nothing},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			t.Parallel()
			peer := uselessPeer(t, does.begin, does.end)
			tr := newTestTransport(t, fedhttp.Config{Base: frameBase(true), Peers: []fedhttp.Peer{testPeer("b", peer.url)}})
			const calls = 20
			for range calls {
				// One that has a connection before the settings come may wait for a stream.
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				_ = rawSend(tr, requestOf(http.MethodGet, peer.url).WithContext(ctx))
				cancel()
			}
			if n := peer.openWhen(1); n > 1 {
				t.Errorf("%d connections are open after %d calls, want one", n, calls)
			}
			if n := peer.accepted.Load(); n > 2*calls {
				t.Errorf("%d connections for %d calls", n, calls)
			}
		})
	}
}

// openWhen waits until no more than want connections are open, and not for long.
func (s *rawServer) openWhen(want int) int {
	for tries := 0; ; tries++ {
		s.mu.Lock()
		n := len(s.open)
		s.mu.Unlock()
		if n <= want || tries == 2000 {
			return n
		}
		time.Sleep(time.Millisecond)
	}
}

// A connection that another call has used up, or that is closed since it is idle, is no
// reason for a call to fail that has dialed it.
func TestHTTP2DialedForOthers(t *testing.T) {
	for name, keep := range map[string]bool{"used up": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			t.Parallel()
			s, _, _ := server(t, 0, func(http.ResponseWriter, *http.Request) {})
			base := frameBase(true)
			base.DisableKeepAlives = !keep
			tr := newTestTransport(t, fedhttp.Config{Base: base, Peers: []fedhttp.Peer{testPeer("b", s.URL)}})
			var wg sync.WaitGroup
			over := make(chan struct{})
			if keep {
				wg.Go(func() {
					for {
						select {
						case <-over:
							return
						default:
							tr.CloseIdleConnections()
						}
					}
				})
			}
			for range 10 {
				together(t, 20, tr, s.URL)
			}
			close(over)
			wg.Wait()
		})
	}
}

// A request whose connection has no stream for it any more waits for one. That is no idle
// connection, and yet no reason to wait for ever: who comes next has it closed, and the
// request, which is unsent, goes out on another.
func TestHTTP2WaitingForAStream(t *testing.T) {
	for _, name := range []string{"more streams", "another request"} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			t.Parallel()
			peer, tr, first, _ := onOneConn(t)
			settle := func(streams uint32) {
				first.streams(streams)
				first.write(frameWindow, 0, 0, []byte{0, 0, 0, 1}) // which wakes what waits
				first.write(framePing, 0, 0, make([]byte, 8))
				select {
				case <-peer.pongs:
				case <-time.After(20 * time.Second):
					t.Error("the connection is closed")
				}
			}
			waits := make(chan struct{})
			none := sync.OnceFunc(func() { settle(0); close(waits) })
			req := requestOf(http.MethodPost, peer.url)
			req = req.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { none() }}))
			attempts := make(chan int, 1)
			go func() {
				defer close(attempts)
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				d, _ := fedhttp.DecisionFromResponse(resp)
				attempts <- d.Attempts
			}()
			<-waits
			want := 1
			if name == "more streams" {
				for range 20 { // whenever it begins to wait, of which nothing is seen
					tr.CloseIdleConnections()
					time.Sleep(time.Millisecond)
				}
				settle(1)
			} else {
				want = 2
				if err := rawSend(tr, requestOf(http.MethodPost, peer.url)); err != nil {
					t.Error(err)
				}
			}
			if n := <-attempts; n != want {
				t.Errorf("%d attempts, want %d", n, want)
			}
			peer.drain(tr)
		})
	}
}

// A GOAWAY for an error says no less than others that the streams above were not
// processed.
func TestHTTP2GoAwayForAnError(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := failingPeer(t, true, 1, func(c *frameConn, _ uint32) { c.goAway(0, codeInternal) })
	cfg := testPeer("b", peer.url)
	cfg.Retry.TrustHTTP2Refusal = true
	tr := newTestTransport(t, fedhttp.Config{
		Base: frameBase(true), Anchors: fenceEager(), Escalator: fenceQuiet, Peers: []fedhttp.Peer{cfg},
	})
	if err := rawSend(tr, requestOf(http.MethodPost, peer.url)); err != nil {
		t.Fatal(err)
	}
	peer.drain(tr)
	if n := peer.whole.Load(); n != 2 {
		t.Errorf("%d requests, want 2", n)
	}
}

// A body can fail with whatever text, as one that comes from another connection does.
// That says nothing of the request, whose header has been sent.
func TestHTTP2BodyFailsLikeAConnection(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for _, text := range []string{
		"http2: client conn not usable", "http2: client conn could not be established",
		"http2: Transport received Server's graceful shutdown GOAWAY",
	} {
		peer := failingPeer(t, true, 0, nil)
		tr := fenced(t, frameBase(true), peer.url)
		req, err := http.NewRequest(http.MethodPost, peer.url, io.MultiReader(strings.NewReader("begun"), errReader{errors.New(text)}))
		if err != nil {
			t.Fatal(err)
		}
		if d := fenceDecision(t, rawSend(tr, req)); d.Delivery != fedhttp.DeliveryPossible || len(d.Evidence) != 0 {
			t.Errorf("%s: %+v, want it possibly delivered and no evidence", text, d)
		}
		peer.drain(tr)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// What goes to no peer is net/http's affair, with what that sends again by itself.
func TestHTTP2UnlistedAsBefore(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for name, fail := range http2Failures {
		peer := failingPeer(t, true, 1, fail)
		tr := newTestTransport(t, fedhttp.Config{Base: frameBase(true), Unlisted: fedhttp.PassUnlisted})
		if err := rawSend(tr, requestOf(http.MethodGet, peer.url)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		peer.drain(tr)
	}
}

// Of connections that have ended nothing is kept, although their hosts are not asked for
// again.
func TestHTTP2HostsOnce(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	s, _, _ := server(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close") // a GOAWAY
	})
	base := &http.Transport{ForceAttemptHTTP2: true}
	base.TLSClientConfig = &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { return nil }}
	const hosts = 20
	var made, freed atomic.Int64
	base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
		if err != nil {
			return nil, err
		}
		held := &struct{ net.Conn }{conn}
		if made.Add(1) <= hosts {
			runtime.AddCleanup(held, func(int) { freed.Add(1) }, 0)
		}
		return held, nil
	}
	var peers []fedhttp.Peer
	for i := range hosts + 1 {
		peers = append(peers, testPeer(strconv.Itoa(i), "https://h"+strconv.Itoa(i)+".example"))
	}
	peers[hosts].Breaker.Failures = -1
	tr := newTestTransport(t, fedhttp.Config{Base: base, Peers: peers})
	for i := range hosts {
		if err := rawSend(tr, requestOf(http.MethodGet, peers[i].Origins[0])); err != nil {
			t.Fatal(err)
		}
	}
	// Only the last is asked again, each time over a new connection, which has the pool look.
	// net/http lets go of them after 5 s.
	for begin := time.Now(); freed.Load() < hosts && time.Since(begin) < time.Minute; {
		_ = rawSend(tr, requestOf(http.MethodGet, peers[hosts].Origins[0])) // may meet one that is about to end
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if n := freed.Load(); n < hosts {
		t.Errorf("%d of %d connections are kept", hosts-n, hosts)
	}
}
