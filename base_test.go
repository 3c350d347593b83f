package fedhttp_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// TestBaseIsHonoured: what the owner of an http.Transport has configured holds
// for the clone that is used.
func TestBaseIsHonoured(t *testing.T) {
	dialTLS := func(calls *atomic.Int64) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, addr string) (net.Conn, error) {
			calls.Add(1)
			return (&tls.Dialer{Config: trusting()}).DialContext(ctx, network, addr)
		}
	}
	for _, row := range []struct {
		name   string
		secure bool
		base   func(used *atomic.Int64) *http.Transport
	}{
		{"DialContext", false, func(used *atomic.Int64) *http.Transport {
			return &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				used.Add(1)
				return new(net.Dialer).DialContext(ctx, network, addr)
			}}
		}},
		{"Dial", false, func(used *atomic.Int64) *http.Transport {
			return &http.Transport{Dial: func(network, addr string) (net.Conn, error) { //nolint:staticcheck // it is still honoured
				used.Add(1)
				return net.Dial(network, addr)
			}}
		}},
		{"DialContext before Dial", true, func(used *atomic.Int64) *http.Transport {
			return &http.Transport{
				TLSClientConfig: trusting(),
				DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
					used.Add(1)
					return new(net.Dialer).DialContext(ctx, network, addr)
				},
				Dial: func(string, string) (net.Conn, error) { return nil, errors.New("Dial was called") }, //nolint:staticcheck // it is still there
			}
		}},
		{"DialTLSContext", true, func(used *atomic.Int64) *http.Transport {
			return &http.Transport{DialTLSContext: dialTLS(used)}
		}},
		{"DialTLS", true, func(used *atomic.Int64) *http.Transport {
			return &http.Transport{DialTLS: func(network, addr string) (net.Conn, error) { //nolint:staticcheck // it is still honoured
				return dialTLS(used)(context.Background(), network, addr)
			}}
		}},
		{"TLSClientConfig", true, func(used *atomic.Int64) *http.Transport {
			config := trusting()
			config.VerifyConnection = func(tls.ConnectionState) error { used.Add(1); return nil }
			return &http.Transport{TLSClientConfig: config}
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			checkLeaks(t)
			t.Parallel()
			peer := listenRaw(t, serverTLS(row.secure), answerWhole)
			var used atomic.Int64
			tr := fenced(t, row.base(&used), peer.url)
			for range 2 {
				if err := rawGet(tr, peer.url); err != nil {
					t.Fatal(err)
				}
			}
			peer.drain(tr)
			if used.Load() != 1 || peer.accepted.Load() != 1 {
				t.Errorf("called %d times, %d connections; want once, one", used.Load(), peer.accepted.Load())
			}
		})
	}
}

// TestBaseTLSDialer: the connections of an owner's TLS dialer are not counted, so
// nothing but a connection that never came is proven; sent again is nothing.
func TestBaseTLSDialer(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := newDoomedPeer(t, true, endGoodbye)
	tr := fenced(t, &http.Transport{
		MaxIdleConnsPerHost: 5,
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&tls.Dialer{Config: trusting()}).DialContext(ctx, network, addr)
		},
	}, peer.url)
	peer.warm(t, tr, 5)
	checkAmbiguous(t, rawGet(tr, peer.url+"/doomed"))
	peer.drain(tr)
	if n := peer.whole.Load(); n != 1 {
		t.Errorf("delivered %d times, want once", n)
	}
	d := fenceDecision(t, rawGet(tr, peer.url+"/doomed")) // nobody listens any more
	if d.Delivery != fedhttp.DeliveryNotDelivered || d.Attempts != 3 {
		t.Errorf("got %+v, want three attempts that are proven undelivered", d)
	}
}

func TestBaseLimits(t *testing.T) {
	t.Run("MaxConnsPerHost", func(t *testing.T) {
		checkLeaks(t)
		t.Parallel()
		peer := listenRaw(t, nil, answerWhole)
		tr := fenced(t, &http.Transport{MaxConnsPerHost: 1}, peer.url)
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				if err := rawGet(tr, peer.url); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if n := peer.accepted.Load(); n != 1 {
			t.Errorf("%d connections, want one", n)
		}
	})
	t.Run("MaxConnsPerHost after a fenced call", func(t *testing.T) {
		checkLeaks(t)
		t.Parallel()
		peer := newDoomedPeer(t, false, endGoodbye)
		tr := fenced(t, &http.Transport{MaxConnsPerHost: 2, MaxIdleConnsPerHost: 2}, peer.url)
		for range 5 { // each takes both slots, and has to give them back
			peer.warm(t, tr, 2)
			checkAmbiguous(t, rawGet(tr, peer.url+"/doomed"))
		}
	})
	t.Run("ResponseHeaderTimeout", func(t *testing.T) {
		checkLeaks(t)
		t.Parallel()
		peer := listenRaw(t, nil, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		tr := fenced(t, &http.Transport{ResponseHeaderTimeout: time.Millisecond}, peer.url)
		err := rawGet(tr, peer.url)
		checkAmbiguous(t, err)
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || !strings.Contains(err.Error(), "awaiting response headers") {
			t.Errorf("got %v, want net/http's timeout", err)
		}
	})
	t.Run("TLSHandshakeTimeout", func(t *testing.T) {
		checkLeaks(t)
		t.Parallel()
		peer := listenRaw(t, nil, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		url := strings.Replace(peer.url, "http:", "https:", 1)
		tr := fenced(t, &http.Transport{TLSHandshakeTimeout: time.Millisecond}, url)
		if d := fenceDecision(t, rawGet(tr, url)); d.Delivery != fedhttp.DeliveryNotDelivered || d.Attempts != 3 {
			t.Errorf("got %+v, want three attempts that are proven undelivered", d)
		}
	})
}

// proxyPeer is an HTTP proxy that tunnels, and answers what is not a tunnel.
func proxyPeer(t *testing.T, tunnel func(conn net.Conn, target string)) (*rawServer, *recorder[string]) {
	asked := &recorder[string]{}
	return listenRaw(t, nil, func(conn net.Conn) {
		br := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			asked.add(req.Method + " " + req.RequestURI)
			if req.Method == http.MethodConnect {
				tunnel(conn, req.RequestURI)
				return
			}
			if _, err := io.WriteString(conn, rawNoContent); err != nil {
				return
			}
		}
	}), asked
}

func TestBaseProxy(t *testing.T) {
	via := func(t *testing.T, proxy *rawServer) *http.Transport {
		u, err := url.Parse(proxy.url)
		if err != nil {
			t.Fatal(err)
		}
		return &http.Transport{Proxy: http.ProxyURL(u), TLSClientConfig: trusting()}
	}
	t.Run("plain", func(t *testing.T) {
		checkLeaks(t)
		t.Parallel()
		proxy, asked := proxyPeer(t, nil)
		tr := fenced(t, via(t, proxy), "http://localhost:1")
		for range 2 {
			if err := rawGet(tr, "http://localhost:1/task"); err != nil {
				t.Fatal(err)
			}
		}
		if got := asked.snapshot(); len(got) != 2 || got[0] != "GET http://localhost:1/task" || proxy.accepted.Load() != 1 {
			t.Errorf("the proxy was asked %q over %d connections", got, proxy.accepted.Load())
		}
	})
	t.Run("plain, the proxy is gone", func(t *testing.T) {
		checkLeaks(t)
		t.Parallel()
		proxy, _ := proxyPeer(t, nil)
		proxy.close()
		d := fenceDecision(t, rawGet(fenced(t, via(t, proxy), "http://localhost:1"), "http://localhost:1/task"))
		if d.Delivery != fedhttp.DeliveryNotDelivered || d.Attempts != 3 {
			t.Errorf("got %+v, want three attempts that are proven undelivered", d)
		}
	})
	for _, pooled := range []int{1, 5} {
		t.Run(fmt.Sprintf("CONNECT, %d tunnels", pooled), func(t *testing.T) {
			checkLeaks(t)
			t.Parallel()
			peer := newDoomedPeer(t, true, endGoodbye)
			proxy, asked := proxyPeer(t, func(conn net.Conn, target string) {
				there, err := net.Dial("tcp", target)
				if err != nil {
					return
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
				go func() {
					_, _ = io.Copy(there, conn)
					there.Close()
				}()
				_, _ = io.Copy(conn, there)
			})
			base := via(t, proxy)
			base.MaxIdleConnsPerHost = pooled
			tr := fenced(t, base, peer.url)
			peer.warm(t, tr, pooled)
			err := rawGet(tr, peer.url+"/doomed")
			checkAmbiguous(t, err)
			if !errors.Is(err, io.EOF) {
				t.Errorf("got %v, want io.EOF", err)
			}
			peer.drain(tr)
			if n := peer.whole.Load(); n != 1 {
				t.Errorf("delivered %d times, want once", n)
			}
			if got := asked.snapshot(); len(got) != pooled || got[0] != "CONNECT "+peer.addr {
				t.Errorf("the proxy was asked %q", got)
			}
		})
	}
	t.Run("CONNECT is refused", func(t *testing.T) {
		checkLeaks(t)
		t.Parallel()
		proxy, asked := proxyPeer(t, func(conn net.Conn, _ string) {
			_, _ = io.WriteString(conn, "HTTP/1.1 502 Bad Gateway\r\n\r\n")
		})
		d := fenceDecision(t, rawGet(fenced(t, via(t, proxy), "https://localhost:1"), "https://localhost:1/task"))
		if d.Delivery != fedhttp.DeliveryNotDelivered || d.Attempts != 3 || len(asked.snapshot()) != 3 {
			t.Errorf("got %+v, want three attempts that are proven undelivered", d)
		}
	})
}

// TestBaseOpaque: of a base that hides the request's context nothing is known,
// so after an error nothing is sent again, whatever the error says.
func TestBaseOpaque(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	own := &http.Transport{}
	t.Cleanup(own.CloseIdleConnections)
	var sends atomic.Int64
	hiding := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		sends.Add(1)
		return own.RoundTrip(req.WithContext(context.Background()))
	})
	gone := listenRaw(t, nil, answerWhole)
	gone.close()
	err := rawGet(fenced(t, hiding, gone.url), gone.url)
	checkAmbiguous(t, err)
	if !errors.Is(err, syscall.ECONNREFUSED) || sends.Load() != 1 {
		t.Errorf("got %v after %d sends", err, sends.Load())
	}
}

// TestBaseWrapped: a base that passes the context on is as safe as what it
// wraps: its hidden resends are stopped, and a connection that never came is
// proof. It counts no bytes.
func TestBaseWrapped(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, pooled := range []int{1, 5} {
			t.Run(fmt.Sprintf("%s/%d pooled", schemeName(secure), pooled), func(t *testing.T) {
				checkLeaks(t)
				t.Parallel()
				own := &http.Transport{MaxIdleConnsPerHost: pooled, TLSClientConfig: trusting()}
				peer := newDoomedPeer(t, secure, endGoodbye)
				tr := fenced(t, roundTripFunc(own.RoundTrip), peer.url)
				peer.warm(t, tr, pooled)
				checkAmbiguous(t, rawGet(tr, peer.url+"/doomed"))
				peer.drain(own)
				if n := peer.whole.Load(); n != 1 {
					t.Errorf("delivered %d times, want once", n)
				}
				d := fenceDecision(t, rawGet(tr, peer.url+"/doomed"))
				if d.Delivery != fedhttp.DeliveryNotDelivered || d.Attempts != 3 {
					t.Errorf("got %+v, want three attempts that are proven undelivered", d)
				}
			})
		}
	}
	t.Run("a connection that takes nothing", func(t *testing.T) {
		checkLeaks(t)
		t.Parallel()
		peer, _ := countingPeer(t)
		tap := &wireTap{}
		own := &http.Transport{DialContext: tap.dial}
		tr := fenced(t, roundTripFunc(own.RoundTrip), peer.url)
		pool(t, tr, peer.url)
		tap.last().intercept(func([]byte) (int, error) { return 0, syscall.EPIPE })
		checkAmbiguous(t, rawGet(tr, peer.url))
		peer.drain(own)
	})
}

// TestBaseOfPeers: a peer's own base sends its requests and no others; peers that
// name the same share one clone, which lives as long as one of them is there.
func TestBaseOfPeers(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	a, b, c := listenRaw(t, nil, answerWhole), listenRaw(t, nil, answerWhole), listenRaw(t, nil, answerWhole)
	common, own := &wireTap{}, &wireTap{}
	// With room for one idle connection in all, two peers that share a clone take
	// it from each other.
	shared := &http.Transport{DialContext: own.dial, MaxIdleConns: 1}
	peerAt := func(id string, at *rawServer, base http.RoundTripper) fedhttp.Peer {
		p := testPeer(id, at.url)
		p.Base = base
		return p
	}
	tr := newTestTransport(t, fedhttp.Config{
		Base:  &http.Transport{DialContext: common.dial},
		Peers: []fedhttp.Peer{peerAt("a", a, shared), peerAt("b", b, shared), peerAt("c", c, nil)},
	})
	call := func(at *rawServer, wantOwn, wantCommon int) {
		t.Helper()
		if err := rawGet(tr, at.url); err != nil {
			t.Fatal(err)
		}
		if own.dialed() != wantOwn || common.dialed() != wantCommon {
			t.Errorf("%d and %d dials, want %d and %d", own.dialed(), common.dialed(), wantOwn, wantCommon)
		}
	}
	call(c, 0, 1)
	call(a, 1, 1)
	call(a, 1, 1)
	call(b, 2, 1)
	call(a, 3, 1) // b took its place
	set := func(peers ...fedhttp.Peer) {
		t.Helper()
		if err := tr.SetPeers(peers); err != nil {
			t.Fatal(err)
		}
	}
	set(peerAt("a2", a, shared), peerAt("c", c, nil))
	call(a, 3, 1) // over the connection of before
	if err := tr.SetPeers([]fedhttp.Peer{{ID: "a2"}}); err == nil {
		t.Fatal("a peer without origins was taken")
	}
	call(a, 3, 1) // a change that failed changes nothing
	set(peerAt("a2", a, nil), peerAt("c", c, nil))
	call(c, 3, 1)
	call(a, 3, 2)
	set(peerAt("a2", a, shared), peerAt("b", b, shared))
	call(a, 4, 2) // the connections of a base that was dropped are closed
	call(b, 5, 2)
	set(peerAt("c", c, nil))
	b.drain() // by SetPeers: nobody else closes them
}

// TestHTTP1ForOnePeer is what the README recommends for a peer that ends HTTP/2
// connections under calls: a base of its own that speaks HTTP/1 only.
func TestHTTP1ForOnePeer(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	shared := server.Client().Transport.(*http.Transport).Clone()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	own := &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{RootCAs: shared.TLSClientConfig.RootCAs, ServerName: "example.com"}}
	peers := []fedhttp.Peer{testPeer("b", server.URL), testPeer("c", strings.Replace(server.URL, "127.0.0.1", "localhost", 1))}
	peers[1].Base = own
	tr := newTestTransport(t, fedhttp.Config{Base: shared, Peers: peers})
	for i, want := range []int{2, 1} {
		resp, err := (&http.Client{Transport: tr}).Get(peers[i].Origins[0])
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.ProtoMajor != want {
			t.Errorf("peer %s is spoken to in %s", peers[i].ID, resp.Proto)
		}
	}
}
