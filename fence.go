package fedhttp

import (
	"context"
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
)

// The fence. net/http sends by itself again: on HTTP/1 a request without a body
// whose reused connection ends before the first byte of an answer, on every
// pooled connection in turn; on HTTP/2 whatever a peer resets with
// PROTOCOL_ERROR or REFUSED_STREAM or disowns with GOAWAY, POST included. No
// policy decided those.
//
// GotConn is called once for each of these internal attempts, before a byte of
// it is written. On the second one the connection before is sealed: if nothing
// of the request has left on it, nothing ever will, and net/http may go on. If
// something may have left, the call ends here: its context is canceled, and an
// HTTP/1 connection is closed as well, because a canceled request can still
// escape. An HTTP/2 connection belongs to others too; there the canceled context
// is enough, since it is looked at right before the header is written.

// fence watches the connections of one attempt.
type fence struct {
	cancel context.CancelFunc // the attempt's
	asked  atomic.Bool

	mu      sync.Mutex
	conns   int          // connections had
	last    net.Conn     // the last one
	conn    *countedConn // the same, as it counts; nil: it does not
	mark    uint64       // what had been written to it before this request
	http2   bool
	reused  bool
	left    bool  // bytes of the request may have left
	stopped bool  // a second send was stopped
	cause   error // what ended the connection of the first, where it is known
	refused bool  // the peer refused the HTTP/2 stream
}

var errResendStopped = errors.New("the connection ended and the request may have left; another send of it by net/http was stopped")

var errRefused = errors.New("the peer refused the HTTP/2 stream")

func (f *fence) getConn(string) { f.asked.Store(true) }

func (f *fence) gotConn(info httptrace.GotConnInfo) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns > 0 && !f.unsent() {
		// Why net/http sends again it does not show. After PROTOCOL_ERROR and GOAWAY
		// it takes another connection, so on the same one only REFUSED_STREAM is left.
		f.stopped, f.refused = true, f.http2 && info.Conn == f.last
		if f.conn != nil && !f.http2 {
			f.cause = f.conn.firstError()
		}
		f.cancel()
		if conn, http2 := countedConnOf(info.Conn); !http2 {
			shut(conn, info.Conn)
		}
		return
	}
	f.conns++
	f.last, f.reused = info.Conn, info.Reused
	f.conn, f.http2 = countedConnOf(info.Conn)
	if f.conn != nil {
		f.mark = f.conn.bytesWritten()
	}
}

// unsent seals the last connection, and reports whether nothing of the request
// has left on it. On HTTP/2 other streams write to it as well, so there nothing
// can be told. f.mu is held.
func (f *fence) unsent() bool {
	if f.left || f.conn == nil || f.http2 || !f.conn.seal(f.mark) {
		f.left = true
		return false
	}
	return true
}

// judge returns what is known of an attempt that ended with err, the evidence
// that this is, and the error to report.
//
// A TLS alert is the peer's own word about our certificate, and says more than
// that no connection came. With TLS 1.3 it arrives after our side of the
// handshake has ended, so a connection was had and the header may have been
// written, but on a fresh connection the peer has read nothing of it.
func (f *fence) judge(err error, trustRefusal bool) (Delivery, []Evidence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		switch {
		case f.cause != nil:
			return DeliveryPossible, nil, &joined{f.cause, errResendStopped}
		case f.refused && trustRefusal:
			return DeliveryPossible, []Evidence{{SourceHTTP2Refusal, LayerRouting}}, errRefused
		}
		return DeliveryPossible, nil, errResendStopped
	}
	if code, ok := tlsAlert(err); ok && !f.reused {
		switch {
		case code == alertAccessDenied:
			return DeliveryPossible, []Evidence{{SourceTLSAlert, LayerPolicy}}, err
		case refusesCertificate(code):
			return DeliveryNotDelivered, []Evidence{{SourceTLSAlert, LayerRouting}}, err
		}
	}
	if f.asked.Load() && (f.conns == 0 || f.unsent()) {
		return DeliveryNotDelivered, []Evidence{{SourceDelivery, LayerRouting}}, err
	}
	return DeliveryPossible, nil, err
}

// shut ends a connection at once: TLS would say goodbye first, and wait for it.
func shut(counted *countedConn, conn net.Conn) {
	if counted != nil {
		counted.Close() // it is being given up
		return
	}
	conn.Close() // given up too
}
