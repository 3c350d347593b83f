package main

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fednats"
	"github.com/fedhttp/fedhttp/fedtest"
)

// The work of each replica while one server of the fleet is away: tasks under the
// policy that was agreed and under one that was not, tasks that B denies, each in
// a scope of its own, and tasks whose answers tell nothing, which operators have
// to see.
const (
	outageAgreed   = 20
	outageUnagreed = 5
	outageScopes   = 3
	outageUnsigned = 5

	unsigned = "unsigned" // what B answers without a signal
)

// outageFigures is what that left in B's books, and on record in the fleet.
type outageFigures struct {
	RightPolicy     int `json:"right_policy"`
	Pending         int `json:"pending"`
	Spooled         int `json:"spooled"`
	Lost            int `json:"lost"`
	UnsignedAnswers int `json:"unsigned_answers"`
	EscalatedOnce   int `json:"escalated_once"`
	Escalations     int `json:"escalations"`
	Denials         int `json:"denials"`
	DeniedAgain     int `json:"denied_again"`
	RefusedAgain    int `json:"refused_locally"`
	// EscalationsKept are on record after the restart.
	EscalationsKept int `json:"escalations_after_restart"`
}

// outage is what happens to a fleet of which one server is killed. That of one
// replica has none to lose: it does the same work with its server there.
type outage struct {
	f outageFigures

	replicas int
	answered map[string]bool // the correlation ids that B gave
}

func (x *outage) play(ctx context.Context, r *fleetRun, t *fleetTimes) error {
	x.replicas = r.n
	last := r.replicas[r.n-1]
	began := time.Now()
	if r.n > 1 {
		if err := r.cluster.servers[r.n-1].kill(); err != nil {
			return err
		}
		if err := r.await(ctx, "the connection to the server ends", func() bool { return !last.fleet.Status().Connected }); err != nil {
			return err
		}
	}
	if err := x.work(ctx, r); err != nil {
		return err
	}
	if r.n > 1 {
		s := last.fleet.Status()
		x.f.Spooled = s.Denials.Waiting + s.Escalations.Waiting
	}
	if err := r.cluster.start(ctx); err != nil {
		return err
	}
	t.ServerAway, began = elapsed(time.Since(began)), time.Now()
	// If they do not come, what follows counts that.
	await(ctx, patience, func() bool {
		return r.every(func(one *replica) bool {
			s := one.fleet.Status()
			return s.Denials.Waiting+s.Escalations.Waiting+s.Unresolved.Waiting == 0
		})
	})
	t.WritesArrived = elapsed(time.Since(began))
	for _, one := range r.replicas {
		s := one.fleet.Status()
		x.f.Lost += int(s.Denials.Lost + s.Escalations.Lost + s.Unresolved.Lost)
	}
	await(ctx, patience, func() bool { return r.every(x.knows) })
	t.AllKnown = elapsed(time.Since(began))
	x.meetAgain(ctx, r)
	return x.count(ctx, r)
}

// work has all replicas work, and returns when what they have to tell is with the
// fleet or in the spool.
func (x *outage) work(ctx context.Context, r *fleetRun) error {
	handed := func() (n uint64) {
		for _, one := range r.replicas {
			s := one.fleet.Status()
			for _, spool := range []fednats.SpoolStatus{s.Denials, s.Escalations} {
				n += uint64(spool.Waiting) + spool.Published + spool.Lost //nolint:gosec // a count
			}
		}
		return n
	}
	before, denials, ran := handed(), r.denials(), r.ran(fleetOffers[0].Capability)
	for i := range r.replicas {
		for k := range outageUnsigned {
			r.o.b.On(fmt.Sprintf("/%s/unsigned-%d-%d", unsigned, i+1, k),
				fedtest.Hiding(fedtest.SignalsTelling, fedtest.RouteDrop(http.StatusForbidden)))
		}
	}
	var sending sync.WaitGroup
	sending.Go(func() {
		r.sendAll(ctx, "away", outageAgreed, fleetCalls, fedhttp.Task{Capability: fleetOffers[0].Capability, Obligations: obligations})
	})
	sending.Go(func() {
		x.f.Pending = r.sendAll(ctx, "unagreed", outageUnagreed, fleetCalls, fedhttp.Task{
			Capability: fleetOffers[1].Capability, Obligations: obligations, PolicyDeadline: time.Now().Add(200 * time.Millisecond),
		}).pending
	})
	sending.Go(func() { r.sendAll(ctx, "unsigned", outageUnsigned, fleetCalls, fedhttp.Task{Capability: unsigned}) })
	for i, one := range r.replicas {
		sending.Go(func() {
			for k := range outageScopes {
				_, _ = r.send(ctx, one, outageDenied(fmt.Sprint("denied-", k), i, k))
			}
		})
	}
	sending.Wait()
	x.f.Denials, x.f.RightPolicy = r.denials()-denials, r.ran(fleetOffers[0].Capability)-ran-r.wrongPolicy()
	want := before + uint64(r.n*(outageUnsigned+outageScopes)) //nolint:gosec // a count
	return r.await(ctx, "what there is to tell is handed over", func() bool { return handed() == want })
}

// outageDenied is a task of the k-th scope that only replica i meets.
func outageDenied(name string, i, k int) fedhttp.Task {
	return fedhttp.Task{ID: fmt.Sprintf("%s-%d", name, i+1), Capability: narrowed, Scope: fmt.Sprintf("outage-%d-%d", i+1, k)}
}

// count compares what B answered without a signal with what is on record.
func (x *outage) count(ctx context.Context, r *fleetRun) error {
	x.answered = map[string]bool{}
	for _, e := range r.o.b.Routing.Log() {
		if e.Capability == unsigned {
			x.f.UnsignedAnswers++
			x.answered[e.CorrelationID] = true
		}
	}
	stored, err := storedEscalations(ctx, r.replicas[0].fleet)
	if err != nil {
		return err
	}
	for id, n := range stored {
		x.f.Escalations += n
		if n == 1 && x.answered[id] {
			x.f.EscalatedOnce++
		}
	}
	return nil
}

// keep counts what is on record after the restart.
func (x *outage) keep(stored map[string]int) {
	for id, n := range stored {
		if x.answered[id] {
			x.f.EscalationsKept += n
		}
	}
}

// knows tells whether a replica knows of all denials that the others have met.
func (x *outage) knows(one *replica) bool {
	for i := range x.replicas {
		for k := range outageScopes {
			if !one.knowsDenial(outageDenied("", i, k)) {
				return false
			}
		}
	}
	return true
}

// meetAgain has every replica send a task of each scope that another has met.
func (x *outage) meetAgain(ctx context.Context, r *fleetRun) {
	denials := r.denials()
	var t tally
	for n, one := range r.replicas {
		for i := range r.n {
			for k := range outageScopes {
				if i != n {
					_, err := r.send(ctx, one, outageDenied(fmt.Sprintf("again-%d-%d", n+1, k), i, k))
					t.count(err)
				}
			}
		}
	}
	x.f.DeniedAgain, x.f.RefusedAgain = r.denials()-denials, t.refused
}
