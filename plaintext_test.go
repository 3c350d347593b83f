package fedhttp_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// elsewhereConn says that it leads to another machine.
type elsewhereConn struct {
	net.Conn
	to net.Addr
}

func (c elsewhereConn) RemoteAddr() net.Addr {
	if c.to == nil {
		panic("net/http asks for no address")
	}
	return c.to
}

// TestPlainHTTPStaysHere: a name of this machine that the resolver takes elsewhere, or
// that a proxy is asked for, gets no byte of a task in clear text.
func TestPlainHTTPStaysHere(t *testing.T) {
	t.Parallel()
	var got atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
	t.Cleanup(server.Close)
	const named = "http://registry.localhost:8080"
	proxy := http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example:3128"})
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 80} }
	for name, tt := range map[string]struct {
		origin string
		to     net.Addr
		change func(*http.Transport, *fedhttp.Peer)
		want   bool // it is sent
	}{
		"a name that leads here":      {origin: named, to: tcp("127.0.0.1"), want: true},
		"the same, IPv6":              {origin: named, to: tcp("::1"), want: true},
		"a socket of this machine":    {origin: named, to: &net.UnixAddr{Name: "/run/x", Net: "unix"}, want: true},
		"a connection without any":    {origin: named, want: true},
		"a tunnel":                    {origin: named, to: tcp("0.0.0.0"), want: true},
		"a name that leads elsewhere": {origin: named, to: tcp("203.0.113.7")},
		"localhost that does":         {origin: "http://localhost:8080", to: tcp("2001:db8::7")},
		"a proxy elsewhere": {origin: named, to: tcp("203.0.113.7"), change: func(t *http.Transport, _ *fedhttp.Peer) {
			t.Proxy = proxy
		}},
		"clear text is allowed": {origin: named, to: tcp("203.0.113.7"), want: true, change: func(_ *http.Transport, p *fedhttp.Peer) {
			p.AllowPlaintext = true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			base := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(server.URL, "http://"))
				return elsewhereConn{conn, tt.to}, err
			}}
			t.Cleanup(base.CloseIdleConnections)
			p := fedhttp.Peer{ID: "b", Origins: []string{tt.origin}}
			if tt.change != nil {
				tt.change(base, &p)
			}
			tr := newTestTransport(t, fedhttp.Config{Base: base, Anchors: fenceEager(), Peers: []fedhttp.Peer{p}, Logger: quietLogger})
			resp, err := tr.RoundTrip(newGet(t, tt.origin))
			if err == nil {
				resp.Body.Close()
			}
			var failed *fedhttp.Error
			switch {
			case tt.want && err != nil:
				t.Error(err)
			case errors.Is(err, context.Canceled):
				t.Errorf("nobody has canceled it: %v", err)
			case !tt.want && err == nil:
				t.Error("it was sent")
			case !tt.want && (!errors.As(err, &failed) || failed.Decision.Reason != fedhttp.ReasonPeerUntrusted || failed.Decision.Attempts != 1 || !strings.Contains(err.Error(), "beyond this machine")):
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		if n := got.Load(); n != 6 {
			t.Errorf("%d requests came", n)
		}
	})
}

// TestPlainHTTPStaysHerePooled: nor does it get one over a connection that is there
// already, because a request to another origin has gone to the same proxy, or to
// the same while that was allowed.
func TestPlainHTTPStaysHerePooled(t *testing.T) {
	t.Parallel()
	const named = "http://registry.localhost:8080"
	for name, tt := range map[string]struct {
		first  string
		before []fedhttp.Peer
	}{
		"another peer": {"http://c.example", []fedhttp.Peer{testPeer("b", named), {ID: "c", Origins: []string{"http://c.example"}, AllowPlaintext: true}}},
		"unlisted":     {"http://c.example", []fedhttp.Peer{testPeer("b", named)}},
		"allowed":      {named, []fedhttp.Peer{{ID: "b", Origins: []string{named}, AllowPlaintext: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got.Add(1) }))
			t.Cleanup(server.Close)
			base := &http.Transport{
				Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example:3128"}),
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(server.URL, "http://"))
					return elsewhereConn{conn, &net.TCPAddr{IP: net.ParseIP("203.0.113.7"), Port: 3128}}, err
				},
			}
			tr := newTestTransport(t, fedhttp.Config{Base: base, Peers: tt.before, Unlisted: fedhttp.PassUnlisted, Logger: quietLogger})
			resp, err := tr.RoundTrip(newGet(t, tt.first))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if err := tr.SetPeers([]fedhttp.Peer{testPeer("b", named)}); err != nil {
				t.Fatal(err)
			}
			resp, err = tr.RoundTrip(newGet(t, named))
			if err == nil {
				resp.Body.Close()
			}
			var failed *fedhttp.Error
			if !errors.As(err, &failed) || failed.Decision.Reason != fedhttp.ReasonPeerUntrusted || failed.Decision.Delivery != fedhttp.DeliveryNotDelivered {
				t.Error(err)
			}
			if n := got.Load(); n != 1 {
				t.Errorf("%d requests came, want the first", n)
			}
		})
	}
}

// TestTLSGoesAnywhere: who answers over TLS is verified, wherever the name leads.
func TestTLSGoesAnywhere(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	base := server.Client().Transport.(*http.Transport).Clone()
	base.TLSClientConfig.ServerName = "example.com" // as its certificate has it
	base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(server.URL, "https://"))
		return elsewhereConn{conn, &net.TCPAddr{IP: net.ParseIP("203.0.113.7"), Port: 443}}, err
	}
	t.Cleanup(base.CloseIdleConnections)
	const origin = "https://registry.localhost"
	tr := newTestTransport(t, fedhttp.Config{Base: base, Peers: []fedhttp.Peer{{ID: "b", Origins: []string{origin}}}, Logger: quietLogger})
	resp, err := tr.RoundTrip(newGet(t, origin))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}
