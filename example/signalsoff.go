package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// signalsOff is the epilogue, in none of the figures: what happens where it
// cannot be told who failed a task.
type signalsOff struct {
	tasks, sends, ambiguous, escalations int
	// Whose the failures were, by the correlation ids that A escalated, looked
	// up by B's operators.
	policy, routing int
}

func (s signalsOff) String() string {
	return fmt.Sprintf("%d more tasks with fedhttp, in none of the figures above: %d requests, %d ambiguous, %d escalated to C. "+
		"By their correlation ids B knows: %d policy, %d routing.", s.tasks, s.sends, s.ambiguous, s.escalations, s.policy, s.routing)
}

// runSignalsOff sends a few tasks of each kind of the first incident to a B
// that signs nothing: a refusal is "403 FederationDenied" with a bare number
// for a correlation id, whoever wrote it. None is sent again, since it might be
// a denial. None is taken as a denial, since it might be the stale anchor. Each
// goes to an operator, who can look its correlation id up.
func runSignalsOff(ctx context.Context, newClient makeClient) (s signalsOff, err error) {
	o := newBoundary()
	defer o.close()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	a, err := newClient(ctx, o, fail)
	if err != nil {
		return s, err
	}
	defer a.close()
	if err := getJSON(ctx, a.Client, o.b.CapabilitiesURL(), nil); err != nil {
		return s, err
	}
	o.b.Rotate()
	o.b.Hide(fedtest.SignalsTelling)

	escalated := 0
	for i := range 6 {
		task := fedhttp.Task{ID: fmt.Sprintf("unsigned-%d", i), Capability: narrowed, Scope: "delegation-1"}
		if i%2 == 1 {
			task.Capability, task.Scope = gated, ""
		}
		decision, err := a.send(ctx, o.b.URL+"/"+task.Capability+"/"+task.ID, task)
		s.tasks++
		if errors.Is(err, fedhttp.ErrBoundary) {
			s.ambiguous++
		}
		if decision.Escalated {
			escalated++
		}
		switch layer, _ := o.b.Author(decision.CorrelationID); layer {
		case fedtest.LayerPolicy:
			s.policy++
		case fedtest.LayerRouting:
			s.routing++
		}
	}
	o.awaitEscalations(ctx, escalated)
	s.sends = o.b.Routing.LedgerOf(orgA).Requests
	s.escalations = o.received(escalationsPath)
	return s, context.Cause(ctx)
}
