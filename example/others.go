package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// others is the second epilogue, in none of the figures: the outcomes that the
// incidents do not have, so that each can be seen once.
type others struct {
	outcomes    []fedhttp.Outcome // of the calls, in their order
	sends       int               // by B's request log
	strays      int               // at the server that is no peer of A, by its request log
	escalations int               // by C's request log
}

func (s others) String() string {
	return fmt.Sprintf("%d more calls with fedhttp, in none of the figures above: %d requests to B, %d to a server that is no peer, "+
		"%d escalated to C.", len(s.outcomes), s.sends, s.strays, s.escalations)
}

// maxUndelivered is more calls than it takes to open A's breaker.
const maxUndelivered = 10

// The capabilities of the second epilogue.
const (
	revoked = "archive"  // B has dropped the agreement that A holds
	endless = "forecast" // does not answer before the caller has gone
	failing = "mirror"   // its route at B leads nowhere
	shaky   = "preview"  // B says that its own word cannot be taken
)

// runOthers makes calls until A has met each outcome that it has not met yet.
// What B does is scripted. Everything else is as in the incidents.
func runOthers(ctx context.Context, newClient makeClient) (s others, err error) {
	o := newBoundary()
	defer o.close()
	stranger := fedtest.NewPeer(fedtest.Config{})
	defer stranger.Close()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	a, err := newClient(ctx, o, fail)
	if err != nil {
		return s, err
	}
	defer a.close()

	escalated := 0
	send := func(ctx context.Context, url string, task fedhttp.Task) fedhttp.Decision {
		decision, _ := a.send(ctx, url+"/"+cmp.Or(task.Capability, "tasks")+"/"+task.ID, task)
		s.outcomes = append(s.outcomes, decision.Outcome)
		if decision.Escalated {
			escalated++
		}
		return decision
	}

	send(ctx, stranger.URL, fedhttp.Task{ID: "strayed", Capability: ordinary})
	// Obligations are a capability's: without one they cannot be checked.
	send(ctx, o.b.URL, fedhttp.Task{ID: "unnamed", Obligations: obligations})

	// A holds an agreement, B does not, and runs the task under its default.
	key := fedhttp.PolicyKey{Peer: orgB, Capability: revoked, Epoch: 1}
	digest := fedtest.Digest(obligations)
	if err := a.book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: digest}); err != nil {
		return s, err
	}
	a.book.Accept(fedhttp.Policy{PolicyKey: key, Digest: digest, Terms: obligations})
	send(ctx, o.b.URL, fedhttp.Task{ID: "forgotten", Capability: revoked, Obligations: obligations})

	// The caller gives up while B is at it.
	calling, giveUp := context.WithCancel(ctx)
	defer giveUp()
	hang := fedtest.Hang()
	o.b.On("/"+endless+"/abandoned", func(w http.ResponseWriter, r *http.Request) {
		giveUp()
		hang(w, r)
	})
	send(calling, o.b.URL, fedhttp.Task{ID: "abandoned", Capability: endless})

	// A failure that B's routing layer owns up to, while B is degraded.
	o.b.On("/"+shaky+"/doubtful", fedtest.Raw(http.StatusServiceUnavailable, http.Header{
		fedtest.HeaderDegraded: {"true"}, fedtest.HeaderPolicyEvaluated: {"false"}, fedtest.HeaderCorrelationID: {"90000001"},
	}, ""))
	send(ctx, o.b.URL, fedhttp.Task{ID: "doubtful", Capability: shaky})

	// B's routing layer fails, says so, and goes on failing after the refresh,
	// until A's breaker opens. The one call more is the one that is not sent.
	o.b.Otherwise(fedtest.RouteDrop(http.StatusServiceUnavailable))
	for n := range maxUndelivered {
		task := fedhttp.Task{ID: fmt.Sprintf("undelivered-%d", n), Capability: failing}
		if send(ctx, o.b.URL, task).Outcome == fedhttp.OutcomePeerUnavailable {
			break
		}
	}
	o.awaitEscalations(ctx, escalated)
	s.sends, s.strays = o.b.Routing.LedgerOf(orgA).Requests, len(stranger.Routing.Log())
	s.escalations = o.received(escalationsPath)
	return s, context.Cause(ctx)
}
