package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// This file has the tests of how fetches are shared and spaced, and those of
// MaintainAnchors.

// TestRefreshShared: many failures at once make one fetch.
func TestRefreshShared(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		s := &vtAnchors{}
		s.is(Anchor{Version: "1"})
		r := vtAnchorRig(t, s)
		r.get(t.Context(), Task{ID: "first"})
		time.Sleep(time.Hour)
		s.set(vtSlow(3*time.Second, Anchor{Version: "2"}))
		var tasks []Task
		for i := range 1000 {
			tasks = append(tasks, Task{ID: fmt.Sprint("t", i)})
			r.peer.On(tasks[i].ID, fedtest.Delay(time.Second, fedtest.RouteDrop(503))) // all are sent by then
		}
		for i, res := range r.hold(t.Context(), tasks...)() {
			vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
			vtWant(t, "sends", r.peer.Sends(tasks[i].ID), 2)
		}
		vtWant(t, "fetches", s.fetches(), 2)
		vtWant(t, "budget spent", r.state().budget.spent.Load(), 0)
	})
}

// TestRefreshCooldown: fetches begin MinRefreshInterval apart, to the nanosecond,
// however many calls fail.
func TestRefreshCooldown(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		s := &vtAnchors{}
		s.is(Anchor{Version: "1"})
		r := vtAnchorRig(t, s, func(_ *Config, p *Peer) {
			p.Retry.MinRefreshInterval, p.Breaker.Failures = 10*time.Second, -1
		})
		r.peer.Otherwise(fedtest.RouteDrop(503))
		var tasks []Task
		for i := range 3 { // the retry budget has room for them
			tasks = append(tasks, Task{ID: fmt.Sprint("t", i)})
		}
		for _, res := range r.hold(t.Context(), tasks...)() { // at 0, 10 and 20 s
			vtWant(t, "reason", res.d.Reason, ReasonAttemptsExhausted)
		}
		time.Sleep(time.Minute) // the last failures want one for others, at 30 s
		vtWant(t, "fetches at", fmt.Sprint(s.since(r.begin)), "[0s 10s 20s 30s]")

		begin := time.Now()
		r.get(t.Context(), Task{ID: "after a pause"}) // at once, 10 s, and 20 s for others
		time.Sleep(time.Minute)
		vtWant(t, "fetches at", fmt.Sprint(s.since(begin)[4:]), "[0s 10s 20s]")
	})
}

// TestRefreshAfterTheSend: a fetch that began before the attempt was sent says
// nothing about why it failed.
func TestRefreshAfterTheSend(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		s := &vtAnchors{}
		s.is(Anchor{Version: "1"})
		r := vtAnchorRig(t, s)
		r.get(t.Context(), Task{ID: "first"})
		time.Sleep(time.Hour)
		r.begin = time.Now()
		s.set(vtSlow(3*time.Second, Anchor{Version: "1"}))
		r.state().anchors.kick(time.Second) // from 0 to 3 s
		time.Sleep(time.Second)
		r.peer.On("t", fedtest.RouteDrop(503))
		res := r.get(t.Context(), Task{ID: "t"}) // needs that from 3 to 6 s
		vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
		vtWant(t, "fetches at", fmt.Sprint(s.since(r.begin)[1:]), "[0s 3s]")
		at := r.sentAt("t")
		vtWant(t, "sends", len(at), 2)
		vtWithin(t, "resent at", at[1], 6*time.Second+100*time.Millisecond, 6*time.Second+200*time.Millisecond)
	})
}

// TestRefreshOlderVersion: an attempt that went out under an older version than
// the one at hand now needs no fetch.
func TestRefreshOlderVersion(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		s := &vtAnchors{}
		s.is(Anchor{Version: "1"})
		r := vtAnchorRig(t, s)
		r.get(t.Context(), Task{ID: "first"})
		time.Sleep(time.Hour)
		r.peer.On("slow", fedtest.Delay(30*time.Second, fedtest.RouteStale()))
		slow := r.hold(t.Context(), Task{ID: "slow"})
		s.is(Anchor{Version: "2"})
		r.peer.On("quick", fedtest.RouteStale())
		vtWant(t, "quick", r.get(t.Context(), Task{ID: "quick"}).d.Refreshes, 1)
		vtWant(t, "fetches", s.fetches(), 2)

		res := slow()[0]
		vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
		vtWant(t, "refreshes", res.d.Refreshes, 0)
		vtWant(t, "version", res.d.AnchorVersion, "2")
		vtWant(t, "fetches", s.fetches(), 2)
		vtWant(t, "sends", r.peer.Sends("slow"), 2)
	})
}

// TestRefreshCancel: a caller that gives up ends neither the fetch nor the wait
// of others, before the first send and before a resend.
func TestRefreshCancel(t *testing.T) {
	for name, first := range map[string]bool{"first anchor": true, "refresh": false} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				s := &vtAnchors{}
				s.is(Anchor{Version: "1"})
				r := vtAnchorRig(t, s)
				if !first {
					r.get(t.Context(), Task{ID: "first"})
					time.Sleep(time.Hour)
					// Both were sent when the fetch begins.
					r.peer.On("leaves", fedtest.Delay(time.Second, fedtest.RouteDrop(503)))
					r.peer.On("stays", fedtest.Delay(time.Second, fedtest.RouteDrop(503)))
				}
				fetches := s.fetches()
				s.set(vtSlow(4*time.Second, Anchor{Version: "2"}))
				ctx, cancel := context.WithCancel(t.Context())
				begin := r.elapsed()
				leaves := r.hold(ctx, Task{ID: "leaves"})
				stays := r.hold(t.Context(), Task{ID: "stays"})
				time.Sleep(2 * time.Second)
				cancel()
				gone := leaves()[0]
				vtWant(t, "gone at", gone.at-begin, 2*time.Second)
				vtWant(t, "gone", gone.d.Outcome, OutcomeCanceled)
				if first && !errors.Is(gone.err, context.Canceled) {
					t.Errorf("%v is not context.Canceled", gone.err)
				}
				res := stays()[0]
				vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
				vtWant(t, "version", res.d.AnchorVersion, "2")
				vtWant(t, "fetches", s.fetches(), fetches+1)
			})
		})
	}
}

// TestRefreshThroughItself: a source that calls the very peer whose anchor it
// fetches, through the Transport that waits for it, gets what there is at once.
func TestRefreshThroughItself(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		s := &vtAnchors{}
		r := vtAnchorRig(t, s)
		r.peer.On("bundle 2", fedtest.RouteDrop(503))
		for i, want := range []Outcome{OutcomeDelivered, OutcomeRoutingFailed} {
			id := fmt.Sprint("bundle ", i+1)
			var bundle vtResult
			s.set(func(ctx context.Context) (Anchor, error) {
				bundle = r.get(ctx, Task{ID: id})
				return Anchor{Version: id}, bundle.err
			})
			if i == 1 {
				r.peer.On("stale", fedtest.RouteDrop(503))
			}
			res := r.get(t.Context(), Task{ID: []string{"first", "stale"}[i]})
			vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
			vtWant(t, "version", res.d.AnchorVersion, id)
			vtWant(t, "what the source got", bundle.d.Outcome, want)
			vtWant(t, "its sends", r.peer.Sends(id), 1)
			time.Sleep(time.Hour)
		}
		vtWant(t, "fetches", s.fetches(), 2)
	})
}

// TestRefreshSourceFails: whatever the source does, the call is not resent and
// the anchor at hand stays; a source that has not returned is not asked again
// before it has.
func TestRefreshSourceFails(t *testing.T) {
	for name := range vtFaults(nil) {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				release := make(chan struct{})
				fault := vtFaults(release)[name]
				s := &vtAnchors{}
				s.is(Anchor{Version: "1"})
				r := vtAnchorRig(t, s)
				r.get(t.Context(), Task{ID: "first"})
				time.Sleep(time.Hour)
				r.begin = time.Now()
				s.set(fault.answer)
				r.peer.On("t", vtDrop())
				res := r.get(t.Context(), Task{ID: "t"})
				vtWant(t, "outcome", res.d.Outcome, OutcomeRoutingFailed)
				vtWant(t, "reason", res.d.Reason, ReasonRefreshFailed)
				vtWant(t, "returned at", res.at, fault.wait)
				vtWant(t, "body", res.body, "come back later")
				vtWant(t, "sends", r.peer.Sends("t"), 1)
				vtWant(t, "version", r.status().AnchorVersion, "1")

				time.Sleep(time.Minute)
				if strings.Contains(name, "whatever") {
					r.peer.On("t", vtDrop())
					vtWant(t, "while it hangs", r.get(t.Context(), Task{ID: "t"}).d.Reason, ReasonRefreshFailed)
					vtWant(t, "fetches", s.fetches(), 2)
				}
				close(release)
				time.Sleep(time.Minute)
				s.is(Anchor{Version: "2"})
				r.peer.On("t", vtDrop())
				vtWant(t, "once it answers again", r.get(t.Context(), Task{ID: "t"}).d.AnchorVersion, "2")
			})
		})
	}
}

// maintain runs MaintainAnchors until the returned function ends it, or the test does.
func (r *vtRig) maintain() (stop func() error) {
	ctx, cancel := context.WithCancelCause(r.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.tr.MaintainAnchors(ctx) }()
	r.t.Cleanup(func() { cancel(nil) })
	return func() error { cancel(errEnough); return <-ended }
}

var errEnough = errors.New("enough")

func TestMaintainIntervals(t *testing.T) {
	for name, row := range map[string]struct {
		anchor func() Anchor
		want   time.Duration
	}{
		"hint": {func() Anchor {
			return Anchor{Version: "1", RefreshHint: 10 * time.Minute, ExpiresAt: time.Now().Add(2 * time.Hour)}
		}, 10 * time.Minute},
		"half of life": {func() Anchor { return Anchor{Version: "1", ExpiresAt: time.Now().Add(2 * time.Hour)} }, time.Hour},
		"hint beyond half of life": {func() Anchor {
			return Anchor{Version: "1", RefreshHint: 3 * time.Hour, ExpiresAt: time.Now().Add(2 * time.Hour)}
		}, time.Hour},
		"negative hint": {func() Anchor {
			return Anchor{Version: "1", RefreshHint: -time.Minute, ExpiresAt: time.Now().Add(2 * time.Hour)}
		}, time.Hour},
		"unknown end": {func() Anchor { return Anchor{Version: "1"} }, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				s := &vtAnchors{}
				s.set(func(context.Context) (Anchor, error) { return row.anchor(), nil })
				r := vtAnchorRig(t, s)
				stop := r.maintain()
				time.Sleep(20 * row.want)
				if err := stop(); !errors.Is(err, errEnough) {
					t.Errorf("ended with %v, want the context's cause", err)
				}
				at := s.since(r.begin)
				vtWant(t, "first fetch at", at[0], 0)
				vtWithin(t, "number of fetches", time.Duration(len(at)), 20, 24)
				gaps := map[time.Duration]bool{}
				for i := range at[1:] {
					gap := at[i+1] - at[i]
					vtWithin(t, "interval", gap, row.want*9/10, row.want+time.Second)
					gaps[gap] = true
				}
				if len(gaps) < 5 {
					t.Errorf("%d intervals of %d lengths: no jitter", len(at)-1, len(gaps))
				}
				vtWant(t, "sends", r.peer.Routing.Ledger().Requests, 0)
				time.Sleep(10 * row.want)
				vtWant(t, "fetches after the end", s.fetches(), len(at))
			})
		})
	}
}

// TestMaintainBackoff: a source that fails is asked at doubled intervals up to a
// minute, and the last good anchor stays meanwhile.
func TestMaintainBackoff(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		s := &vtAnchors{}
		s.is(Anchor{Version: "1", RefreshHint: time.Minute})
		r := vtAnchorRig(t, s, func(_ *Config, p *Peer) { p.Retry.MinRefreshInterval = 2 * time.Second })
		r.maintain()
		synctest.Wait()
		vtWant(t, "version", r.status().AnchorVersion, "1")
		s.set(func(context.Context) (Anchor, error) { return Anchor{}, errors.New("no route") })
		time.Sleep(10 * time.Minute)
		at := s.since(r.begin)[1:]
		vtWithin(t, "failed fetches", time.Duration(len(at)), 10, 15)
		for i := range at[1:] {
			want := min(2*time.Second<<i, time.Minute)
			vtWithin(t, fmt.Sprint("interval after failure ", i+1), at[i+1]-at[i], want*9/10, want+time.Second)
		}
		vtWant(t, "version", r.status().AnchorVersion, "1")

		s.is(Anchor{Version: "2", RefreshHint: time.Minute})
		time.Sleep(time.Minute + 2*time.Second)
		vtWant(t, "version", r.status().AnchorVersion, "2")
		before := s.fetches()
		time.Sleep(10 * time.Minute)
		vtWithin(t, "fetches in ten minutes", time.Duration(s.fetches()-before), 9, 12)
	})
}

// TestRefreshAnchor: who knows of another anchor has it fetched, whatever hint the one at
// hand came with and whatever is on its way, and not once for each who knows.
func TestRefreshAnchor(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		s := &vtAnchors{}
		s.is(Anchor{Version: "1", RefreshHint: 10 * 365 * 24 * time.Hour})
		r := vtAnchorRig(t, s)
		r.tr.RefreshAnchor("b") // the first
		time.Sleep(time.Hour)
		s.set(vtSlow(3*time.Second, Anchor{Version: "1"}))
		r.begin = time.Now()
		fetches := func() string { return fmt.Sprint(s.since(r.begin)[1:]) }
		r.tr.RefreshAnchor("nobody")
		r.tr.RefreshAnchor("b") // from 0 to 3 s
		time.Sleep(time.Second)
		s.is(Anchor{Version: "2"})
		for range 10 {
			r.tr.RefreshAnchor("b") // at 3 s
		}
		time.Sleep(time.Minute)
		vtWant(t, "fetches at", fetches(), "[0s 3s]")
		vtWant(t, "version", r.status().AnchorVersion, "2")

		for range 2 { // at once, and MinRefreshInterval later, which the second waits for
			r.tr.RefreshAnchor("b")
			time.Sleep(time.Nanosecond)
		}
		r.tr.RefreshAnchor("b")
		time.Sleep(time.Minute)
		vtWant(t, "fetches at", fetches(), "[0s 3s 1m1s 1m2s]")

		// One that was removed may come back.
		if err := r.tr.SetPeers(nil); err != nil {
			t.Fatal(err)
		}
		s.is(Anchor{Version: "3"})
		r.tr.RefreshAnchor("b")
		time.Sleep(time.Minute)
		if err := r.tr.SetPeers([]Peer{{ID: "b", Origins: []string{r.peer.URL}}}); err != nil {
			t.Fatal(err)
		}
		vtWant(t, "version", r.status().AnchorVersion, "3")
	})
	(&Transport{}).RefreshAnchor("b")
}

// TestMaintainFollowsPeers: a peer that is added is fetched for, one that is
// removed is not, and one that stays keeps its anchor.
func TestMaintainFollowsPeers(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var mu sync.Mutex
		fetched := map[string]int{}
		count := func(peer string) int { mu.Lock(); defer mu.Unlock(); return fetched[peer] }
		r := newRig(t, fedtest.Config{}, func(cfg *Config, _ *Peer) {
			cfg.Anchors = anchorFunc(func(_ context.Context, peer string) (Anchor, error) {
				mu.Lock()
				defer mu.Unlock()
				fetched[peer]++
				return Anchor{Version: "of " + peer, RefreshHint: time.Minute}, nil
			})
		})
		r.maintain()
		time.Sleep(30 * time.Second)
		vtWant(t, "b", count("b"), 1)
		b := Peer{ID: "b", Origins: []string{r.peer.URL}}
		c := Peer{ID: "c", Origins: []string{"https://c.example"}}
		if err := r.tr.SetPeers([]Peer{b, c}); err != nil {
			t.Fatal(err)
		}
		vtWant(t, "version of b", r.status().AnchorVersion, "of b")
		time.Sleep(2 * time.Second)
		vtWant(t, "c", count("c"), 1)
		vtWant(t, "b", count("b"), 1)
		if err := r.tr.SetPeers([]Peer{c}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		vtWant(t, "b after it was removed", count("b"), 1)
		vtWithin(t, "c", time.Duration(count("c")), 10, 12)
	})
}

func TestMaintainEnds(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		s := &vtAnchors{}
		s.is(Anchor{Version: "1"})
		r := vtAnchorRig(t, s)
		ended := make(chan error, 1)
		go func() { ended <- r.tr.MaintainAnchors(t.Context()) }()
		time.Sleep(time.Minute)
		if err := r.tr.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		vtWant(t, "ended at", r.elapsed(), time.Minute)

		none := newRig(t, fedtest.Config{}, nil)
		if none.tr.MaintainAnchors(t.Context()) == nil || new(Transport).MaintainAnchors(t.Context()) == nil {
			t.Error("there is nothing to maintain, and no error")
		}
	})
}
