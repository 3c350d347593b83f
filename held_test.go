package fedhttp

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHeldTasks(t *testing.T) {
	t.Parallel()
	var h heldTasks
	base := time.Unix(1_800_000_000, 5)
	join := func(capability string, after time.Duration) int64 {
		t.Helper()
		second, ok := h.join(capability, base.Add(after), 4)
		if !ok {
			t.Fatal("refused below the limit")
		}
		return second
	}
	check := func(after time.Duration, want ...HeldStatus) {
		t.Helper()
		if diff := cmp.Diff(want, h.list(base.Add(after)), cmp.Comparer(func(a, b time.Duration) bool { return a.Truncate(time.Second) == b.Truncate(time.Second) })); diff != "" {
			t.Errorf("after %v: (-want +got)\n%s", after, diff)
		}
	}
	if h.oldest(base) != 0 || len(h.list(base)) != 0 {
		t.Error("something is held at the beginning")
	}
	b1 := join("b", 0)
	a1 := join("a", 2*time.Second)
	b2 := join("b", 3*time.Second)
	back := join("b", time.Second) // the clock was set back
	if _, ok := h.join("c", base, 4); ok {
		t.Error("a fifth is held, with a limit of 4")
	}
	check(10*time.Second, HeldStatus{Capability: "b", Tasks: 3, OldestFor: 10 * time.Second}, HeldStatus{Capability: "a", Tasks: 1, OldestFor: 8 * time.Second})
	h.leave("b", b1)
	check(10*time.Second, HeldStatus{Capability: "a", Tasks: 1, OldestFor: 8 * time.Second}, HeldStatus{Capability: "b", Tasks: 2, OldestFor: 7 * time.Second})
	h.leave("b", back)
	h.leave("a", a1)
	check(10*time.Second, HeldStatus{Capability: "b", Tasks: 1, OldestFor: 7 * time.Second})
	h.leave("b", b2)
	if got := h.list(base); len(got) != 0 {
		t.Errorf("held at the end: %v", got)
	}
	if h.count() != 0 {
		t.Errorf("%d are held at the end", h.count())
	}
}

// TestHeldTasksBound: tasks that come and go while one stays leave nothing behind.
func TestHeldTasksBound(t *testing.T) {
	t.Parallel()
	var h heldTasks
	if _, ok := h.join("a", time.Unix(0, 0), 10); !ok {
		t.Fatal("refused")
	}
	for i := range int64(10_000) {
		second, ok := h.join("a", time.Unix(i+1, 0), 10)
		if !ok {
			t.Fatal("refused")
		}
		h.leave("a", second)
	}
	if n := cap(h.byKey["a"].since); n > 16 {
		t.Errorf("room for %d seconds is kept for one task", n)
	}
	if got := h.oldest(time.Unix(10_000, 0)); got != 10_000*time.Second {
		t.Errorf("the oldest has waited for %v", got)
	}
}

// TestHeldOfRemovedPeer: a peer that comes back finds the tasks that it holds.
func TestHeldOfRemovedPeer(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{MaxWait: time.Hour, Max: 1})
		p := r.tr.peers.Load().peers[0].Peer
		done := r.hold(t.Context(), vtTask("t"))
		for _, peers := range [][]Peer{nil, {p}} {
			if err := r.tr.SetPeers(peers); err != nil {
				t.Fatal(err)
			}
		}
		vtWant(t, "held", r.status().Held, 1)
		r.vtUnsent(r.get(t.Context(), vtTask("u")), "u", ReasonHoldFull)
		r.advertise("cap", 1, "d")
		r.accept("cap", 1, "d")
		done()
		vtWant(t, "held", r.status().Held, 0)
	})
}
