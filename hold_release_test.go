package fedhttp

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestReleaseRate: a key that resolves lets its tasks go one at a time, at exact
// times. A revocation stops those that wait for their turn, and the key that
// resolves again begins anew.
func TestReleaseRate(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := newRig(t, fedtest.Config{}, func(_ *Config, p *Peer) { p.Hold.ReleaseRate, p.Receipt = 2, IgnoreReceipt })
		for _, capability := range []string{"cap", "other"} {
			r.advertise(capability, 1, "d1")
		}
		other := Task{ID: "other", Capability: "other", Obligations: Terms{"residency": "eu"}}
		var tasks []Task
		for i := range 8 {
			tasks = append(tasks, vtTask(string(rune('a'+i))))
		}
		done := r.hold(t.Context(), append(tasks, other)...)
		sent := func() (at []time.Duration) {
			synctest.Wait()
			for _, e := range r.peer.Routing.Log() {
				if e.Capability == "cap" {
					at = append(at, e.Time.Sub(r.begin))
				}
			}
			return at
		}

		time.Sleep(10 * time.Second)
		r.accept("cap", 1, "d1") // 10, 10.5, 11
		time.Sleep(1200 * time.Millisecond)
		vtWant(t, "held", r.status().Held, 6)
		r.book.Revoke(vtKey("cap", 1), "d1")
		time.Sleep(8800 * time.Millisecond)
		vtWant(t, "sent before the revocation", len(sent()), 3)
		vtWant(t, "held", r.status().Held, 6)
		r.accept("cap", 1, "d1") // 20, 20.5, 21, 21.5, 22
		time.Sleep(time.Second)
		r.accept("other", 1, "d1") // has a pace of its own: 21

		for i, res := range done() {
			if res.d.Outcome != OutcomeDelivered {
				t.Errorf("task %d: %v", i, res.err)
			}
		}
		want := []time.Duration{10000, 10500, 11000, 20000, 20500, 21000, 21500, 22000}
		for i, at := range sent() {
			if i >= len(want) || at != want[i]*time.Millisecond {
				t.Errorf("send %d at %v, want %v", i, at, want)
			}
		}
		vtWant(t, "sends", len(sent()), len(want))
		log := r.peer.Routing.Log()
		for _, e := range log {
			if e.Capability == "other" {
				vtWant(t, "other key sent at", e.Time.Sub(r.begin), 21*time.Second)
			}
		}
		vtWant(t, "requests", len(log), len(want)+1)
	})
}

// TestReleaseRateAbandoned: turns that nobody will take any more, since their
// tasks went back to being held, do not delay the next release.
func TestReleaseRateAbandoned(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := newRig(t, fedtest.Config{}, func(_ *Config, p *Peer) { p.Hold.ReleaseRate, p.Receipt = 1, IgnoreReceipt })
		r.advertise("cap", 1, "d1")
		var tasks []Task
		for i := range 20 {
			tasks = append(tasks, vtTask(string(rune('a'+i))))
		}
		done := r.hold(t.Context(), tasks...)
		r.accept("cap", 1, "d1") // one goes at 0, 1 and 2 s
		time.Sleep(2500 * time.Millisecond)
		r.book.Revoke(vtKey("cap", 1), "d1")
		time.Sleep(2500 * time.Millisecond)
		r.accept("cap", 1, "d1") // 17 are left, and the last one goes at 5+16 s
		done()
		vtWant(t, "requests", r.peer.Routing.Ledger().Requests, 20)
		vtWant(t, "the last is sent at", r.elapsed(), 21*time.Second)
	})
}

// TestReleaseRateWithinDeadline: a turn that comes after the policy deadline is
// none.
func TestReleaseRateWithinDeadline(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := newRig(t, fedtest.Config{}, func(_ *Config, p *Peer) { p.Hold.ReleaseRate, p.Receipt = 1, IgnoreReceipt })
		r.advertise("cap", 1, "d1")
		var tasks []Task
		for i := range 10 {
			task := vtTask(string(rune('a' + i)))
			task.PolicyDeadline = time.Now().Add(5 * time.Second)
			tasks = append(tasks, task)
		}
		done := r.hold(t.Context(), tasks...)
		time.Sleep(2 * time.Second)
		r.accept("cap", 1, "d1") // turns at 2, 3, 4, and at 5, when the deadline wins
		late := 0
		for i, res := range done() {
			if res.err != nil {
				late++
				r.vtUnsent(res, tasks[i].ID, ReasonPolicyDeadline)
				vtWant(t, "at", res.at, 5*time.Second)
			}
		}
		vtWant(t, "late", late, 7)
		vtWant(t, "requests", r.peer.Routing.Ledger().Requests, 3)
	})
}
