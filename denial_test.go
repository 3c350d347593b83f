package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// vtScoped is a task of the capability "cap" without obligations.
func vtScoped(id, scope string) Task { return Task{ID: id, Capability: "cap", Scope: scope} }

// vtDenied sends a task that the peer denies.
func (r *vtRig) vtDenied(task Task, v fedtest.Verdict) vtResult {
	r.t.Helper()
	v.Deny = true
	r.peer.On(task.ID, fedtest.Decide(v))
	res := r.get(r.t.Context(), task)
	vtWant(r.t, task.ID+": outcome", res.d.Outcome, OutcomeRejected)
	vtWant(r.t, task.ID+": sends", r.peer.Sends(task.ID), 1)
	return res
}

// vtRefused checks that the task is refused locally.
func (r *vtRig) vtRefused(task Task, reason Reason) vtResult {
	r.t.Helper()
	before := r.peer.Sends(task.ID)
	res := r.get(r.t.Context(), task)
	if !errors.Is(res.err, ErrScopeDenied) {
		r.t.Errorf("task %s: %v is not ErrScopeDenied", task.ID, res.err)
	}
	vtWant(r.t, task.ID+": reason", res.d.Reason, reason)
	vtWant(r.t, task.ID+": attempts", res.d.Attempts, 0)
	vtWant(r.t, task.ID+": sends", r.peer.Sends(task.ID), before)
	vtNoTimeout(r.t, task.ID, res.err)
	return res
}

// vtGoes checks that the task is sent, once, and delivered.
func (r *vtRig) vtGoes(task Task) {
	r.t.Helper()
	before := r.peer.Sends(task.ID)
	res := r.get(r.t.Context(), task)
	vtWant(r.t, task.ID+": outcome", res.d.Outcome, OutcomeDelivered)
	vtWant(r.t, task.ID+": sends", r.peer.Sends(task.ID), before+1)
}

func TestDenialNarrows(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := newRig(t, fedtest.Config{}, nil)
		r.advertise("cap", 1, "d1")
		first := r.vtDenied(vtScoped("first", "s1"), fedtest.Verdict{Reason: "SCOPE_NARROWED"})
		if !errors.Is(first.d.Err(), ErrRejected) || first.resp.StatusCode != 403 || first.body == "" {
			t.Errorf("the rejection: %v, status %d, body %q", first.d.Err(), first.resp.StatusCode, first.body)
		}
		vtWant(t, "policy reason", first.d.PolicyReason, "SCOPE_NARROWED")

		again := r.vtRefused(vtScoped("again", "s1"), ReasonDeniedBefore)
		vtWant(t, "its policy reason", again.d.PolicyReason, "SCOPE_NARROWED")
		vtWant(t, "its correlation id", again.d.CorrelationID, first.d.CorrelationID)
		vtWant(t, "denials", r.status().Denials, 1)

		r.vtGoes(vtScoped("other-scope", "s2"))
		r.vtGoes(vtScoped("no-scope", ""))
		r.vtGoes(Task{ID: "other-capability", Capability: "other", Scope: "s1"})
		r.vtGoes(Task{ID: "no-capability", Scope: "s1"})
		vtWant(t, "denials at the peer", r.peer.Engine.Ledger().Denials, 1)
	})
}

func TestDenialEnds(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*vtRig)
		goes   bool
	}{
		"nothing":            {func(*vtRig) {}, false},
		"same advertisement": {func(r *vtRig) { r.advertise("cap", 1, "d1") }, false},
		"epoch moves":        {func(r *vtRig) { r.advertise("cap", 2, "d1") }, true},
		"digest moves":       {func(r *vtRig) { r.advertise("cap", 1, "d2") }, true},
		"just before":        {func(*vtRig) { time.Sleep(15*time.Minute - 1) }, false},
		"HoldOff":            {func(*vtRig) { time.Sleep(15 * time.Minute) }, true},
		"Forget":             {func(r *vtRig) { r.tr.ledger.Forget("b", "cap") }, true},
		"Forget the peer":    {func(r *vtRig) { r.tr.ledger.Forget("b", "") }, true},
		"Forget others":      {func(r *vtRig) { r.tr.ledger.Forget("b", "other"); r.tr.ledger.Forget("c", "") }, false},
		"SetPeers": {func(r *vtRig) {
			if err := r.tr.SetPeers([]Peer{{ID: "b", Origins: []string{r.peer.URL}}}); err != nil {
				r.t.Error(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := newRig(t, fedtest.Config{}, nil)
				r.advertise("cap", 1, "d1")
				r.vtDenied(vtScoped("first", "s"), fedtest.Verdict{})
				row.change(r)
				if row.goes {
					r.vtGoes(vtScoped("later", "s"))
				} else {
					r.vtRefused(vtScoped("later", "s"), ReasonDeniedBefore)
				}
			})
		})
	}
}

func TestDenialHoldOff(t *testing.T) {
	header := func(value string) http.Header { return http.Header{"Retry-After": {value}} }
	for name, row := range map[string]struct {
		holdOff time.Duration
		verdict fedtest.Verdict
		want    time.Duration // zero: not at all
	}{
		"by default":              {0, fedtest.Verdict{}, 15 * time.Minute},
		"configured":              {time.Minute, fedtest.Verdict{}, time.Minute},
		"negative":                {-1, fedtest.Verdict{}, 0},
		"429 and shorter":         {0, fedtest.Verdict{Status: 429, Header: header("30")}, 30 * time.Second},
		"429 and longer":          {time.Minute, fedtest.Verdict{Status: 429, Header: header("120")}, time.Minute},
		"429 and none":            {time.Minute, fedtest.Verdict{Status: 429}, time.Minute},
		"429 and not understood":  {time.Minute, fedtest.Verdict{Status: 429, Header: header("soon")}, time.Minute},
		"429 and overflow":        {time.Minute, fedtest.Verdict{Status: 429, Header: header("9223372037")}, time.Minute},
		"403 with one":            {time.Minute, fedtest.Verdict{Header: header("30")}, time.Minute},
		"429 and negative policy": {-1, fedtest.Verdict{Status: 429, Header: header("30")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := newRig(t, fedtest.Config{}, func(_ *Config, p *Peer) { p.Denial.HoldOff = row.holdOff })
				r.vtDenied(vtScoped("first", "s"), row.verdict)
				vtWant(t, "denials", r.status().Denials, 1)
				if row.want > 0 {
					time.Sleep(row.want - 1)
					r.vtRefused(vtScoped("early", "s"), ReasonDeniedBefore)
					time.Sleep(time.Nanosecond)
				}
				r.vtGoes(vtScoped("late", "s"))
			})
		})
	}
}

// TestDenialBudget: three denials in an hour refuse every further task with a
// capability, until the first of them is an hour old.
func TestDenialBudget(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := newRig(t, fedtest.Config{QuarantineAt: 5}, func(_ *Config, p *Peer) {
			p.Denial = DenialPolicy{Budget: 3, HoldOff: -1}
		})
		for i := range 3 { // at 0, 20 and 40 min
			r.vtDenied(vtScoped(fmt.Sprint("denied", i), ""), fedtest.Verdict{})
			if i < 2 {
				time.Sleep(20 * time.Minute)
			}
		}
		r.vtRefused(Task{ID: "any", Capability: "other", Scope: "new"}, ReasonDenialBudget)
		r.vtGoes(Task{ID: "ordinary"})
		time.Sleep(20*time.Minute - 1)
		r.vtRefused(vtScoped("early", ""), ReasonDenialBudget)
		time.Sleep(time.Nanosecond)
		r.vtGoes(vtScoped("after", ""))
		vtWant(t, "quarantined", r.peer.Engine.Ledger().Quarantined, false)

		r.vtDenied(vtScoped("denied3", ""), fedtest.Verdict{}) // 20, 40 and 60 min count
		r.vtRefused(vtScoped("spent", ""), ReasonDenialBudget)
		time.Sleep(20 * time.Minute)
		r.vtGoes(vtScoped("at80", ""))
	})
}

// vtLedger fails as it is told.
type vtLedger struct {
	denied func() (Denial, bool)
	record func() error
}

func (l vtLedger) Record(context.Context, Denial) error              { return l.record() }
func (l vtLedger) Denied(string, Task, Authorization) (Denial, bool) { return l.denied() }
func (l vtLedger) Forget(string, string)                             {}
func vtNoDenial() (Denial, bool)                                     { return Denial{}, false }
func vtNoRecord() error                                              { return nil }
func vtRecordFails() error                                           { return errors.New("disk full") }
func vtRecordPanics() error                                          { panic("ledger on fire") }
func vtDeniedPanics() (Denial, bool)                                 { panic("ledger on fire") }

func TestDenialLedgerFails(t *testing.T) {
	rig := func(t *testing.T, log *vtLog, l vtLedger) *vtRig {
		return newRig(t, fedtest.Config{}, func(cfg *Config, _ *Peer) { cfg.Denials, cfg.Logger = l, log.logger() })
	}
	t.Run("Denied panics", func(t *testing.T) {
		vtBubble(t, func(t *testing.T) {
			var log vtLog
			r := rig(t, &log, vtLedger{vtDeniedPanics, vtNoRecord})
			r.vtRefused(vtScoped("t", ""), ReasonLedgerFailed)
			r.vtGoes(Task{ID: "ordinary"})
		})
	})
	for name, record := range map[string]func() error{"disk full": vtRecordFails, "ledger on fire": vtRecordPanics} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				var log vtLog
				r := rig(t, &log, vtLedger{vtNoDenial, record})
				res := r.vtDenied(vtScoped("t", ""), fedtest.Verdict{Reason: "NO"})
				vtWant(t, "policy reason", res.d.PolicyReason, "NO")
				vtWant(t, "logged", len(log.lines("level=ERROR", name)), 1)
			})
		})
	}
}

// TestDenialLedgerBounded: a ledger that meets ever new scopes forgets those
// whose time is over.
func TestDenialLedgerBounded(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		ledger := NewDenialLedger()
		for i := range 100_000 {
			now := time.Now()
			err := ledger.Record(t.Context(), Denial{
				Peer: "b", Capability: "cap", Scope: fmt.Sprint(i), At: now, Until: now.Add(time.Minute),
			})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if size := len(ledger.(*memoryLedger).byKey); size > 2048 {
			t.Errorf("%d denials are kept where 60 are alive", size)
		}
		if _, denied := ledger.Denied("b", Task{Capability: "cap", Scope: "99999"}, Authorization{}); !denied {
			t.Error("the latest denial is gone")
		}
	})
}

// TestLateRejection: rejections come in any order. One of an older epoch or another
// digest, or one that holds off for less, does not let a task go that another denies.
func TestLateRejection(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		now := time.Now()
		first := Denial{Peer: "b", Capability: "cap", Scope: "s", Epoch: 2, Digest: "d", At: now, Until: now.Add(time.Minute), TaskID: "first"}
		for name, change := range map[string]func(*Denial){
			"older epoch":   func(d *Denial) { d.Epoch = 1 },
			"other digest":  func(d *Denial) { d.Digest = "e" },
			"shorter":       func(d *Denial) { d.Until = now.Add(time.Second) },
			"over at once":  func(d *Denial) { d.Until = now },
			"as long":       func(*Denial) {},
			"other scope":   func(d *Denial) { d.Scope = "" },
			"other ability": func(d *Denial) { d.Capability = "other" },
		} {
			late := first
			late.TaskID = "late"
			change(&late)
			ledger := NewDenialLedger()
			for _, d := range []Denial{first, late} {
				if err := ledger.Record(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			got, denied := ledger.Denied("b", Task{Capability: "cap", Scope: "s"}, Authorization{Epoch: 2, Digest: "d"})
			if !denied || got != first {
				t.Errorf("%s: denied %v, by %+v", name, denied, got)
			}
		}
	})
}

// A ledger that cannot record a denial is no reason to send the task again.
func TestLedgerThatFailsToRecord(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{false, true} {
		var sends atomic.Int64
		tr := bubbleTransport(t, Config{
			Peers: []Peer{bPeer}, Denials: &failingLedger{panics: panics},
			Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				sends.Add(1)
				return answer(req, 403, http.NoBody, headerPolicyEvaluated, "true"), nil
			}),
		})
		for range 3 {
			_, err := getFrom(t, tr, ContextWithTask(t.Context(), Task{Capability: "c"}))
			if err != nil && !errors.Is(err, ErrScopeDenied) {
				t.Error(err)
			}
		}
		if sends.Load() != 1 {
			t.Errorf("panics %v: sent %d times", panics, sends.Load())
		}
	}
}

type failingLedger struct {
	memoryLedger
	panics bool
}

func (l *failingLedger) Record(context.Context, Denial) error {
	if l.panics {
		panic("no disk")
	}
	return errors.New("no disk")
}
