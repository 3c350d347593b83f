package main

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/fedhttp/fedhttp/fednats"
)

// TestAckTogether: of two operators that acknowledge the same escalation at once, each
// is told whose word is on record.
func TestAckTogether(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t)
	operators := map[string]*fednats.Fleet{}
	for _, by := range []string{"alice", "bob"} {
		operators[by] = f.as(t, "operator", fednats.PartEscalations)
	}
	for n := range 20 {
		f.escalate(t, fmt.Sprint("t", n), nil)
	}
	open, err := f.setup.Escalations(t.Context())
	must(t, err)
	for _, e := range open {
		var together sync.WaitGroup
		begin := make(chan struct{})
		said := map[string]*string{"alice": new(string), "bob": new(string)}
		for by, fleet := range operators {
			together.Go(func() {
				<-begin
				text, err := acknowledge(context.Background(), fleet, e.ID, by)
				if *said[by] = text; err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		together.Wait()
		now, err := f.setup.Escalation(t.Context(), e.ID)
		must(t, err)
		for by, text := range said {
			if (*text == "acknowledged by "+by) != (now.AckedBy == by) {
				t.Errorf("%s is on record, and %s is told %q", now.AckedBy, by, *text)
			}
		}
	}
}
