package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fedhttp/fedhttp"
)

// patience is how long a run waits for what a fleet promises, before it goes on to
// count that it has not come.
const patience = 30 * time.Second

// await reports whether the condition came within a time.
func await(ctx context.Context, within time.Duration, condition func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// await fails where there is no use in going on without the condition.
func (r *fleetRun) await(ctx context.Context, what string, condition func() bool) error {
	if await(ctx, patience, condition) {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("not within %v: %s", patience, what)
}

func (r *fleetRun) every(condition func(*replica) bool) bool {
	for _, one := range r.replicas {
		if !condition(one) {
			return false
		}
	}
	return true
}

func (r *fleetRun) send(ctx context.Context, one *replica, task fedhttp.Task) (fedhttp.Decision, error) {
	return one.send(ctx, r.o.b.URL+"/"+task.Capability+"/"+task.ID, task)
}

// tally is how many tasks were not sent, by A's own word.
type tally struct{ refused, pending int }

// sendAll sends tasks that are alike over every replica, so many of each at a time.
// What becomes of those that are sent is counted by B.
func (r *fleetRun) sendAll(ctx context.Context, name string, tasks, atATime int, like fedhttp.Task) (t tally) {
	var mu sync.Mutex
	var work sync.WaitGroup
	for i, one := range r.replicas {
		left := make(chan int, tasks)
		for k := range tasks {
			left <- k
		}
		close(left)
		for range atATime {
			work.Go(func() {
				for k := range left {
					task := like
					task.ID = fmt.Sprintf("%s-%d-%d", name, i+1, k)
					_, err := r.send(ctx, one, task)
					mu.Lock()
					t.count(err)
					mu.Unlock()
				}
			})
		}
	}
	work.Wait()
	return t
}

func (t *tally) count(err error) {
	switch {
	case errors.Is(err, fedhttp.ErrScopeDenied):
		t.refused++
	case errors.Is(err, fedhttp.ErrPolicyUnresolved):
		t.pending++
	}
}

// denials is what B's policy engine holds against A.
func (r *fleetRun) denials() int { return r.o.b.Engine.LedgerOf(orgA).Denials }

// ran is how many tasks of a capability B has run, each counted once.
func (r *fleetRun) ran(capability string) int {
	ran := map[string]bool{}
	for _, e := range r.o.b.Engine.Log() {
		if e.Capability == capability && e.Verdict == "allow" {
			ran[e.Task] = true
		}
	}
	return len(ran)
}

// sent is how many requests for a capability have reached B.
func (r *fleetRun) sent(capability string) (n int) {
	for _, e := range r.o.b.Routing.Log() {
		if e.Capability == capability {
			n++
		}
	}
	return n
}

// wrongPolicy is how many of the tasks that demand a policy B has run under another.
func (r *fleetRun) wrongPolicy() (n int) {
	for _, e := range r.o.b.Engine.Log() {
		for _, offer := range fleetOffers {
			if e.Capability == offer.Capability && e.Verdict == "allow" && e.RanDigest != offer.Digest {
				n++
			}
		}
	}
	return n
}
