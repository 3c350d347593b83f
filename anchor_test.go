package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// vtAnchors is a source whose answers a test sets, and that notes when it was
// asked.
type vtAnchors struct {
	mu     sync.Mutex
	answer func(ctx context.Context) (Anchor, error)
	starts []time.Time
}

func (s *vtAnchors) FetchAnchor(ctx context.Context, _ string) (Anchor, error) {
	s.mu.Lock()
	s.starts = append(s.starts, time.Now())
	answer := s.answer
	s.mu.Unlock()
	return answer(ctx)
}

func (s *vtAnchors) set(answer func(context.Context) (Anchor, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *vtAnchors) is(a Anchor) { s.set(func(context.Context) (Anchor, error) { return a, nil }) }

// since returns when the source was asked, since begin.
func (s *vtAnchors) since(begin time.Time) (at []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, start := range s.starts {
		at = append(at, start.Sub(begin))
	}
	return at
}

func (s *vtAnchors) fetches() int { return len(s.since(time.Time{})) }

// vtAnchorRig does not check anchors at the peer, but for scripted steps.
func vtAnchorRig(t *testing.T, s *vtAnchors, more ...func(*Config, *Peer)) *vtRig {
	t.Helper()
	unchecked := fedtest.Config{ChecksAnchor: func(*http.Request) bool { return false }}
	return newRig(t, unchecked, func(cfg *Config, p *Peer) {
		cfg.Anchors, p.Receipt = s, IgnoreReceipt
		for _, change := range more {
			change(cfg, p)
		}
	})
}

// vtSlow answers after d, or when the context ends, whichever comes first.
func vtSlow(d time.Duration, a Anchor) func(context.Context) (Anchor, error) {
	return func(ctx context.Context) (Anchor, error) {
		select {
		case <-time.After(d):
			return a, nil
		case <-ctx.Done():
			return Anchor{}, ctx.Err()
		}
	}
}

func (r *vtRig) sentVersions() (versions []string) {
	for _, e := range r.peer.Routing.Log() {
		versions = append(versions, e.Header.Get(fedtest.HeaderAnchorVersion))
	}
	return versions
}

func TestAnchorBeforeFirstSend(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		s := &vtAnchors{}
		r := vtAnchorRig(t, s)
		s.set(vtSlow(2*time.Second, Anchor{Version: "1"}))
		var tasks []Task
		for i := range 10 {
			tasks = append(tasks, Task{ID: fmt.Sprint("t", i)})
		}
		done := r.hold(t.Context(), tasks...)
		vtWant(t, "sends before the anchor", r.peer.Routing.Ledger().Requests, 0)
		time.Sleep(time.Second)
		results := append(done(), r.hold(t.Context(), Task{ID: "later"})()...)
		for _, res := range results {
			vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
			vtWant(t, "version", res.d.AnchorVersion, "1")
		}
		vtWant(t, "refreshes that the first call waited for", results[0].d.Refreshes, 1)
		vtWant(t, "refreshes that the later call waited for", results[10].d.Refreshes, 0)
		vtWant(t, "fetches", s.fetches(), 1)
		for _, e := range r.peer.Routing.Log() {
			vtWant(t, "sent at", e.Time.Sub(r.begin), 2*time.Second)
			vtWant(t, "version", e.Header.Get(fedtest.HeaderAnchorVersion), "1")
		}
		vtWant(t, "version", r.status().AnchorVersion, "1")
		time.Sleep(time.Minute)
		vtWant(t, "age", r.status().AnchorAge, time.Minute)
	})
}

// vtFaults are the ways in which a source gives no anchor, with how long the
// first call waits for it.
func vtFaults(release <-chan struct{}) map[string]struct {
	answer func(context.Context) (Anchor, error)
	wait   time.Duration
} {
	return map[string]struct {
		answer func(context.Context) (Anchor, error)
		wait   time.Duration
	}{
		"hangs until its context ends": {func(ctx context.Context) (Anchor, error) { <-ctx.Done(); return Anchor{}, ctx.Err() }, 5 * time.Second},
		"hangs whatever happens":       {func(context.Context) (Anchor, error) { <-release; return Anchor{}, errors.New("too late") }, 5 * time.Second},
		"fails":                        {func(context.Context) (Anchor, error) { return Anchor{}, errors.New("no route") }, 0},
		"panics":                       {func(context.Context) (Anchor, error) { panic("source on fire") }, 0},
		"is empty":                     {func(context.Context) (Anchor, error) { return Anchor{}, nil }, 0},
		"is expired":                   {func(context.Context) (Anchor, error) { return Anchor{Version: "1", ExpiresAt: time.Now()}, nil }, 0},
		"is in the future": {func(context.Context) (Anchor, error) {
			return Anchor{Version: "1", IssuedAt: time.Now().Add(time.Minute + 1)}, nil
		}, 0},
	}
}

// TestAnchorSourceFails: the first call goes on without an anchor, unless one
// is required, and a peer that would do with one is not called.
func TestAnchorSourceFails(t *testing.T) {
	for name := range vtFaults(nil) {
		for _, required := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", required ", required), func(t *testing.T) {
				vtBubble(t, func(t *testing.T) {
					release := make(chan struct{})
					defer close(release)
					fault := vtFaults(release)[name]
					s := &vtAnchors{answer: fault.answer}
					r := vtAnchorRig(t, s, func(_ *Config, p *Peer) { p.RequireAnchor = required })
					res := r.get(t.Context(), Task{ID: "t"})
					vtWant(t, "returned at", res.at, fault.wait)
					vtWant(t, "fetches", s.fetches(), 1)
					if !required {
						vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
						vtWant(t, "versions sent", strings.Join(r.sentVersions(), ","), "")
						// The endpoint is down, and that does not slow down each call.
						before := r.elapsed()
						vtWant(t, "second call", r.get(t.Context(), Task{ID: "t"}).at, before)
						return
					}
					if !errors.Is(res.err, ErrPeerUnavailable) {
						t.Errorf("%v is not ErrPeerUnavailable", res.err)
					}
					vtWant(t, "reason", res.d.Reason, ReasonAnchorRequired)
					vtWant(t, "sends", r.peer.Sends("t"), 0)
					vtNoTimeout(t, "t", res.err)
					vtWant(t, "breaker", r.status().Breaker, "closed")
				})
			})
		}
	}
}

// TestAnchorRequiredWithoutSource: a peer that could never be called is a fault
// of the configuration.
func TestAnchorRequiredWithoutSource(t *testing.T) {
	t.Parallel()
	_, err := NewTransport(Config{Peers: []Peer{{ID: "b", Origins: []string{"https://b.example"}, RequireAnchor: true}}})
	if err == nil || !strings.Contains(err.Error(), "RequireAnchor") {
		t.Errorf("%v does not name RequireAnchor", err)
	}
}

// TestAnchorExpiry: at ExpiresAt it has expired, and a peer that has had an
// anchor is called under a new one only, required or not.
func TestAnchorExpiry(t *testing.T) {
	for _, required := range []bool{false, true} {
		t.Run(fmt.Sprint("required ", required), func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				s := &vtAnchors{}
				r := vtAnchorRig(t, s, func(_ *Config, p *Peer) { p.RequireAnchor = required })
				s.is(Anchor{Version: "1", ExpiresAt: r.begin.Add(time.Hour)})
				vtWant(t, "first", r.get(t.Context(), Task{ID: "t"}).d.AnchorVersion, "1")
				s.is(Anchor{Version: "2", ExpiresAt: r.begin.Add(2 * time.Hour)})
				time.Sleep(time.Hour - 1)
				vtWant(t, "in its last nanosecond", r.get(t.Context(), Task{ID: "t"}).d.AnchorVersion, "1")
				vtWant(t, "fetches", s.fetches(), 1)
				time.Sleep(time.Nanosecond)
				vtWant(t, "at its end", r.get(t.Context(), Task{ID: "t"}).d.AnchorVersion, "2")
				vtWant(t, "fetches", s.fetches(), 2)

				s.set(func(context.Context) (Anchor, error) { return Anchor{}, errors.New("no route") })
				time.Sleep(time.Hour)
				for range 3 { // of which those within MinRefreshInterval fetch nothing
					res := r.get(t.Context(), Task{ID: "expired"})
					vtWant(t, "outcome", res.d.Outcome, OutcomePeerUnavailable)
					vtWant(t, "reason", res.d.Reason, ReasonAnchorExpired)
					if res.err == nil || !strings.Contains(res.err.Error(), "no route") {
						t.Errorf("%v does not say why there is no other", res.err)
					}
				}
				vtWant(t, "fetches", s.fetches(), 3)
				vtWant(t, "sends", r.peer.Sends("expired"), 0)
				vtWant(t, "breaker", r.status().Breaker, "closed")

				s.is(Anchor{Version: "3", ExpiresAt: r.begin.Add(9 * time.Hour)})
				time.Sleep(time.Second)
				vtWant(t, "with a new one", r.get(t.Context(), Task{ID: "t"}).d.AnchorVersion, "3")
			})
		})
	}
}

// TestAnchorRefused: an anchor that is no good leaves the last good one.
func TestAnchorRefused(t *testing.T) {
	for name, row := range map[string]struct {
		old, next func(now time.Time) Anchor
		ok        bool
	}{
		"older":                 {vtIssued("2", 0), vtIssued("1", -1), false},
		"older, same version":   {vtIssued("2", 0), vtIssued("2", -1), false},
		"equally old":           {vtIssued("2", 0), vtIssued("3", 0), true},
		"newer":                 {vtIssued("2", 0), vtIssued("3", 1), true},
		"a minute ahead":        {vtIssued("2", 0), vtIssued("3", time.Minute), true},
		"more than that":        {vtIssued("2", 0), vtIssued("3", time.Minute+1), false},
		"expired":               {vtIssued("2", 0), func(now time.Time) Anchor { return Anchor{Version: "3", ExpiresAt: now} }, false},
		"about to expire":       {vtIssued("2", 0), func(now time.Time) Anchor { return Anchor{Version: "3", ExpiresAt: now.Add(time.Minute)} }, true},
		"empty":                 {vtIssued("2", 0), func(time.Time) Anchor { return Anchor{} }, false},
		"no version":            {vtIssued("2", 0), func(now time.Time) Anchor { return Anchor{IssuedAt: now} }, false},
		"both times unknown":    {vtUnknown("2"), vtUnknown("1"), true},
		"its time unknown":      {vtIssued("2", 0), vtUnknown("1"), true},
		"the old one's unknown": {vtUnknown("2"), vtIssued("1", -time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				now := time.Now().Add(time.Hour)
				s := &vtAnchors{}
				s.is(row.old(now.Add(-time.Hour)))
				r := vtAnchorRig(t, s)
				// Its IssuedAt is that of an hour later, as far as it is compared.
				vtWant(t, "first", r.get(t.Context(), Task{ID: "first"}).d.Outcome, OutcomeDelivered)
				r.state().anchors.current.Store(&keptAnchor{Anchor: row.old(now), fetchedAt: time.Now()})
				time.Sleep(time.Hour)
				s.is(row.next(now))
				r.peer.On("t", fedtest.RouteDrop(503))
				res := r.get(t.Context(), Task{ID: "t"})
				if row.ok {
					vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
					vtWant(t, "version", r.status().AnchorVersion, row.next(now).Version)
					vtWant(t, "sends", r.peer.Sends("t"), 2)
					return
				}
				vtWant(t, "outcome", res.d.Outcome, OutcomeRoutingFailed)
				vtWant(t, "reason", res.d.Reason, ReasonRefreshFailed)
				vtWant(t, "version", r.status().AnchorVersion, row.old(now).Version)
				vtWant(t, "age", r.status().AnchorAge, time.Hour)
				vtWant(t, "sends", r.peer.Sends("t"), 1)
			})
		})
	}
}

func vtIssued(version string, since time.Duration) func(time.Time) Anchor {
	return func(now time.Time) Anchor { return Anchor{Version: version, IssuedAt: now.Add(since)} }
}

func vtUnknown(version string) func(time.Time) Anchor {
	return func(time.Time) Anchor { return Anchor{Version: version} }
}

// TestAnchorConfirmedOrAdvanced: a stale anchor needs a newer one, any other
// failure needs to know that ours is fresh.
func TestAnchorConfirmedOrAdvanced(t *testing.T) {
	for name, row := range map[string]struct {
		step    fedtest.Step
		advance bool
		reason  Reason
		spent   float64 // of the retry budget
	}{
		"stale, advanced":     {fedtest.RouteStale(), true, ReasonNone, 0},
		"stale, confirmed":    {fedtest.RouteStale(), false, ReasonAnchorUnchanged, 0},
		"no route, advanced":  {fedtest.RouteDrop(503), true, ReasonNone, 0},
		"no route, confirmed": {fedtest.RouteDrop(503), false, ReasonNone, 1},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				s := &vtAnchors{}
				s.is(Anchor{Version: "1", IssuedAt: time.Now().Add(-time.Hour)})
				r := vtAnchorRig(t, s)
				r.get(t.Context(), Task{ID: "first"})
				time.Sleep(time.Hour)
				if row.advance {
					s.is(Anchor{Version: "2", IssuedAt: time.Now()})
				}
				r.peer.On("t", row.step)
				res := r.get(t.Context(), Task{ID: "t"})
				vtWant(t, "reason", res.d.Reason, row.reason)
				vtWant(t, "budget spent", float64(r.state().budget.spent.Load())/budgetToken, row.spent)
				vtWant(t, "fetches", s.fetches(), 2)
				vtWant(t, "refreshes", res.d.Refreshes, 1)
				if row.reason != ReasonNone {
					vtWant(t, "outcome", res.d.Outcome, OutcomeRoutingFailed)
					vtWant(t, "sends", r.peer.Sends("t"), 1)
					synctest.Wait()
					vtWant(t, "escalation", r.raised.snapshot()[0].Kind, EscalationRoutingUnrepaired)
					return
				}
				vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
				vtWant(t, "sends", r.peer.Sends("t"), 2)
			})
		})
	}
}
