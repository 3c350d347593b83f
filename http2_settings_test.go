package fedhttp_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// lateSettings starts a peer that lets a client have one stream, says so late or never,
// and counts the requests that come before the client has heard of it.
func lateSettings(t *testing.T, never bool) (peer *rawServer, early, requests *atomic.Int64) {
	early, requests = new(atomic.Int64), new(atomic.Int64)
	return listenRaw(t, serverTLS(true, "h2"), func(conn net.Conn) {
		if _, err := io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
			return
		}
		c := &frameConn{conn: conn}
		if !never {
			// Late, so that what does not wait is ahead of it. What waits has its time.
			late := time.AfterFunc(20*time.Millisecond, func() { c.streams(1) })
			defer late.Stop()
		}
		heard := false
		for {
			switch f, err := readFrame(conn); {
			case err != nil:
				return
			case f.kind == frameSettings && f.flags&flagAck != 0:
				heard = true
			case f.kind == frameSettings:
				c.write(frameSettings, flagAck, 0, nil)
			case f.kind == frameHeaders:
				requests.Add(1)
				if !heard {
					early.Add(1)
				}
				c.ok(f.stream)
			}
		}
	}), early, requests
}

// A connection takes no request before its peer's settings have come: what a peer refuses
// since it allows fewer streams may have been seen by its policy engine.
func TestHTTP2SettingsFirst(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	const callers = 20
	peer, early, requests := lateSettings(t, false)
	tr := fenced(t, frameBase(true), peer.url)
	together(t, callers, tr, peer.url)
	if n := early.Load(); n != 0 {
		t.Errorf("%d requests came before the settings", n)
	}
	if n := requests.Load(); n != callers {
		t.Errorf("%d requests of %d calls", n, callers)
	}
	peer.drain(tr)
}

// A peer that sends no settings has had as long as for its handshake. Nothing was sent,
// and whoever waited for the same connection does not begin anew.
func TestHTTP2SettingsNever(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer, _, requests := lateSettings(t, true)
	base := frameBase(true)
	base.TLSHandshakeTimeout = 500 * time.Millisecond
	tr := newTestTransport(t, fedhttp.Config{Base: base, Peers: []fedhttp.Peer{testPeer("b", peer.url)}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			err := rawSend(tr, requestOf(http.MethodGet, peer.url).WithContext(ctx))
			if d := fenceDecision(t, err); d.Delivery != fedhttp.DeliveryNotDelivered || d.Reason == fedhttp.ReasonDeadline {
				t.Errorf("%v, %v (%v)", d.Delivery, d.Reason, err)
			}
		})
	}
	wg.Wait()
	if n := requests.Load(); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	peer.drain(tr)
}
