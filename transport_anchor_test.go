package fedhttp_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
)

// Anchors are fetched once for everybody who waits, in bounded time, whatever
// the source does. Time is virtual here.

// gate is a base that lets nothing through before n requests are there, and
// then answers each with routing evidence until its anchor is not "v1".
type gate struct {
	n    int64
	seen atomic.Int64
	open chan struct{}
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("X-Federation-Anchor-Version") != "v1" {
		return answering(response(200))(r)
	}
	if g.seen.Add(1) == g.n {
		close(g.open)
	}
	<-g.open
	return answering(routed())(r)
}

func TestOneFetchForManyFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const callers, givingUp = 100, 10
		base := &gate{n: callers, open: make(chan struct{})}
		var fetches atomic.Int64
		release := make(chan struct{})
		peer := testPeer("b", stubURL)
		peer.Breaker.Failures = -1
		tr := newTestTransport(t, fedhttp.Config{
			Base: base, Peers: []fedhttp.Peer{peer}, Logger: quietLogger,
			Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
				if fetches.Add(1) == 1 {
					return fedhttp.Anchor{Version: "v1"}, nil
				}
				<-release
				return fedhttp.Anchor{Version: "v2"}, nil
			}),
		})
		var group sync.WaitGroup
		var delivered, canceled atomic.Int64
		ctx, cancel := context.WithCancel(context.Background())
		for i := range callers {
			group.Go(func() {
				own := context.Background()
				if i < givingUp {
					own = ctx
				}
				req, err := http.NewRequestWithContext(own, http.MethodGet, stubURL, nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := tr.RoundTrip(req)
				d, _ := decisionOf(t, resp, err)
				switch d.Outcome {
				case fedhttp.OutcomeDelivered:
					delivered.Add(1)
				case fedhttp.OutcomeCanceled:
					canceled.Add(1)
				default:
					t.Errorf("%v (%v)", d.Outcome, d.Reason)
				}
			})
		}
		synctest.Wait() // all of them wait for the one fetch
		cancel()
		synctest.Wait() // some have given up, and it goes on
		if n := canceled.Load(); n != givingUp {
			t.Errorf("%d gave up, want %d", n, givingUp)
		}
		close(release)
		group.Wait()
		if n := delivered.Load(); n != callers-givingUp {
			t.Errorf("%d were delivered, want %d", n, callers-givingUp)
		}
		if n := fetches.Load(); n != 2 {
			t.Errorf("%d fetches, want 2: the first and one for all", n)
		}
	})
}

func TestFirstFetchIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var fetches, early atomic.Int64
		release := make(chan struct{})
		tr := newTestTransport(t, fedhttp.Config{
			Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
				if r.Header.Get("X-Federation-Anchor-Version") == "" {
					early.Add(1)
				}
				return answering(response(200))(r)
			}),
			Peers: []fedhttp.Peer{testPeer("b", stubURL)},
			Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
				fetches.Add(1)
				<-release
				return fedhttp.Anchor{Version: "v1"}, nil
			}),
		})
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() { _, _ = get(t, tr, fedhttp.Task{}) })
		}
		synctest.Wait()
		close(release)
		group.Wait()
		if f, e := fetches.Load(), early.Load(); f != 1 || e != 0 {
			t.Errorf("%d fetches and %d sends before the first ended, want 1 and none", f, e)
		}
		if s := tr.Status()[0]; s.AnchorVersion != "v1" {
			t.Errorf("the status has anchor %q", s.AnchorVersion)
		}
	})
}

// TestSourceThatHangs: it delays a call by a bounded time, costs the peer its
// refreshes, and nothing else.
func TestSourceThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var fetches atomic.Int64
		tr := newTestTransport(t, fedhttp.Config{
			Base: answering(routed()), Peers: []fedhttp.Peer{{ID: "b", Origins: []string{stubURL}}}, Logger: quietLogger,
			Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
				fetches.Add(1)
				<-release // deaf to its context
				return fedhttp.Anchor{}, errors.New("too late")
			}),
		})
		for range 3 {
			start := time.Now()
			d, err := get(t, tr, fedhttp.Task{})
			if d.Outcome != fedhttp.OutcomeRoutingFailed || d.Reason != fedhttp.ReasonRefreshFailed || d.Attempts != 1 || err == nil {
				t.Errorf("%v (%v) after %d attempts, want routing_failed (refresh_failed) after one", d.Outcome, d.Reason, d.Attempts)
			}
			if took := time.Since(start); took > 15*time.Second {
				t.Errorf("the call took %v", took)
			}
		}
		if n := fetches.Load(); n != 1 {
			t.Errorf("the source was called %d times while it hung, want once", n)
		}
		close(release)
		synctest.Wait()
		_, _ = get(t, tr, fedhttp.Task{})
		if n := fetches.Load(); n < 2 {
			t.Error("a source that has come back is not asked again")
		}
	})
}

// TestFetchesAreApart: whatever fails, fetches of a peer's anchor begin at
// least MinRefreshInterval apart.
func TestFetchesAreApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var begun recorder[time.Time]
		peer := fedhttp.Peer{ID: "b", Origins: []string{stubURL}, Breaker: fedhttp.BreakerPolicy{Failures: -1}}
		tr := newTestTransport(t, fedhttp.Config{
			Base: answering(routed()), Peers: []fedhttp.Peer{peer}, Logger: quietLogger,
			Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
				begun.add(time.Now())
				return fedhttp.Anchor{Version: "v1"}, nil
			}),
		})
		var group sync.WaitGroup
		for range 20 {
			group.Go(func() { _, _ = get(t, tr, fedhttp.Task{}) })
		}
		group.Wait()
		all := begun.snapshot()
		if len(all) < 3 {
			t.Fatalf("%d fetches, want 3 at least", len(all))
		}
		for i := range all[1:] {
			if apart := all[i+1].Sub(all[i]); apart < time.Second {
				t.Errorf("fetches %d and %d began %v apart, want 1s at least", i, i+1, apart)
			}
		}
	})
}

// TestPreflightBeforeAResend: what was agreed for the first send may be gone
// before the second.
func TestPreflightBeforeAResend(t *testing.T) {
	t.Parallel()
	key := fedhttp.PolicyKey{Peer: "b", Capability: "summarise", Epoch: 1}
	for name, change := range map[string]struct {
		do   func(*fedhttp.PolicyBook, fedhttp.DenialLedger)
		want fedhttp.Reason
	}{
		"revoked":   {func(b *fedhttp.PolicyBook, _ fedhttp.DenialLedger) { b.Revoke(key, "sha256:a") }, fedhttp.ReasonNotAccepted},
		"withdrawn": {func(b *fedhttp.PolicyBook, _ fedhttp.DenialLedger) { b.Withdraw("b", "summarise") }, fedhttp.ReasonNotAdvertised},
		"denied": {func(_ *fedhttp.PolicyBook, l fedhttp.DenialLedger) {
			_ = l.Record(context.Background(), fedhttp.Denial{Peer: "b", Capability: "summarise", Epoch: 1, Digest: "sha256:a", Until: time.Now().Add(time.Hour)})
		}, fedhttp.ReasonDeniedBefore},
	} {
		book, ledger := &fedhttp.PolicyBook{}, fedhttp.NewDenialLedger()
		if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "sha256:a"}); err != nil {
			t.Fatal(err)
		}
		book.Accept(fedhttp.Policy{PolicyKey: key, Digest: "sha256:a"})
		var fetches, sends atomic.Int64
		tr := newTestTransport(t, fedhttp.Config{
			Peers: []fedhttp.Peer{testPeer("b", stubURL)}, Book: book, Denials: ledger, Logger: quietLogger,
			Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
				sends.Add(1)
				return answering(routed())(r)
			}),
			Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
				if fetches.Add(1) == 2 {
					change.do(book, ledger)
				}
				return fedhttp.Anchor{Version: time.Now().String()}, nil
			}),
		})
		d, err := get(t, tr, *heldTask)
		if d.Outcome != fedhttp.OutcomeRoutingFailed || d.Reason != change.want || sends.Load() != 1 || !errors.Is(err, fedhttp.ErrRouting) {
			t.Errorf("%s: %v (%v) after %d sends, want routing_failed (%v) after one", name, d.Outcome, d.Reason, sends.Load(), change.want)
		}
	}
}

// TestCloseWhileTheAnchorIsFetched: a call that has not left yet does not go out without
// the anchor that it waits for.
func TestCloseWhileTheAnchorIsFetched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTestTransport(t, fedhttp.Config{
			Base: answering(response(200)), Peers: []fedhttp.Peer{testPeer("b", stubURL)}, Logger: quietLogger,
			Anchors: anchorFunc(func(ctx context.Context, _ string) (fedhttp.Anchor, error) {
				<-ctx.Done()
				return fedhttp.Anchor{}, ctx.Err()
			}),
		})
		go func() {
			synctest.Wait()
			_ = tr.Close()
		}()
		d, err := get(t, tr, fedhttp.Task{})
		if !errors.Is(err, fedhttp.ErrClosed) || d.Outcome != fedhttp.OutcomeCanceled || d.Reason != fedhttp.ReasonClosed || d.Attempts != 0 {
			t.Errorf("%v: %v (%v) after %d sends, want it closed and not sent", err, d.Outcome, d.Reason, d.Attempts)
		}
	})
}
