package fedhttp

import (
	"net/http/httptrace"
	"testing"
)

// TestFenceManyConnections: however many connections of its pool net/http meets that
// have ended, the fence does not forget that there were any.
func TestFenceManyConnections(t *testing.T) {
	t.Parallel()
	var f fence
	for i := range 600 {
		f.getConn(func() { t.Fatalf("connection %d: nothing has left, and it was stopped", i) })
		f.gotConn(httptrace.GotConnInfo{Conn: &countedConn{}, Reused: true}, func() { t.Fatalf("connection %d: stopped", i) })
		if want := uint8(min(i+1, 2)); f.conns != want {
			t.Fatalf("after connection %d it knows of %d, want %d", i, f.conns, want)
		}
	}
	last := f.conn
	if err := last.begin(nil); err != nil {
		t.Fatal(err)
	}
	last.end(1, nil)
	stopped := false
	f.getConn(func() { stopped = true })
	if !stopped {
		t.Error("a byte has left, and another connection is had")
	}
}
