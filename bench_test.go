package fedhttp_test

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// BenchmarkChain is the whole chain over a stub, with what it allocates beyond
// the stub alone.
func BenchmarkChain(b *testing.B) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		b.Run("stub/"+method, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				chainCall(b.Context(), b, chainStub, method)
			}
		})
		for _, c := range chainCases() {
			b.Run(c.name+"/"+method, func(b *testing.B) {
				tr := c.transport(b, nil)
				ctx := b.Context()
				if c.task.Capability != "" {
					ctx = fedhttp.ContextWithTask(ctx, c.task)
				}
				added := testing.AllocsPerRun(1000, func() { chainCall(ctx, b, tr, method) }) -
					testing.AllocsPerRun(1000, func() { chainCall(ctx, b, chainStub, method) })
				b.ReportAllocs()
				for b.Loop() {
					chainCall(ctx, b, tr, method)
				}
				b.ReportMetric(added, "allocs-beyond-stub/op")
			})
		}
	}
}

// BenchmarkChainParallel is a call from each of many goroutines.
func BenchmarkChainParallel(b *testing.B) {
	c := chainCases()[2]
	tr := c.transport(b, nil)
	ctx := fedhttp.ContextWithTask(b.Context(), c.task)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			chainCall(ctx, b, tr, http.MethodGet)
		}
	})
}

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

// BenchmarkHeld holds 100,000 tasks at a time: how much memory each of them
// takes (TestHeldMemory bounds it), and how long after one Accept all of them were
// awake and sent, and all calls had returned.
func BenchmarkHeld(b *testing.B) {
	const tasks = 100_000
	var size float64
	var awake, returned time.Duration // at worst
	for b.Loop() {
		h := holdMany(b, tasks)
		a, r := h.release()
		awake, returned = max(awake, a), max(returned, r)
		size = max(size, h.bytes)
		h.close()
		if got := h.delivered.Load(); got != tasks {
			b.Fatalf("%d of %d were delivered", got, tasks)
		}
	}
	b.ReportMetric(size, "B/task")
	b.ReportMetric(float64(awake.Microseconds())/1000, "ms-until-all-awake")
	b.ReportMetric(float64(returned.Microseconds())/1000, "ms-until-all-returned")
}
