package fedhttp

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A peer that needs an anchor gets no resend under one that expired meanwhile.
func TestRequiredAnchorExpiresBeforeTheResend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sends atomic.Int64
		p := bPeer
		p.RequireAnchor = true
		p.Retry = RetryPolicy{MinBackoff: 3 * time.Second, MaxBackoff: 3 * time.Second}
		tr := bubbleTransport(t, Config{
			Peers: []Peer{p},
			Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				sends.Add(1)
				return answer(req, 403, http.NoBody, headerPolicyEvaluated, "false"), nil
			}),
			Anchors: anchorFunc(func(context.Context, string) (Anchor, error) {
				return Anchor{Version: "1", ExpiresAt: time.Now().Add(2 * time.Second)}, nil
			}),
		})
		resp, err := getFrom(t, tr, t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d, _ := DecisionFromResponse(resp); d.Reason != ReasonAnchorExpired || sends.Load() != 1 {
			t.Errorf("%v after %d sends", d.Reason, sends.Load())
		}
	})
}

// An anchor without times does not make room for one that was left behind.
func TestAnchorRollbackInTwoSteps(t *testing.T) {
	t.Parallel()
	now := time.Now()
	k := &anchorKeeper{peer: "b"}
	for _, step := range []struct {
		anchor Anchor
		taken  bool
	}{
		{Anchor{Version: "5", IssuedAt: now}, true},
		{Anchor{Version: "?"}, true},
		{Anchor{Version: "1", IssuedAt: now.Add(-time.Hour)}, false},
	} {
		if _, err := k.take(step.anchor, now); err == nil != step.taken {
			t.Errorf("version %s: %v, taken should be %v", step.anchor.Version, err, step.taken)
		}
	}
}
