package fedhttp

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptrace"
	"sync"
)

// The fence. net/http sends by itself again: on HTTP/1 a request that it takes for
// replayable, whose reused connection ends before the first byte of an answer, on
// every pooled connection in turn; on HTTP/2 whatever a peer resets with
// PROTOCOL_ERROR or REFUSED_STREAM or disowns with GOAWAY, POST included. No
// policy decided those.
//
// GetConn and GotConn are called for each of these internal attempts, before a
// byte of it is written. On the second one the connection before is sealed: if
// nothing of the request has left on it, nothing ever will, and net/http may go
// on. If something may have left, the call ends here: its context is canceled,
// and an HTTP/1 connection that came all the same is closed as well, because a
// canceled request can still escape. An HTTP/2 connection belongs to others too;
// there the canceled context is enough, since it is looked at right before the
// header is written.

// fence watches the connections of one attempt.
type fence struct {
	mu      sync.Mutex
	last    net.Conn     // the last one
	conn    *countedConn // the same, as it counts; nil: it does not
	mark    uint64       // what had been written to it before this request
	cause   error        // why the last connection was given up, where it is known
	conns   uint8        // connections had; 2: or more
	asked   bool         // a connection was asked for
	http2   bool
	reused  bool
	left    bool // bytes of the request may have left
	judged  bool // the attempt is over; whatever the base still does is too late
	stopped bool // a second send was stopped
	refused bool // the peer refused the HTTP/2 stream
}

// fresh reports whether the one connection that the attempt had was made for it.
func (f *fence) fresh() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conns == 1 && !f.reused
}

var errResendStopped = errors.New("the connection ended and the request may have left; another send of it by net/http was stopped")

var errEarlyAnswer = errors.New("an answer came before anything of the request was sent: it answers another one")

var errRefused = errors.New("the peer refused the HTTP/2 stream")

// getConn and gotConn are the hooks of the attempt that is ended by cancel.
func (f *fence) getConn(cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = true
	f.stop(cancel)
}

func (f *fence) gotConn(info httptrace.GotConnInfo, cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop(cancel) {
		// Why net/http sends again it does not show. After PROTOCOL_ERROR and GOAWAY
		// it takes another connection, so on the same one only REFUSED_STREAM is left.
		f.refused = f.http2 && info.Conn == f.last
		if conn, http2 := countedConnOf(info.Conn); !http2 {
			shut(conn, info.Conn)
		}
		return
	}
	f.letGo()
	f.conns, f.cause = min(f.conns+1, 2), nil
	f.last, f.reused = info.Conn, info.Reused
	f.conn, f.http2 = countedConnOf(info.Conn)
	if f.conn == nil {
		return
	}
	f.mark = f.conn.bytesWritten()
	if f.http2 {
		f.conn.attempts.Add(1)
	}
}

// refuse ends the attempt that is ended by cancel before a byte of it leaves on the
// connection that has come. Nothing has left on those before.
func (f *fence) refuse(conn net.Conn, why error, cancel func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.stop(cancel) {
		f.letGo()
		f.conns, f.cause = 0, why
		cancel()
	}
	if counted, http2 := countedConnOf(conn); !http2 { // see above
		shut(counted, conn)
	}
}

// refusal is why the attempt was refused a connection, nil where it was not. A base that
// asks for another one all the same is refused that as well.
func (f *fence) refusal() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conns > 0 || f.stopped {
		return nil
	}
	return f.cause
}

// letGo forgets the last connection, which others may want to end. f.mu is held.
func (f *fence) letGo() {
	if f.conn != nil && f.http2 {
		f.conn.attempts.Add(-1)
	}
	f.conn, f.last = nil, nil
}

// end is called when the attempt has ended, and with it the reading of its answer.
func (f *fence) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judged = true
	f.letGo()
}

// stop ends the call where another send of it may have left, and reports whether
// it is ended. f.mu is held.
func (f *fence) stop(cancel func()) bool {
	if !f.stopped && (f.judged || f.conns > 0 && !f.unsent()) {
		f.stopped = true
		if f.conn != nil && !f.http2 {
			f.cause = f.conn.ending(f.last)
		}
		cancel()
	}
	return f.stopped
}

// isStopped reports whether a second send was stopped. A response that comes
// all the same answers nothing that was sent.
func (f *fence) isStopped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stopped
}

// isHTTP2 reports whether the last connection speaks HTTP/2.
func (f *fence) isHTTP2() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.http2
}

// early reports whether the answer that begins, on HTTP/1, was read before anything of
// the request was written: then it answers another one. A peer, or what is in front of
// it, that answers once too often makes net/http take that for the answer to whatever
// is sent next. The connection is shut before more of the request leaves on it, and
// before net/http pools it: the answer that is due would be taken for that of yet
// another request. f.mu is held.
func (f *fence) early() bool {
	if f.conn == nil || f.http2 || !f.conn.silent(f.mark) {
		return false
	}
	// Else it may be another one's, which was given up, and why is known.
	if f.conns == 1 && !f.stopped && f.cause == nil {
		f.cause = errEarlyAnswer
		shut(f.conn, f.last)
	}
	return true
}

// shut ends the connection.
func (f *fence) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	shut(f.conn, f.last)
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

// judge returns what is known of an attempt that ended with err, as its request's body
// failed where that is so, the evidence that this is, and the error to report.
func (f *fence) judge(err error, bodyFailed, trustRefusal bool) (Delivery, []Evidence, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judged = true
	if f.stopped {
		switch {
		case f.cause != nil:
			return DeliveryPossible, nil, &joined{f.cause, errResendStopped}
		case f.refused && trustRefusal:
			return DeliveryPossible, []Evidence{{Source: SourceHTTP2Refusal, Layer: LayerRouting}}, errRefused
		}
		return DeliveryPossible, nil, errResendStopped
	}
	code, alerted := tlsAlert(err)
	if !alerted && f.conn != nil && !f.reused {
		// What net/http met first may be the end of the connection, and not the
		// alert that ended it.
		end := f.conn.ending(f.last)
		if code, alerted = tlsAlert(end); alerted {
			err = &joined{end, err}
		}
	}
	if alerted && !f.reused {
		switch {
		case code == alertAccessDenied:
			return DeliveryPossible, []Evidence{{Source: SourceTLSAlert, Layer: LayerPolicy}}, err
		case refusesCertificate(code) && f.handshaking():
			return DeliveryNotDelivered, []Evidence{{Source: SourceTLSAlert, Layer: LayerRouting}}, err
		}
	}
	if f.cause != nil {
		err = f.cause // what the base says is what we did then
	}
	// A body or a connection that fails has any text, and may do so after the header was sent.
	if f.http2 && !bodyFailed && f.conn != nil && !f.conn.mimicsHTTP2() {
		switch end := http2EndOf(err); {
		case end == http2Unsent:
			return DeliveryNotDelivered, []Evidence{{Source: SourceDelivery, Layer: LayerRouting}}, err
		case end == http2Refused && trustRefusal:
			return DeliveryPossible, []Evidence{{Source: SourceHTTP2Refusal, Layer: LayerRouting}}, err
		}
	}
	if f.asked && (f.conns == 0 || f.unsent()) {
		return DeliveryNotDelivered, []Evidence{{Source: SourceDelivery, Layer: LayerRouting}}, err
	}
	return DeliveryPossible, nil, err
}

// handshaking reports whether an alert about our certificate says that the peer
// has read nothing. No connection had come, or a fresh one of TLS 1.3: there the
// alert arrives after our side of the handshake has ended, so the header may
// have been written, but the peer reads our certificate first. f.mu is held.
func (f *fence) handshaking() bool {
	if f.conns == 0 {
		return f.asked
	}
	secure, ok := f.last.(*tls.Conn)
	return ok && secure.ConnectionState().Version >= tls.VersionTLS13
}

// shut ends a connection at once: TLS would say goodbye first, and wait for it.
func shut(counted *countedConn, conn net.Conn) {
	if counted != nil {
		counted.poison()
		conn = counted
	}
	defer func() { _ = recover() }() // a base of another kind may report none, or one that is not to be closed
	conn.Close()                     // it is being given up
}
