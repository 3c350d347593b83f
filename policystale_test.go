package fedhttp

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestStaleBook(t *testing.T) {
	t.Parallel()
	var b PolicyBook
	b.SetStale(true)
	wantAuthorized(t, &b, residency, Authorization{}, ReasonPoliciesStale)
	wantAuthorized(t, &b, nil, Authorization{Basis: BasisNoObligation}, ReasonNone)

	advertise(t, &b, bookKey(3), digestA) // writes are taken all the while
	b.Accept(Policy{PolicyKey: bookKey(3), Digest: digestA})
	wantAuthorized(t, &b, residency, Authorization{Digest: digestA, Epoch: 3}, ReasonPoliciesStale)
	wantAuthorized(t, &b, nil, Authorization{Digest: digestA, Epoch: 3, Basis: BasisNoObligation}, ReasonNone)

	b.SetStale(false)
	wantAuthorized(t, &b, residency, Authorization{Digest: digestA, Epoch: 3, Basis: BasisAccepted}, ReasonNone)
}

// What was revoked while the book was stale authorizes nothing, not even in the moment
// in which it is stale no more.
func TestStaleBookCatchesUp(t *testing.T) {
	t.Parallel()
	const steps = 3 // of which the first begins when the book is stale, and the last may accept again
	var b PolicyBook
	var step atomic.Uint64
	advertise(t, &b, bookKey(1), digestA)
	// To look through these takes a while.
	task, defaults := Task{Capability: bookKey(1).Capability, Obligations: Terms{"residency": "eu"}}, Terms{"residency": "us"}
	for i := range 300 {
		defaults[strconv.Itoa(i)], task.Obligations[strconv.Itoa(i)] = "", ""
	}
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				before := step.Load()
				auth, err := b.Authorize(bookKey(1).Peer, task, defaults, bookNow)
				if before%steps == 1 && step.Load() <= before+1 && err == nil {
					t.Errorf("authorized: %+v", auth)
					return
				}
			}
		})
	}
	for range 10_000 {
		b.Accept(Policy{PolicyKey: bookKey(1), Digest: digestA})
		b.SetStale(true)
		step.Add(1)
		b.Revoke(bookKey(1), digestA)
		b.SetStale(false)
		step.Add(1)
		step.Add(1)
	}
	close(done)
	readers.Wait()
}

// A task that a stale book holds goes out once it is stale no more, although
// nothing of its key has changed, and nobody was asked to agree anything.
func TestStaleBookHolds(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{})
		r.advertise("cap", 1, "d1")
		r.accept("cap", 1, "d1")
		r.book.SetStale(true)
		done := r.hold(t.Context(), vtTask("t"))
		time.Sleep(3 * time.Second)
		r.book.SetStale(false)
		res := done()[0]
		if res.err != nil {
			t.Fatal(res.err)
		}
		vtWant(t, "at", res.at, 3*time.Second)
		vtWant(t, "told", len(r.told.snapshot()), 0)
	})
}

// Not parallel: AllocsPerRun counts those of the whole process.
func TestStaleBookDoesNotAllocate(t *testing.T) {
	var b PolicyBook
	advertise(t, &b, bookKey(1), digestA)
	b.SetStale(true)
	task := Task{Capability: "summarize", Obligations: residency}
	if n := testing.AllocsPerRun(100, func() {
		_, _ = b.Authorize("b.example", task, nil, bookNow)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
