package fedhttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptrace"
	"testing"
)

// hearing is an attempt on a connection of HTTP/1 on which a request was answered
// before, and the peer's side of that.
func hearing(t *testing.T) (*attempt, *countedConn, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	conn := &countedConn{Conn: ours}
	t.Cleanup(func() { conn.Close(); theirs.Close() })
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	say(t, conn, "GET / HTTP/1.1\r\n\r\n")
	hear(t, conn, theirs)
	c := &call{preflight: preflight{Context: context.Background(), place: &place{}, task: &Task{}}}
	a := &attempt{parent: c, warrant: &unsaid[BasisNoObligation]}
	a.getConn("peer.invalid:80")
	a.gotConn(httptrace.GotConnInfo{Conn: conn, Reused: true})
	return a, conn, theirs
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, conn, peer net.Conn) {
	t.Helper()
	go func() { _, _ = io.WriteString(peer, "H") }()
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// TestFenceHearing: an answer is ours where something of the request was written before
// it was read. Else nothing leaves any more; and what had left by then is in doubt.
func TestFenceHearing(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for name, test := range map[string]struct {
		before, after string // what is written before and after the answer is read
		early         bool
		want          Delivery
	}{
		"ours":               {before: "POST", want: DeliveryPossible},
		"ours, goes on":      {before: "POST", after: " /", want: DeliveryPossible},
		"early":              {early: true, want: DeliveryNotDelivered},
		"early, and it left": {after: "POST", early: true, want: DeliveryPossible},
	} {
		t.Run(name, func(t *testing.T) {
			a, conn, theirs := hearing(t)
			if test.before != "" {
				say(t, conn, test.before)
			}
			hear(t, conn, theirs)
			if test.after != "" {
				say(t, conn, test.after)
			}
			a.gotFirstByte()
			if early := a.isEarly(); early != test.early {
				t.Errorf("early: %v", early)
			}
			if _, err := conn.Write([]byte("x")); errors.Is(err, errSealed) != test.early {
				t.Errorf("what is written after it: %v", err)
			}
			delivery, _, err := a.fence.judge(io.ErrUnexpectedEOF, false, false)
			if delivery != test.want || errors.Is(err, errEarlyAnswer) != test.early {
				t.Errorf("it is %v: %v, want %v", delivery, err, test.want)
			}
		})
	}
}

// TestFenceHearsTheFirst: net/http gives a connection up on which nothing has left, and
// its answer is heard when the request has another one, which is none the worse for it.
func TestFenceHearsTheFirst(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	a, _, _ := hearing(t)
	_, second, theirs := hearing(t)
	a.getConn("peer.invalid:80")
	a.gotConn(httptrace.GotConnInfo{Conn: second, Reused: true})
	a.gotFirstByte() // the first's
	say(t, second, "POST")
	hear(t, second, theirs)
	a.gotFirstByte()
	if a.isEarly() || a.fence.isStopped() {
		t.Error("the answer is withheld")
	}
}

// TestFenceHeardOnTheFirst: what the connection before was given up for is not why the
// one that came then has failed.
func TestFenceHeardOnTheFirst(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	a, first, theirs := hearing(t)
	_, second, _ := hearing(t)
	hear(t, first, theirs)
	a.gotFirstByte()
	a.getConn("peer.invalid:80")
	a.gotConn(httptrace.GotConnInfo{Conn: second, Reused: true})
	say(t, second, "POST")
	if delivery, _, err := a.fence.judge(io.ErrUnexpectedEOF, false, false); delivery != DeliveryPossible || errors.Is(err, errEarlyAnswer) {
		t.Errorf("it is %v: %v", delivery, err)
	}
}

// TestFenceHearsAnother: nor is what ended the attempt forgotten for an answer that is
// heard on a connection which was refused to it.
func TestFenceHearsAnother(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	errElsewhere := errors.New("it leads elsewhere")
	for name, test := range map[string]struct {
		end  func(*attempt, *countedConn)
		want error
	}{
		"stopped": {func(a *attempt, first *countedConn) {
			say(t, first, "POST")
			a.getConn("peer.invalid:80")
		}, errResendStopped},
		"refused": {func(a *attempt, _ *countedConn) {
			_, second, _ := hearing(t)
			a.getConn("peer.invalid:80")
			a.fence.refuse(second, errElsewhere, a.cancel)
		}, errElsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			a, first, _ := hearing(t)
			test.end(a, first)
			a.gotFirstByte()
			if _, _, err := a.fence.judge(io.ErrUnexpectedEOF, false, false); !errors.Is(err, test.want) || errors.Is(err, errEarlyAnswer) {
				t.Errorf("it ended with %v, want %v", err, test.want)
			}
		})
	}
}
