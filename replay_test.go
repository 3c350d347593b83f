package fedhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// The second incident, at full scale: two weeks, gossip every 30 s, negotiations
// of 4 min at the median and 19 min at the 99th percentile, and 1,140 tasks that
// arrive while a negotiation is open. 53 of them have a policy deadline that
// passes before it ends.
const (
	replayTasks        = 1140
	replayLate         = 53
	replayCapabilities = 6
	replayRounds       = 19 // of each capability
	replayPerRound     = replayTasks / (replayCapabilities * replayRounds)
	replayEvery        = 14 * 24 * time.Hour / replayRounds
	replayGossip       = 30 * time.Second
	replayAgreedFor    = 6 * time.Hour // then a negotiation expires
	replayMedian       = 4 * time.Minute
	replayP99          = 19 * time.Minute
)

// replay is the client's side: it believes gossip, and negotiates what its
// transport says is unresolved.
type replay struct {
	t     *testing.T
	begin time.Time
	peer  *fedtest.Peer
	book  *fedhttp.PolicyBook

	mu        sync.Mutex
	durations map[fedhttp.PolicyKey]time.Duration // of the negotiation to come
	signals   int
	agreed    map[string][]time.Time // when each capability's policies were agreed
}

// PolicyUnresolved begins a negotiation, which is what a Coordinator is for.
func (r *replay) PolicyUnresolved(_ context.Context, u fedhttp.Unresolved) {
	key := fedhttp.PolicyKey{Peer: u.Peer, Capability: u.Capability, Epoch: u.Epoch}
	r.mu.Lock()
	r.signals++
	d, planned := r.durations[key]
	r.mu.Unlock()
	if !planned {
		r.t.Errorf("nothing to negotiate: %+v", u)
		return
	}
	time.AfterFunc(d, func() {
		offer := fedtest.Advertisement{Capability: u.Capability, Epoch: u.Epoch, Digest: u.Digest, Terms: replayTerms(u.Capability)}
		r.peer.Agree("", offer)
		time.AfterFunc(replayAgreedFor, func() { r.peer.Revoke("", offer) })
		r.mu.Lock()
		r.agreed[u.Capability] = append(r.agreed[u.Capability], time.Now())
		r.mu.Unlock()
		r.book.CacheNegotiation(fedhttp.Negotiation{
			PolicyKey: key, Digest: u.Digest, ExpiresAt: time.Now().Add(replayAgreedFor), Terms: fedhttp.Terms(offer.Terms),
		})
	})
}

func replayTerms(capability string) map[string]string {
	return map[string]string{"output-licensing": "redistribution-permitted", "for": capability}
}

// gossip tells what the peer advertises, until the bubble's work is done.
func (r *replay) gossip(ctx context.Context) {
	for tick := time.NewTicker(replayGossip); ; {
		for _, a := range r.peer.Advertisements() {
			err := r.book.Advertise(fedhttp.Advertisement{
				PolicyKey: fedhttp.PolicyKey{Peer: "b", Capability: a.Capability, Epoch: a.Epoch}, Digest: a.Digest,
			})
			if err != nil {
				r.t.Errorf("gossip: %v", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			tick.Stop()
			return
		}
	}
}

// plan draws how long each negotiation takes (log-normal, a fixed seed) and which
// tasks have a deadline that passes first.
func replayPlan(random *rand.Rand) (durations []time.Duration, late map[int]bool) {
	sigma := math.Log(float64(replayP99)/float64(replayMedian)) / 2.326
	for range replayCapabilities * replayRounds {
		d := float64(replayMedian) * math.Exp(sigma*random.NormFloat64())
		durations = append(durations, max(time.Duration(d), time.Minute))
	}
	late = map[int]bool{}
	for len(late) < replayLate {
		late[random.IntN(replayTasks)] = true
	}
	return durations, late
}

func TestReplayOfTheSecondIncident(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(2, 1140))
		r := &replay{
			t: t, begin: time.Now(), book: &fedhttp.PolicyBook{}, peer: fedtest.NewUnstartedPeer(fedtest.Config{}),
			durations: map[fedhttp.PolicyKey]time.Duration{}, agreed: map[string][]time.Time{},
		}
		defer r.peer.Close()
		base := r.peer.Transport()
		tr, err := fedhttp.NewTransport(fedhttp.Config{
			Base: base, Book: r.book, Coordinator: r,
			Peers: []fedhttp.Peer{{
				ID: "b", Origins: []string{r.peer.URL}, Receipt: fedhttp.RequireReceipt,
				DefaultTerms: fedhttp.Terms{"output-licensing": "internal-reuse-only"},
				Hold:         fedhttp.HoldPolicy{MaxWait: 2 * time.Hour},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer base.CloseIdleConnections()
		defer tr.Close()
		client := &http.Client{Transport: tr}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.gossip(ctx)

		durations, late := replayPlan(random)
		var calls sync.WaitGroup
		var mu sync.Mutex
		delivered, pending := 0, 0
		task := func(id string, capability string, arrives, deadline time.Duration) {
			time.Sleep(arrives)
			task := fedhttp.Task{
				ID: id, Capability: capability, Obligations: fedhttp.Terms{"output-licensing": "redistribution-permitted"},
			}
			if deadline > 0 {
				task.PolicyDeadline = time.Now().Add(deadline)
			}
			req, err := http.NewRequestWithContext(fedhttp.ContextWithTask(t.Context(), task), http.MethodGet, r.peer.URL+"/"+capability, nil)
			if err != nil {
				t.Error(err)
				return
			}
			req.Header.Set(fedtest.HeaderTask, id)
			resp, err := client.Do(req)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				delivered++
				if d, ok := fedhttp.DecisionFromResponse(resp); !ok || d.Outcome != fedhttp.OutcomeDelivered || resp.StatusCode != http.StatusOK {
					t.Errorf("task %s: status %d, %+v", id, resp.StatusCode, d)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			case errors.Is(err, fedhttp.ErrPolicyUnresolved):
				pending++
			default:
				t.Errorf("task %s: %v", id, err)
			}
		}

		next := 0
		for capability := range replayCapabilities {
			name := fmt.Sprint("capability", capability)
			for round := range replayRounds {
				// Every other round offers a new policy; in between, the old one is
				// negotiated anew, as what was agreed has expired.
				epoch := uint64(1 + round/2)
				at := time.Duration(round)*replayEvery + time.Duration(random.Int64N(int64(replayEvery/2)))
				open := durations[capability*replayRounds+round]
				key := fedhttp.PolicyKey{Peer: "b", Capability: name, Epoch: epoch}
				time.AfterFunc(at, func() {
					r.mu.Lock()
					r.durations[key] = open
					r.mu.Unlock()
					terms := replayTerms(name)
					r.peer.Advertise(fedtest.Advertisement{
						Capability: name, Epoch: epoch, Digest: fedtest.Digest(map[string]string{"epoch": fmt.Sprint(epoch), "for": name}), Terms: terms,
					})
				})
				// The first task arrives when gossip has told of it, and opens the
				// negotiation; the others arrive while it goes on.
				first := at + replayGossip
				ends := first + open
				order := random.Perm(replayPerRound)
				for i := range replayPerRound {
					arrives := first
					if i > 0 {
						arrives += time.Duration(random.Int64N(int64(open * 8 / 10)))
					}
					left, deadline := ends-arrives, time.Duration(0)
					switch n := next; {
					case late[n]:
						deadline = time.Duration(1 + random.Int64N(int64(left-time.Second)))
					case order[i]%2 == 0:
						deadline = left + time.Second + time.Duration(random.Int64N(int64(time.Hour)))
					}
					id := fmt.Sprint("task", next)
					next++
					calls.Go(func() { task(id, name, arrives, deadline) })
				}
			}
		}
		calls.Wait()
		time.Sleep(14*24*time.Hour - time.Since(r.begin)) // gossip goes on to the end
		cancel()
		r.check(delivered, pending, durations)
	})
}

// check asks the peer.
func (r *replay) check(delivered, pending int, durations []time.Duration) {
	t := r.t
	want := func(what string, got, want int) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	slices.Sort(durations)
	t.Logf("negotiations: median %v, p99 %v, longest %v", durations[len(durations)/2], durations[len(durations)*99/100], durations[len(durations)-1])
	right, wrong, early := 0, 0, 0
	for _, e := range r.peer.Engine.Log() {
		if e.Agreed && e.RanTerms["output-licensing"] == "redistribution-permitted" && e.RanTerms["for"] == e.Capability {
			right++
		} else {
			wrong++
		}
		if !slices.ContainsFunc(r.agreed[e.Capability], func(at time.Time) bool {
			return !e.Time.Before(at) && e.Time.Before(at.Add(replayAgreedFor))
		}) {
			early++
		}
	}
	want("ran under the right policy", right, replayTasks-replayLate)
	want("ran under another policy", wrong, 0)
	want("sent before agreement", early, 0)
	want("requests at the routing layer", r.peer.Routing.Ledger().Requests, replayTasks-replayLate)
	want("sends of one task at most", r.peer.Routing.Ledger().MaxPerTask, 1)
	want("delivered, as the client has it", delivered, replayTasks-replayLate)
	want("pending, as the client has it", pending, replayLate)
	want("signals to the coordinator", r.signals, replayCapabilities*replayRounds)
}
