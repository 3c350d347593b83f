package fedhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// maxHeldBytes is what a held task may take, with the http.Client call that it
// stands in.
const maxHeldBytes = 6 << 10

// held is many tasks that wait for one policy.
type held struct {
	book *fedhttp.PolicyBook
	tr   *fedhttp.Transport
	stop context.CancelFunc

	calls     sync.WaitGroup
	sent      atomic.Int64
	lastSent  time.Time // of the last one
	delivered atomic.Int64
	bytes     float64 // that each takes
}

var heldKey = fedhttp.PolicyKey{Peer: "b", Capability: "cap", Epoch: 1}

// holdMany sends n tasks through an http.Client, and returns when all of them
// are held.
func holdMany(tb testing.TB, n int) *held {
	h := &held{book: &fedhttp.PolicyBook{}}
	if err := h.book.Advertise(fedhttp.Advertisement{PolicyKey: heldKey, Digest: "sha256:1"}); err != nil {
		tb.Fatal(err)
	}
	tr, err := fedhttp.NewTransport(fedhttp.Config{
		Book: h.book,
		Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			if h.sent.Add(1) == int64(n) {
				h.lastSent = time.Now()
			}
			return chainStub(req)
		}),
		Coordinator: coordinatorFunc(func(context.Context, fedhttp.Unresolved) {}),
		Peers: []fedhttp.Peer{{
			ID: "b", Origins: []string{"https://b.example"}, Hold: fedhttp.HoldPolicy{Max: n, MaxWait: time.Hour},
		}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	h.tr = tr
	client := &http.Client{Transport: tr}
	task := fedhttp.Task{Capability: "cap", Obligations: fedhttp.Terms{"residency": "eu"}}
	var ctx context.Context
	ctx, h.stop = context.WithCancel(fedhttp.ContextWithTask(context.Background(), task))
	before := inUse()
	for range n {
		h.calls.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://b.example/v1/tasks", nil)
			if err != nil {
				return
			}
			if resp, err := client.Do(req); err == nil {
				resp.Body.Close()
				h.delivered.Add(1)
			}
		})
	}
	for tr.Status()[0].Held < n {
		runtime.Gosched()
	}
	h.bytes = float64(inUse()-before) / float64(n)
	return h
}

// inUse is what the process has in use after a collection: heap and stacks.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // and what the first one's finalizers kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// release agrees to the policy, and returns how long it took until the last task
// was awake and sent, and until the last call had returned.
func (h *held) release() (awake, returned time.Duration) {
	begin := time.Now()
	h.book.Accept(fedhttp.Policy{PolicyKey: heldKey, Digest: "sha256:1"})
	h.calls.Wait()
	return h.lastSent.Sub(begin), time.Since(begin)
}

func (h *held) close() {
	h.stop()
	h.calls.Wait()
	h.tr.Close()
}

// BenchmarkHeld holds many tasks at a time: how much memory each of them takes
// (TestHeldMemory bounds it), and how long after one Accept all of them were awake
// and sent, and all calls had returned.
func BenchmarkHeld(b *testing.B) {
	for _, tasks := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			var size float64
			var awake, returned time.Duration // at worst
			for b.Loop() {
				h := holdMany(b, tasks)
				a, r := h.release()
				awake, returned = max(awake, a), max(returned, r)
				size = max(size, h.bytes)
				h.close()
				if got := h.delivered.Load(); got != int64(tasks) {
					b.Fatalf("%d of %d were delivered", got, tasks)
				}
			}
			b.ReportMetric(size, "B/task")
			b.ReportMetric(float64(awake.Nanoseconds()), "awake-ns")
			b.ReportMetric(float64(returned.Nanoseconds()), "returned-ns")
		})
	}
}
