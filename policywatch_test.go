package fedhttp

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func woken(w *keyWatch) bool {
	synctest.Wait()
	select {
	case <-w.changed():
		return true
	default:
		return false
	}
}

func countWatches(b *PolicyBook) (n int) {
	b.watches.Range(func(any, any) bool { n++; return true })
	return n
}

func TestWatchWakesOnChange(t *testing.T) {
	t.Parallel()
	key := bookKey(1)
	until := bookNow.Add(time.Hour)
	noChange := func(*PolicyBook) {}
	accept := func(b *PolicyBook) { b.Accept(Policy{PolicyKey: key, Digest: digestA, Terms: someTerms}) }
	for _, tt := range []struct {
		name   string
		before func(*PolicyBook)
		write  func(*PolicyBook)
		wakes  bool
	}{
		{"advertised", noChange, func(b *PolicyBook) { advertise(t, b, key, digestB) }, true},
		{"advertised again", noChange, func(b *PolicyBook) { advertise(t, b, key, digestA) }, false},
		{"newer epoch", noChange, func(b *PolicyBook) { advertise(t, b, bookKey(2), digestA) }, true},
		{"stale epoch", noChange, func(b *PolicyBook) { _ = b.Advertise(Advertisement{bookKey(0), digestA}) }, false},
		{"no digest", noChange, func(b *PolicyBook) { _ = b.Advertise(Advertisement{key, ""}) }, false},
		{"withdrawn", noChange, func(b *PolicyBook) { b.Withdraw(key.Peer, key.Capability) }, true},
		{
			"withdrawn again", func(b *PolicyBook) { b.Withdraw(key.Peer, key.Capability) },
			func(b *PolicyBook) { b.Withdraw(key.Peer, key.Capability) }, false,
		},
		{"accepted", noChange, accept, true},
		{"accepted again", accept, accept, false},
		{"accepted with other terms", accept, func(b *PolicyBook) { b.Accept(Policy{PolicyKey: key, Digest: digestA}) }, true},
		{"accepted for an old epoch", noChange, func(b *PolicyBook) { b.Accept(Policy{PolicyKey: bookKey(0), Digest: digestA}) }, false},
		{"revoked", accept, func(b *PolicyBook) { b.Revoke(key, digestA) }, true},
		{"nothing revoked", accept, func(b *PolicyBook) { b.Revoke(key, digestB) }, false},
		{"negotiated", noChange, func(b *PolicyBook) {
			b.CacheNegotiation(Negotiation{PolicyKey: key, Digest: digestB, ExpiresAt: until})
		}, true},
		{"negotiated again", func(b *PolicyBook) {
			b.CacheNegotiation(Negotiation{PolicyKey: key, Digest: digestB, ExpiresAt: until})
		}, func(b *PolicyBook) {
			b.CacheNegotiation(Negotiation{PolicyKey: key, Digest: digestB, ExpiresAt: until.Local()})
		}, false},
		{"other capability", noChange, func(b *PolicyBook) {
			advertise(t, b, PolicyKey{Peer: key.Peer, Capability: "translate"}, digestB)
		}, false},
		{"other peer", noChange, func(b *PolicyBook) {
			advertise(t, b, PolicyKey{Peer: "c.example", Capability: key.Capability}, digestB)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var b PolicyBook
				advertise(t, &b, key, digestA)
				tt.before(&b)
				w, same := b.watch(key.Peer, key.Capability), b.watch(key.Peer, key.Capability)
				if w.changed() != same.changed() {
					t.Error("waiters of a key have different channels")
				}
				if woken(w) {
					t.Fatal("woken before the write")
				}
				tt.write(&b)
				if got := woken(w); got != tt.wakes {
					t.Errorf("woken %t, want %t", got, tt.wakes)
				}
				next := b.watch(key.Peer, key.Capability)
				if woken(next) {
					t.Error("a watch that was taken after the write is woken by it")
				}
				b.unwatch(next)
				b.unwatch(w)
				b.unwatch(same)
				if n := countWatches(&b); n != 0 {
					t.Errorf("%d watches are left", n)
				}
			})
		})
	}
}

func TestUnwatchKeepsOtherWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b PolicyBook
		first, second := b.watch("b.example", "summarize"), b.watch("b.example", "summarize")
		b.unwatch(first)
		if n := countWatches(&b); n != 1 {
			t.Fatalf("%d watches, want 1", n)
		}
		advertise(t, &b, bookKey(1), digestA)
		if !woken(second) {
			t.Error("the waiter that stayed is not woken")
		}
		// A waiter of before the change does not end the watch of after it.
		third := b.watch("b.example", "summarize")
		b.unwatch(second)
		b.Withdraw("b.example", "summarize")
		if !woken(third) {
			t.Error("the waiter of the next watch is not woken")
		}
		b.unwatch(third)
	})
}

// TestNoWakeUpIsLost has waiters come, give up and come back while the key
// changes all the time. Each must see the acceptance in the end: a lost wake-up
// would leave the test hanging.
func TestNoWakeUpIsLost(t *testing.T) {
	t.Parallel()
	const rounds, waiters = 100, 8
	b := new(PolicyBook)
	for round := range uint64(rounds) {
		var group sync.WaitGroup
		key := bookKey(round)
		for i := range waiters {
			group.Go(func() {
				task := Task{Capability: key.Capability, Obligations: residency}
				for n := 0; ; n++ {
					w := b.watch(key.Peer, key.Capability)
					auth, err := b.Authorize(key.Peer, task, nil, bookNow)
					if err == nil && auth.Epoch == round {
						b.unwatch(w)
						return
					}
					if (n+i)%3 > 0 {
						<-w.changed()
					}
					b.unwatch(w)
				}
			})
		}
		group.Go(func() {
			for i := range 3 {
				b.CacheNegotiation(Negotiation{PolicyKey: key, Digest: fmt.Sprint(i), ExpiresAt: bookNow})
				runtime.Gosched()
			}
			advertise(t, b, key, digestA)
			b.Accept(Policy{PolicyKey: key, Digest: digestA})
		})
		group.Wait()
		if n := countWatches(b); n != 0 {
			t.Fatalf("%d watches are left", n)
		}
	}
}
