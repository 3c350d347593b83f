package fedhttp

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestStatus follows one peer through all that its status shows.
func TestStatus(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		failing := false
		var issued, expires time.Time
		r := newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
			p.Receipt = IgnoreReceipt
			p.Denial = DenialPolicy{Budget: 3, Window: time.Minute, HoldOff: -1}
			p.Breaker = BreakerPolicy{Failures: 2, OpenFor: time.Minute}
			issued, expires = time.Now(), time.Now().Add(time.Hour)
			cfg.Anchors = anchorFunc(func(context.Context, string) (Anchor, error) {
				if failing {
					return Anchor{}, errors.New("down\nfor now")
				}
				return Anchor{Version: "1", IssuedAt: issued, ExpiresAt: expires}, nil
			})
		})
		want := PeerStatus{ID: "b", Origins: []string{r.peer.URL}, DenialsLeft: 3, Breaker: "closed"}
		check := func(when string) {
			t.Helper()
			if diff := cmp.Diff(want, r.status(), cmpopts.EquateApproxTime(0)); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", when, diff)
			}
		}
		check("before the first call")

		r.get(t.Context(), Task{ID: "first"})
		want.AnchorVersion, want.AnchorIssuedAt, want.AnchorExpiresAt = "1", issued, expires
		due, _ := r.state().anchors.planned()
		want.AnchorDueAt = due
		if early := time.Until(due); early > 30*time.Minute || early < 27*time.Minute {
			t.Errorf("the next fetch is due in %v, of an hour's life", early)
		}
		check("after a call")

		for _, id := range []string{"d1", "d2"} {
			r.peer.On(id, fedtest.Deny("NARROWED"))
			r.get(t.Context(), Task{ID: id, Capability: "cap"})
		}
		time.Sleep(10 * time.Second)
		want.Denials, want.DenialsLeft, want.AnchorAge = 2, 1, 10*time.Second
		check("after two denials")
		denials := r.tr.RecentDenials()
		if len(denials) != 2 || denials[0].TaskID != "d2" || denials[1].TaskID != "d1" || denials[0].PolicyReason != "NARROWED" {
			t.Errorf("denials: %+v", denials)
		}

		r.advertise("cap", 4, "d4")
		done := make(chan vtResult)
		for range 2 {
			go func() { done <- r.get(t.Context(), vtTask("held")) }()
			time.Sleep(5 * time.Second)
		}
		want.Held, want.HeldTasks, want.AnchorAge = 2, []HeldStatus{{Capability: "cap", Tasks: 2, OldestFor: 10 * time.Second, Epoch: 4, Digest: "d4"}}, 20*time.Second
		check("with two held tasks")
		r.accept("cap", 4, "d4")
		<-done
		<-done
		want.Held, want.HeldTasks = 0, nil
		check("with none")

		time.Sleep(time.Minute)
		want.DenialsLeft, want.AnchorAge = 3, 80*time.Second
		check("once the denials left the window")

		for _, id := range []string{"a1", "a2"} {
			r.peer.On(id, fedtest.Raw(403, http.Header{"X-Correlation-Id": {"c-" + id}}, ""))
			r.get(t.Context(), Task{ID: id})
		}
		want.Breaker, want.Degraded, want.BreakerRetryAt = "open", true, time.Now().Add(time.Minute)
		want.LastEscalationAt = time.Now()
		check("with an open breaker")
		escalations := r.tr.RecentEscalations()
		if len(escalations) != 2 || escalations[0].Decision.CorrelationID != "c-a2" || escalations[1].Decision.CorrelationID != "c-a1" {
			t.Errorf("escalations: %+v", escalations)
		}

		failing = true
		r.state().anchors.kick(time.Second)
		time.Sleep(5 * time.Second)
		got := r.status()
		vtWant(t, "error", got.AnchorError, `down\nfor now`)
		vtWant(t, "version", got.AnchorVersion, "1")
	})
}
