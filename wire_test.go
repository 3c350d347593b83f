package fedhttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// wireConn is a connection below a countedConn: it takes at most room bytes in
// each write and fails with the rest, and a write waits for gate, if any.
type wireConn struct {
	net.Conn // nil: nothing else is called
	room     int
	gate     chan struct{}
	entered  chan struct{}

	mu     sync.Mutex
	took   bytes.Buffer
	writes int
	shut   bool
}

func (c *wireConn) Write(p []byte) (int, error) {
	if c.gate != nil {
		c.entered <- struct{}{}
		<-c.gate
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	n, _ := c.took.Write(p[:min(len(p), c.room)])
	if n < len(p) {
		return n, syscall.EPIPE
	}
	return n, nil
}

func (c *wireConn) Read([]byte) (int, error) { return 0, io.EOF }

func (c *wireConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shut = true
	return nil
}

func (c *wireConn) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.took.String()
}

func TestCountedConnSeals(t *testing.T) {
	below := &wireConn{room: 100}
	c := &countedConn{Conn: below}
	if n, err := c.Write([]byte("before")); n != 6 || err != nil {
		t.Fatalf("got %d, %v", n, err)
	}
	mark := c.bytesWritten()
	for range 2 {
		if !c.seal(mark) {
			t.Fatal("nothing was written since the mark, and it cannot be sealed")
		}
	}
	if n, err := c.Write([]byte("late")); n != 0 || !errors.Is(err, errSealed) {
		t.Errorf("got %d, %v, want errSealed", n, err)
	}
	if n, err := c.ReadFrom(strings.NewReader("late")); n != 0 || !errors.Is(err, errSealed) {
		t.Errorf("got %d, %v, want errSealed", n, err)
	}
	if got := below.text(); got != "before" {
		t.Errorf("%q left", got)
	}
}

func TestCountedConnCountsWhatLeft(t *testing.T) {
	for name, row := range map[string]struct {
		room int
		free bool // nothing left, so it can be sealed
	}{
		"nothing": {0, true}, "a byte": {1, false}, "all": {100, false},
	} {
		for how, write := range map[string]func(c *countedConn) error{
			"Write": func(c *countedConn) error { _, err := c.Write([]byte("GET /")); return err },
			"ReadFrom": func(c *countedConn) error {
				_, err := c.ReadFrom(io.LimitReader(strings.NewReader("GET /"), 5))
				return err
			},
		} {
			c := &countedConn{Conn: &wireConn{room: row.room}}
			if err := write(c); (err != nil) != (row.room < 5) {
				t.Errorf("%s, %s: %v", how, name, err)
			}
			if got := c.seal(0); got != row.free {
				t.Errorf("%s, %s: sealed=%v", how, name, got)
			}
			if row.room < 5 && !errors.Is(c.ending(c), syscall.EPIPE) {
				t.Errorf("%s, %s: ended by %v", how, name, c.ending(c))
			}
		}
	}
}

// TestCountedConnWriteUnderWay: a write that has not returned may have left.
func TestCountedConnWriteUnderWay(t *testing.T) {
	checkLeaks(t)
	below := &wireConn{room: 0, gate: make(chan struct{}), entered: make(chan struct{})}
	c := &countedConn{Conn: below}
	ended := make(chan error)
	go func() {
		_, err := c.Write([]byte("GET /"))
		ended <- err
	}()
	<-below.entered
	if c.seal(0) {
		t.Error("sealed while a write was under way")
	}
	close(below.gate)
	if err := <-ended; !errors.Is(err, syscall.EPIPE) {
		t.Errorf("got %v", err)
	}
	if !c.seal(0) {
		t.Error("the write has ended and took nothing, and it cannot be sealed")
	}
}

// TestCountedConnSealRaces: whoever comes first, a seal that was granted lets
// nothing leave.
func TestCountedConnSealRaces(t *testing.T) {
	for range 2000 {
		below := &wireConn{room: 100}
		c := &countedConn{Conn: below}
		var writers sync.WaitGroup
		start := make(chan struct{})
		for range 2 {
			writers.Go(func() {
				<-start
				_, _ = c.Write([]byte("x"))
			})
		}
		close(start)
		sealed := c.seal(0)
		writers.Wait()
		if left := below.text(); sealed && left != "" {
			t.Fatalf("sealed, and %q left", left)
		}
	}
}

func TestCountedConnPoison(t *testing.T) {
	below := &wireConn{room: 100} // its Close does not keep it from writing
	c := &countedConn{Conn: below}
	shut(c, c)
	if n, err := c.Write([]byte("late")); n != 0 || !errors.Is(err, errSealed) || below.text() != "" || !below.shut {
		t.Errorf("got %d, %v, %q left, closed=%v", n, err, below.text(), below.shut)
	}
}

// TestCountedConnFile: net/http sends a file by handing the whole of it to the
// connection, and so does the one that counts.
func TestCountedConnFile(t *testing.T) {
	checkLeaks(t)
	name := filepath.Join(t.TempDir(), "body")
	if err := os.WriteFile(name, bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	got := make(chan int64)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			got <- -1
			return
		}
		defer conn.Close()
		n, _ := io.Copy(io.Discard, conn)
		got <- n
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := &countedConn{Conn: conn}
	if n, err := io.Copy(c, file); n != 1<<20 || err != nil || c.bytesWritten() != 1<<20 {
		t.Errorf("sent %d and counted %d: %v", n, c.bytesWritten(), err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Errorf("CloseWrite: %v", err)
	}
	if n := <-got; n != 1<<20 {
		t.Errorf("%d arrived", n)
	}
	c.Close()
	if err := (&countedConn{Conn: &wireConn{}}).CloseWrite(); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("got %v, want ErrNotSupported", err)
	}
}

// TestFenceLateWrite: the base has returned an error, and its writer is another
// goroutine that comes only now. What was proven stays true: nothing leaves.
func TestFenceLateWrite(t *testing.T) {
	for name, early := range map[string]string{"nothing before": "", "a byte before": "G"} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			below := &wireConn{room: 100}
			conn := &countedConn{Conn: below}
			if _, err := conn.Write([]byte("an earlier request")); err != nil {
				t.Fatal(err)
			}
			late := make(chan struct{})
			ended := make(chan error, 1)
			tr := newTestTransport(t, Config{
				Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
					trace := httptrace.ContextClientTrace(req.Context())
					trace.GetConn("b")
					trace.GotConn(httptrace.GotConnInfo{Conn: conn, Reused: true})
					if early != "" {
						if _, err := conn.Write([]byte(early)); err != nil {
							t.Error(err)
						}
					}
					go func() {
						<-late
						_, err := conn.Write([]byte("GET / HTTP/1.1"))
						ended <- err
					}()
					return nil, context.DeadlineExceeded
				}),
				Escalator: escalatorFunc(func(context.Context, Escalation) {}),
				Peers:     []Peer{testPeer("b", "http://127.0.0.1:1")},
			})
			req, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:1/", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, err = tr.RoundTrip(req)
			close(late)
			wrote := <-ended
			var failed *Error
			if !errors.As(err, &failed) {
				t.Fatal(err)
			}
			if early != "" {
				if failed.Decision.Delivery != DeliveryPossible {
					t.Errorf("got %+v", failed.Decision)
				}
				return
			}
			if failed.Decision.Delivery != DeliveryNotDelivered || !errors.Is(wrote, errSealed) || below.text() != "an earlier request" {
				t.Errorf("%v, and then the write: %v; %q left", failed.Decision.Delivery, wrote, below.text())
			}
		})
	}
}

// TestOwnBase: bases that cannot be used as they are.
func TestOwnBase(t *testing.T) {
	var none *http.Transport
	if _, ok := ownBase(none).(*http.Transport); !ok {
		t.Error("a nil *http.Transport is not taken for none")
	}
	t.Run("a dialer that returns nothing", func(t *testing.T) {
		checkLeaks(t)
		tr := newTestTransport(t, Config{
			Base: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				return nil, nil
			}},
			Escalator: escalatorFunc(func(context.Context, Escalation) {}),
			Peers:     []Peer{testPeer("b", "http://127.0.0.1:1")},
		})
		req, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:1/", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = tr.RoundTrip(req); err == nil || !strings.Contains(err.Error(), "(nil, nil)") {
			t.Errorf("got %v, want what net/http says of it", err)
		}
	})
}
