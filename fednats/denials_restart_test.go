package fednats

import (
	"fmt"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// TestDenialsAtStart: once Open has returned, what the fleet knows of denials counts.
func TestDenialsAtStart(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	first := open(t, s, Config{})
	const total = 2000
	for n := range total {
		must(t, first.Denials().Record(t.Context(), denial(fmt.Sprint(n))))
	}
	eventually(t, "published", func() bool { return first.Status().Denials.Published == total })
	second := open(t, s, Config{})
	if n := second.Denials().(*ledger).size.Load(); n != total {
		t.Errorf("%d denials of %d", n, total)
	}
}

// TestDenialsSpooled: a replica that is restarted while the cluster is away still knows
// what it has recorded and forgotten, in this order.
func TestDenialsSpooled(t *testing.T) {
	t.Parallel()
	address, dir := freeAddress(t), t.TempDir()
	cfg := Config{URL: "nats://" + address, Dir: dir, Offline: true}
	f := openAt(t, cfg)
	old, kept := denial("old"), denial("kept")
	old.Capability = "translate"
	must(t, f.Denials().Record(t.Context(), old))
	must(t, f.Denials().Record(t.Context(), kept))
	f.Denials().Forget("org-b", "translate")
	again := old
	again.Scope, again.At = "again", time.Now()
	must(t, f.Denials().Record(t.Context(), again))
	closeFleet(t, f)

	f = openAt(t, cfg)
	if l := f.Denials(); denied(l, old) || !denied(l, kept) || !denied(l, again) {
		t.Errorf("denied: %v, %v, %v; want false, true, true", denied(l, old), denied(l, kept), denied(l, again))
	}
	s := newNetServer(t, t.TempDir(), address)
	eventually(t, "published", func() bool { return f.Status().Denials.Waiting == 0 })
	if l := open(t, s, Config{}).Denials(); denied(l, old) || !denied(l, kept) || !denied(l, again) {
		t.Errorf("the fleet: %v, %v, %v; want false, true, true", denied(l, old), denied(l, kept), denied(l, again))
	}
}

// TestForgetLate: what was said to be forgotten while the cluster was away, or comes
// once more after a restart, ends no denial that was met since.
func TestForgetLate(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f, other := open(t, s, Config{}), open(t, s, Config{})
	before, since := denial("before"), denial("since")
	said := before.At.Add(time.Second)
	since.At = said.Add(time.Second)
	for _, d := range []fedhttp.Denial{before, since} {
		must(t, f.Denials().Record(t.Context(), d))
		eventually(t, "shared", func() bool { return denied(other.Denials(), d) })
	}
	v := forgetValue{Peer: "org-b", At: said.UTC()}
	value, err := encode(v)
	must(t, err)
	_, err = f.js.Publish(t.Context(), bucketSubject(f.names.denials())+v.name(), value)
	must(t, err)
	for _, l := range []fedhttp.DenialLedger{f.Denials(), other.Denials()} {
		eventually(t, "forgotten", func() bool { return !denied(l, before) })
		if !denied(l, since) {
			t.Error("what was met since is forgotten as well")
		}
	}
}
