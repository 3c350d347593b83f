package fedhttp_test

import (
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// TestHeldMemory: a held task is small, the http.Client call included. It does
// not run in parallel, as it measures the process.
func TestHeldMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes stacks larger")
	}
	checkLeaks(t)
	const tasks = 20_000
	h := holdMany(t, tasks)
	h.release()
	h.close()
	t.Logf("%.0f bytes a held task", h.bytes)
	if h.bytes > maxHeldBytes {
		t.Errorf("a held task takes %.0f bytes, want at most %d", h.bytes, maxHeldBytes)
	}
	if got := h.delivered.Load(); got != tasks {
		t.Errorf("%d of %d were delivered", got, tasks)
	}
}

const (
	largeBody   = 256 << 20
	largeSample = 32 << 20
)

// sampledBody is a body of zeros that looks at the heap as it is read: each
// time that another largeSample bytes were taken from it.
type sampledBody struct {
	left, sample int64
	peak         uint64
}

func (b *sampledBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	if b.sample <= 0 {
		b.sample += largeSample
		b.peak = max(b.peak, heapAlive())
	}
	n := min(int64(len(p)), b.left)
	clear(p[:n])
	b.left -= n
	b.sample -= n
	if b.left == 0 {
		b.peak = max(b.peak, heapAlive())
	}
	return int(n), nil
}

func (*sampledBody) Close() error { return nil }

// heapAlive is the heap that is reachable: garbage does not count, and so
// neither does when it is collected.
func heapAlive() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// largeServer counts what is sent to it.
func largeServer(tb testing.TB) (url string, received *atomic.Int64) {
	received = new(atomic.Int64)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		received.Add(n)
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	tb.Cleanup(func() { server.Close(); <-served })
	return "http://" + l.Addr().String(), received
}

// sendLarge streams a body without GetBody and returns the most that was alive
// meanwhile.
func sendLarge(tb testing.TB, rt http.RoundTripper, url string) uint64 {
	body := &sampledBody{left: largeBody}
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodPut, url+"/large", body)
	if err != nil {
		tb.Fatal(err)
	}
	if req.GetBody != nil {
		tb.Fatal("the body can be had again")
	}
	resp, err := (&http.Client{Transport: rt}).Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK || body.left != 0 {
		tb.Fatalf("status %d, %d bytes left", resp.StatusCode, body.left)
	}
	return body.peak
}

func largeTransports(tb testing.TB, url string) (plain *http.Transport, federated *fedhttp.Transport) {
	base := func() *http.Transport {
		t := &http.Transport{}
		tb.Cleanup(t.CloseIdleConnections)
		return t
	}
	federated, err := fedhttp.NewTransport(fedhttp.Config{
		Base: base(), Peers: []fedhttp.Peer{{ID: "b", Origins: []string{url}, Retry: fedhttp.RetryPolicy{AttemptTimeout: time.Hour}}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { federated.Close() })
	return base(), federated
}

// TestLargeBodyMemory: a large body is streamed and not kept, whether or not it
// could be sent again. It does not run in parallel, as it measures the process.
func TestLargeBodyMemory(t *testing.T) {
	checkLeaks(t)
	url, received := largeServer(t)
	plain, federated := largeTransports(t, url)
	sendLarge(t, plain, url) // what net/http and the server keep for later is there from now on
	sendLarge(t, federated, url)
	before := sendLarge(t, plain, url)
	peak := sendLarge(t, federated, url)
	after := sendLarge(t, plain, url)
	want := max(before, after)
	t.Logf("peak %d KiB, with net/http alone %d KiB", peak>>10, want>>10)
	if peak > want+2<<20 {
		t.Errorf("at the peak %d bytes more are alive than with net/http alone", peak-want)
	}
	if got := received.Load(); got != 5*largeBody {
		t.Errorf("the server received %d bytes, want %d", got, 5*largeBody)
	}
}
