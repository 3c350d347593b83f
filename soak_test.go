package fedhttp_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

var (
	soakFor  = flag.Duration("soak.for", 3*time.Second, "how long TestSoak soaks")
	soakSeed = flag.Uint64("soak.seed", 0, "the seed of TestSoak; 0: one of its own")
)

const (
	soakCallers = 200
	soakPeers   = 3
	// soakGrowth is how much more may be alive after the soak than after its
	// warm-up: pooled buffers, tables that have grown, and the like. A call that
	// was kept would take 1 KiB or more, and there are thousands a second.
	soakGrowth = 8 << 20
)

// TestSoak lets 200 callers loose on three peers. The peers' servers come and
// go, SetPeers with them; anchors rotate, policies are advertised, agreed on and
// revoked, peers are marked as degraded, and callers give up. At the end the
// servers' logs prove that no request without a routing verdict was seen twice,
// the outcomes add up, and nothing has stayed behind.
//
// It does not run in parallel, as it measures the process.
//
//	go test -run TestSoak -soak.for=10m -timeout=20m .
func TestSoak(t *testing.T) {
	checkLeaks(t)
	seed := *soakSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test -run TestSoak -soak.for=%v -soak.seed=%d .", *soakFor, seed)
	before := runtime.NumGoroutine()
	log.SetOutput(io.Discard) // net/http quotes there what nobody has asked for
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	s := newSoak(t, seed)

	s.run(*soakFor / 4) // pools fill, tables grow
	warm := heapAlive()
	s.run(*soakFor)
	s.settle(before)
	after := heapAlive()

	n := s.count
	t.Logf("%d calls in %d generations of servers: %d sends, %d held; outcomes %v", n.calls, n.generations, n.sends, n.held, n.outcomes)
	t.Logf("%d tasks were seen more than once, all of them after routing verdicts; %d unexcused duplicates", n.repeated, n.duplicates)
	t.Logf("alive: %d KiB after the warm-up, %d KiB at the end", warm>>10, after>>10)
	if after > warm+soakGrowth {
		t.Errorf("%d KiB are alive at the end, %d KiB after the warm-up", after>>10, warm>>10)
	}
	ended := 0
	for _, of := range n.outcomes {
		ended += of
	}
	if ended != n.calls || n.calls != int(s.started.Load()) {
		t.Errorf("%d calls began, %d came back, %d outcomes", s.started.Load(), n.calls, ended)
	}
	common := []fedhttp.Outcome{
		fedhttp.OutcomeDelivered, fedhttp.OutcomeRoutingFailed, fedhttp.OutcomeAmbiguous, fedhttp.OutcomePolicyUnresolved,
		fedhttp.OutcomeCanceled,
	}
	if *soakFor >= 20*time.Second { // a slow machine sees few of them in a short time
		common = append(common, fedhttp.OutcomeRejected, fedhttp.OutcomePeerUnavailable, fedhttp.OutcomeScopeDenied, fedhttp.OutcomePolicyMismatch)
	}
	for _, o := range common {
		if n.outcomes[o] == 0 {
			t.Errorf("no call was %v: the soak does not do what it says", o)
		}
	}
	if n.held == 0 || n.repeated == 0 || n.sends == 0 {
		t.Errorf("nothing was held, sent or sent again: %+v", n)
	}
}

// soak is the state of a soak: one Transport, and generations of servers.
type soak struct {
	t       *testing.T
	tr      *fedhttp.Transport
	book    *fedhttp.PolicyBook
	bases   [soakPeers]*http.Transport
	random  *soakRandom
	current atomic.Pointer[generation]
	started atomic.Int64
	anchors [soakPeers]atomic.Int64
	epochs  atomic.Uint64

	mu    sync.Mutex
	count soakCount
}

// soakCount is what has happened in the generations that are over.
type soakCount struct {
	generations, calls, sends, held, repeated, duplicates int
	outcomes                                              map[fedhttp.Outcome]int
}

// soakRandom is a source for everybody.
type soakRandom struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (r *soakRandom) n(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.IntN(n)
}

func (r *soakRandom) chance(percent int) bool { return r.n(100) < percent }

func newSoak(t *testing.T, seed uint64) *soak {
	s := &soak{t: t, book: &fedhttp.PolicyBook{}, random: &soakRandom{r: rand.New(rand.NewPCG(seed, seed))}}
	s.count.outcomes = make(map[fedhttp.Outcome]int)
	for i := range s.bases {
		s.bases[i] = soakBase(i)
	}
	s.tr = newTestTransport(t, fedhttp.Config{
		Book: s.book, Logger: quietLogger, Base: &http.Transport{},
		Peers: []fedhttp.Peer{soakPeer(0, s.bases[0], nil), soakPeer(1, s.bases[1], nil), soakPeer(2, s.bases[2], nil)},
		Anchors: anchorFunc(func(_ context.Context, id string) (fedhttp.Anchor, error) {
			i := slices.Index(soakIDs[:], id)
			g := s.current.Load()
			if g == nil || s.random.chance(10) {
				return fedhttp.Anchor{}, fmt.Errorf("no anchor just now")
			}
			s.anchors[i].Add(1)
			return fedhttp.Anchor{Version: g.peers[i].Anchor().Version}, nil
		}),
		Escalator:   escalatorFunc(func(context.Context, fedhttp.Escalation) {}),
		Coordinator: coordinatorFunc(func(context.Context, fedhttp.Unresolved) {}),
	})
	return s
}

// run soaks for a while, and returns when all calls have come back and the logs
// of all servers were read.
func (s *soak) run(duration time.Duration) {
	ctx, cancel := context.WithTimeout(s.t.Context(), duration)
	defer cancel()
	first := s.newGeneration()
	s.setPeers(first, nil)
	s.current.Store(first)
	var everybody sync.WaitGroup
	everybody.Go(func() { s.generations(ctx) })
	everybody.Go(func() { s.policies(ctx) })
	everybody.Go(func() { s.anchorsRotate(ctx) })
	everybody.Go(func() { s.degrade(ctx) })
	for range soakCallers {
		everybody.Go(func() { s.caller(ctx) })
	}
	everybody.Wait()
	last := s.current.Swap(nil)
	s.close(last)
}

// every does something again and again, until the context ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f()
		case <-ctx.Done():
			return
		}
	}
}

// settle checks that nothing is left: no call, no hold, no goroutine.
func (s *soak) settle(goroutines int) {
	s.tr.CloseIdleConnections()
	for _, p := range s.tr.Status() {
		if p.InFlight != 0 || p.Held != 0 {
			s.t.Errorf("at the end the status is %+v", p)
		}
	}
	// A few are the runtime's own, and the timers'.
	for deadline := time.Now().Add(15 * time.Second); runtime.NumGoroutine() > goroutines+5; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Errorf("%d goroutines run, %d did before", runtime.NumGoroutine(), goroutines)
			return
		}
	}
}
