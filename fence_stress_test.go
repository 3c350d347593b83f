package fedhttp_test

import (
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var fenceFor = flag.Duration("fence.for", 0, "how long TestFenceStress goes on, and at least fenceRuns runs; 0: for 2 s")

// fenceRuns is how many runs a stress test makes at least, where it was asked
// for one.
const fenceRuns = 10_000

// TestFenceStress repeats the first row of the table: a GET whose pooled
// connection ends after the peer has read it whole, with others pooled besides.
// Each run has a name, and the peers' logs must have each name once.
func TestFenceStress(t *testing.T) {
	checkLeaks(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8)) // so this test is not parallel
	duration, least := 2*time.Second, int64(1)
	if *fenceFor > 0 {
		duration, least = *fenceFor, fenceRuns
	}
	var runs atomic.Int64
	begin := time.Now()
	goOn := func() bool { return time.Since(begin) < duration || runs.Load() < least }

	var workers sync.WaitGroup
	var peers []*doomedPeer
	for w := range 8 {
		pooled := []int{1, 1, 2, 5}[w%4]
		secure := w >= 6 // handshakes are slow under the race detector
		peer := newDoomedPeer(t, secure, []rawEnding{endGoodbye, endReset}[w%2])
		peers = append(peers, peer)
		tr := fenced(t, &http.Transport{MaxIdleConnsPerHost: 32, TLSClientConfig: trusting()}, peer.url)
		workers.Go(func() {
			for n := 0; goOn() && !t.Failed(); n++ {
				if err := peer.tryWarm(tr, pooled); err != nil {
					t.Errorf("warming up: %v", err)
					return
				}
				req, err := http.NewRequest(http.MethodGet, peer.url+"/doomed", nil)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("X-Name", strconv.Itoa(n))
				if err := rawSend(tr, req); err == nil {
					t.Error("a request without an answer got one")
				}
				runs.Add(1)
			}
			peer.drain(tr)
		})
	}
	stop := make(chan struct{})
	var progress sync.WaitGroup
	progress.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if testing.Verbose() {
					fmt.Printf("    %v: %d runs\n", time.Since(begin).Round(time.Second), runs.Load())
				}
			case <-stop:
				return
			}
		}
	})
	workers.Wait()
	close(stop)
	progress.Wait()

	var delivered, lost, twice int
	for _, peer := range peers {
		slices.Sort(peer.names)
		names := slices.Compact(slices.Clone(peer.names))
		delivered += len(peer.names)
		twice += len(peer.names) - len(names)
	}
	lost = int(runs.Load()) - (delivered - twice)
	t.Logf("%d runs in %v: %d deliveries, %d of them a second time; %d never arrived",
		runs.Load(), time.Since(begin).Round(time.Millisecond), delivered, twice, lost)
	if twice != 0 || lost != 0 {
		t.Errorf("%d runs arrived twice and %d never, want each once", twice, lost)
	}
}
