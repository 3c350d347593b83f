package bench

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// sender makes calls through what it is given.
func sender(rt http.RoundTripper) *Sender {
	return &Sender{Name: "test", rt: rt, ctx: context.Background(), url: Origin + path}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestStatistics(t *testing.T) {
	t.Parallel()
	values := []float64{5, 1, 4, 2, 3}
	if got := Median(values); got != 3 {
		t.Errorf("the median is %v", got)
	}
	if values[0] != 5 {
		t.Error("the values were sorted in place")
	}
	if got := Quantile(values, 0.99); got != 5 {
		t.Errorf("p99 is %v", got)
	}
	if got := Ratio(Beyond([]float64{3, 5, 9}, []float64{1, 1, 1}), Beyond([]float64{5, 9, 5}, []float64{1, 1, 1})); got != 0.5 {
		t.Errorf("the ratio is %v, want the median of 2/4, 4/8 and 8/4", got)
	}
	if got := Mean([]float64{1, 4}, []float64{3, 4}); !slices.Equal(got, []float64{2, 4}) {
		t.Errorf("the means are %v", got)
	}
}

// TestMemory is not parallel: it counts what the process allocates.
func TestMemory(t *testing.T) {
	var kept []byte
	allocs, bytes := Memory(100, func() { kept = make([]byte, 4096) })
	if allocs < 1 || allocs > 1.5 || bytes < 4096 || bytes > 5000 {
		t.Errorf("%v allocations of %v bytes", allocs, bytes)
	}
	_ = kept
}

// TestCompare: each sender makes all of its calls, and none is always first.
func TestCompare(t *testing.T) {
	t.Parallel()
	var order []string
	named := func(name string) *Sender {
		return sender(roundTripFunc(func(req *http.Request) (*http.Response, error) {
			order = append(order, name)
			return Stub{}.RoundTrip(req)
		}))
	}
	took := Compare([]*Sender{named("a"), named("b")}, http.MethodGet, 2, 2)
	turn := func(name string) string { return strings.Repeat(name, 22) } // of which 20 do not count
	if got := strings.Join(order, ""); got != turn("a")+turn("b")+turn("b")+turn("a") {
		t.Errorf("the order of calls is %s", got)
	}
	for i, rounds := range took {
		if len(rounds) != 2 || rounds[0] <= 0 || rounds[1] <= 0 {
			t.Errorf("sender %d took %v", i, rounds)
		}
	}
}

// TestRenew: each turn has one connection, of its own.
func TestRenew(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"h1", "h2"} {
		server := Serve(proto)
		for _, c := range measured() {
			s := c.Over(server.Base(), none(), server.URL)
			calls, connections := server.Calls.Load(), server.Connections.Load()
			Compare([]*Sender{s}, http.MethodGet, 3, 5)
			calls, connections = server.Calls.Load()-calls, server.Connections.Load()-connections
			if connections != 3 || calls < 3*(21+5) {
				t.Errorf("%s, %s: %d connections for %d calls in 3 turns", proto, c.Name, connections, calls)
			}
			s.Close()
		}
		server.Close()
	}
}

// TestOpenLoop: calls go out whether or not those before were answered, all of
// them count, and from the time at which they were meant to be sent.
func TestOpenLoop(t *testing.T) {
	t.Parallel()
	const calls = 50
	var mu sync.Mutex
	waiting := 0
	all := make(chan struct{})
	s := sender(roundTripFunc(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		if waiting++; waiting == calls {
			close(all)
		}
		mu.Unlock()
		<-all // nobody is answered before the last has asked
		return Stub{}.RoundTrip(req)
	}))
	l := OpenLoop(s, 1000, calls*time.Millisecond)
	if len(l.Whole) != calls || len(l.Start) != calls || l.Behind {
		t.Fatalf("%d calls, behind: %v", len(l.Whole), l.Behind)
	}
	// The last was meant to be sent 49 ms after the first, which waited for it.
	if first := l.Whole[0]; first < 0.049 {
		t.Errorf("the first took %v s, though it waited for the last", first)
	}
	for i := range calls {
		if l.Start[i] < 0 || l.Whole[i] < l.Start[i] {
			t.Errorf("call %d began after %v s and took %v s", i, l.Start[i], l.Whole[i])
		}
	}
}

// TestStreams: as much arrives as is said, both ways, and the sampler looks.
func TestStreams(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	for _, c := range []Chain{Bare, Fedhttp} {
		server := Serve("h1")
		s := c.Over(server.Base(), none(), server.URL)
		var up, down Sampler
		up.Every, down.Every = size/4, size/4
		if err := s.Upload(size, &up); err != nil {
			t.Fatal(err)
		}
		if got := server.Received.Load(); got != size {
			t.Errorf("%s: %d bytes arrived", c.Name, got)
		}
		if err := s.Download(size, &down); err != nil {
			t.Fatal(err)
		}
		if up.Peak == 0 || down.Peak == 0 {
			t.Errorf("%s: peaks %d and %d", c.Name, up.Peak, down.Peak)
		}
		s.Close()
		server.Close()
	}
}

// TestContention is not parallel: the profiles are the process's. A lock that one
// goroutine waits for, because another holds it, is named by its holder's function.
func TestContention(t *testing.T) {
	var lock sync.Mutex
	const holds, each = 4, 5 * time.Millisecond
	mutex, block := Contention(func() {
		var all sync.WaitGroup
		for range holds {
			all.Go(func() { holdLock(&lock, each) })
		}
		all.Wait()
	})
	for name, locks := range map[string][]Lock{"mutex": mutex, "block": block} {
		found := false
		for _, l := range locks {
			if strings.Contains(l.Func, "holdLock") {
				found = true
				if l.Owner != "harness" {
					t.Errorf("%s: the owner is %q", name, l.Owner)
				}
				if l.Delay <= 0 {
					t.Errorf("%s: a delay of %v", name, l.Delay)
				}
			}
		}
		if !found {
			t.Errorf("%s: not among %v", name, locks)
		}
	}
}

//go:noinline
func holdLock(lock *sync.Mutex, d time.Duration) {
	lock.Lock()
	time.Sleep(d)
	lock.Unlock()
}

func TestOwner(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"github.com/fedhttp/fedhttp.(*attemptClocks).start": "fedhttp",
		"github.com/fedhttp/fedhttp/internal/redact.Text":   "fedhttp",
		"github.com/fedhttp/fedhttp/bench.OpenLoop.func1":   "harness",
		"main.atOnce.func1": "harness",
		"github.com/sony/gobreaker/v2.(*CircuitBreaker[...]).beforeRequest": "gobreaker",
		"net/http.(*Transport).tryPutIdleConn":                              "other",
	} {
		if got := owner(name); got != want {
			t.Errorf("%s is %s's, want %s", name, got, want)
		}
	}
}
