package fednats

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

func denial(scope string) fedhttp.Denial {
	now := time.Now()
	return fedhttp.Denial{
		Peer: "org-b", Capability: "summarize", Scope: scope, Epoch: 4, Digest: "sha256:a", TaskID: "t", Status: 403,
		PolicyReason: "no", CorrelationID: "c-1", At: now, Until: now.Add(time.Hour),
	}
}

func denied(l fedhttp.DenialLedger, d fedhttp.Denial) bool {
	got, ok := l.Denied(d.Peer, fedhttp.Task{Capability: d.Capability, Scope: d.Scope}, fedhttp.Authorization{Epoch: d.Epoch, Digest: d.Digest})
	return ok && got.CorrelationID == d.CorrelationID && got.Scope == d.Scope && got.Until.Equal(d.Until)
}

func TestDenials(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	a, b := open(t, s, Config{}).Denials(), open(t, s, Config{}).Denials()
	first, second, binary := denial("s1"), denial("s2"), denial("\xff.*")
	if denied(a, first) || denied(b, first) {
		t.Fatal("denied before")
	}
	for _, d := range []fedhttp.Denial{first, second, binary} {
		must(t, a.Record(t.Context(), d))
		if !denied(a, d) {
			t.Fatal("not denied at once where it was recorded")
		}
		eventually(t, "the other replica knows", func() bool { return denied(b, d) })
	}
	for _, d := range []fedhttp.Denial{
		func() fedhttp.Denial { d := first; d.Epoch++; return d }(),
		func() fedhttp.Denial { d := first; d.Digest += "b"; return d }(),
		denial("s3"), denial(""),
	} {
		if denied(b, d) {
			t.Errorf("%+v is not covered", d)
		}
	}

	// Forgotten, for all; what comes after that counts.
	other := first
	other.Capability = "translate"
	must(t, a.Record(t.Context(), other))
	eventually(t, "the other replica knows", func() bool { return denied(b, other) })
	b.Forget("org-b", "summarize")
	must(t, b.Record(t.Context(), second))
	eventually(t, "the first replica has forgotten", func() bool { return !denied(a, first) && denied(a, second) })
	if denied(b, first) || !denied(b, second) || !denied(a, other) {
		t.Errorf("here: %v, %v, %v; want forgotten, denied, denied", denied(b, first), denied(b, second), denied(a, other))
	}
	late := open(t, s, Config{}).Denials()
	eventually(t, "a replica that starts now knows the same", func() bool { return denied(late, second) && denied(late, other) })
	if denied(late, first) {
		t.Error("what was forgotten is back in a replica that starts now")
	}
	a.Forget("org-b", "")
	eventually(t, "nothing is denied", func() bool { return !denied(b, second) && !denied(b, other) && !denied(late, other) })
}

// TestDenialsShortened: a rejection that lasts less long shortens nothing, for those who
// start later neither.
func TestDenialsShortened(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	a, b := open(t, s, Config{}).Denials(), open(t, s, Config{}).Denials()
	long, short, after := denial("s1"), denial("s1"), denial("s2")
	short.Until = short.At.Add(time.Minute)
	for _, d := range []fedhttp.Denial{long, short, after} { // the last shows that the others have arrived
		must(t, a.Record(t.Context(), d))
	}
	eventually(t, "the other replica knows", func() bool { return denied(b, after) })
	late := open(t, s, Config{}).Denials()
	eventually(t, "a replica that starts now knows", func() bool { return denied(late, after) })
	for name, l := range map[string]fedhttp.DenialLedger{"where it was recorded": a, "elsewhere": b, "later": late} {
		if !denied(l, long) {
			t.Errorf("%s: not denied for as long as before", name)
		}
	}
}

// TestLedgerRevisions: a Forget of another replica ends what came before it, and
// neither what came after nor what nobody else knows of yet; and a bucket that is
// read anew does not have the latter.
func TestLedgerRevisions(t *testing.T) {
	t.Parallel()
	l := &ledger{
		out: newOutbox("denials", 10), refuse: func(_, key string, why error) { t.Errorf("%s: %v", key, why) },
		byKey: make(map[denialKey]heldDenial), names: make(map[string]denialKey), sweep: 1024,
	}
	shared := func(scope string, revision uint64) {
		v := newDenialValue(denial(scope))
		value, err := encode(v)
		must(t, err)
		l.apply(entry{key: v.name(), revision: revision, value: value})
	}
	want := func(what string, scopes ...string) {
		t.Helper()
		for _, scope := range []string{"before", "after", "own"} {
			if got := denied(l, denialIn(l, scope)); got != slices.Contains(scopes, scope) {
				t.Errorf("%s: %s is denied: %v", what, scope, got)
			}
		}
	}
	shared("before", 3)
	shared("after", 5)
	must(t, l.Record(t.Context(), denial("own")))
	want("recorded", "before", "after", "own")
	v := forgetValue{Peer: "org-b", Capability: "summarize", At: time.Now()}
	value, err := encode(v)
	must(t, err)
	l.apply(entry{key: v.name(), revision: 4, value: value})
	want("forgotten", "after", "own")
	l.begin()
	l.end()
	want("read anew, and empty", "own")
	shared("own", 7)
	l.begin()
	l.end()
	want("read anew, and not there any more")
}

// TestDenialsExpire: until Until and not for longer, whatever anybody says later.
func TestDenialsExpire(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	fleet := open(t, s, Config{})
	a, b := fleet.Denials(), open(t, s, Config{}).Denials()
	// A denial that is over before the other replica knows of it says nothing here.
	var d fedhttp.Denial
	for n, known := 0, false; !known; n++ {
		d = denial(fmt.Sprint("s", n))
		d.Until = d.At.Add(1500 * time.Millisecond << n)
		must(t, a.Record(t.Context(), d))
		eventually(t, "denied, or over", func() bool {
			known = denied(b, d)
			return known || time.Now().After(d.Until)
		})
	}
	eventually(t, "over", func() bool { return !denied(b, d) })
	if time.Now().Before(d.Until) || denied(a, d) {
		t.Error("over before its time, or not over where it was recorded")
	}
	eventually(t, "the bucket forgets it", func() bool {
		bucket, err := fleet.bucket(t.Context(), fleet.names.denials())
		must(t, err)
		keys, err := bucket.Keys(t.Context())
		return err != nil && keys == nil
	})
}

// Not parallel: AllocsPerRun counts those of the whole process.
func TestDeniedAllocs(t *testing.T) {
	s := newServer(t, t.TempDir())
	l := open(t, s, Config{}).Denials()
	d := denial("s")
	task, auth := fedhttp.Task{Capability: d.Capability, Scope: d.Scope}, fedhttp.Authorization{Epoch: d.Epoch, Digest: d.Digest}
	measure := func() float64 {
		return testing.AllocsPerRun(1000, func() { _, _ = l.Denied(d.Peer, task, auth) })
	}
	// The server and the client work in the background, so it is the least that counts.
	least := func() float64 {
		n := measure()
		for range 20 {
			n = min(n, measure())
		}
		return n
	}
	if n := least(); n != 0 {
		t.Errorf("empty: %v allocations", n)
	}
	must(t, l.Record(t.Context(), d))
	if n := least(); n != 0 {
		t.Errorf("denied: %v allocations", n)
	}
	// Empty, it takes no lock.
	l.Forget("org-b", "")
	own := l.(*ledger)
	own.mu.Lock()
	defer own.mu.Unlock()
	if denied(l, d) {
		t.Error("denied")
	}
}
