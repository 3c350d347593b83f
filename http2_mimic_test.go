package fedhttp_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"reflect"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// mimicConn fails, when it is told to, with an error that reads like one of net/http's.
type mimicConn struct {
	net.Conn
	fail <-chan struct{}
	err  error
}

func (c mimicConn) Read(p []byte) (int, error) {
	type read struct {
		n   int
		err error
	}
	done, room := make(chan read, 1), make([]byte, len(p))
	go func() {
		n, err := c.Conn.Read(room)
		done <- read{n, err}
	}()
	select {
	case r := <-done:
		return copy(p, room[:r.n]), r.err
	case <-c.fail:
		return 0, c.err
	}
}

// A connection that the program has made, such as a tunnel over HTTP/2, may fail in the
// words in which net/http says that nothing was sent. They are no proof.
func TestHTTP2MimicConnection(t *testing.T) {
	for _, err := range []error{
		errors.New("http2: client conn not usable"),
		errors.New("http2: client conn could not be established"),
		errors.New("http2: Transport received Server's graceful shutdown GOAWAY"),
		errors.New("http2: Transport received GOAWAY from server ErrCode:2"),
		mimicStreamError{StreamID: 1, Code: codeRefused},
	} {
		t.Run(err.Error(), func(t *testing.T) {
			checkLeaks(t)
			t.Parallel()
			fail := make(chan struct{})
			peer := newFramePeer(t, true, func(c *frameConn, stream uint32, n int64) {
				if n == 1 {
					close(fail)
					return
				}
				c.ok(stream)
			})
			base := frameBase(true)
			base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, dialErr := new(net.Dialer).DialContext(ctx, network, address)
				return mimicConn{conn, fail, err}, dialErr
			}
			p := testPeer("b", peer.url)
			p.Retry.TrustHTTP2Refusal = true
			tr := newTestTransport(t, fedhttp.Config{Base: base, Anchors: fenceEager(), Escalator: fenceQuiet, Peers: []fedhttp.Peer{p}})
			got := rawSend(tr, requestOf(http.MethodPost, peer.url))
			if d := fenceDecision(t, got); d.Outcome != fedhttp.OutcomeAmbiguous || d.Attempts != 1 {
				t.Errorf("%v after %d attempts", got, d.Attempts)
			}
			if n := peer.whole.Load(); n != 1 {
				t.Errorf("the request came %d times", n)
			}
			peer.drain(tr)
		})
	}
}

// mimicStreamError looks like net/http's own.
type mimicStreamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (mimicStreamError) Error() string { return "stream error" }

// As becomes any type that looks like it, as net/http's does.
func (e mimicStreamError) As(target any) bool { return becomes(e, target) }

func becomes(from, target any) bool {
	to := reflect.ValueOf(target).Elem()
	if to.Kind() != reflect.Struct || !reflect.TypeOf(from).ConvertibleTo(to.Type()) {
		return false
	}
	to.Set(reflect.ValueOf(from).Convert(to.Type()))
	return true
}
