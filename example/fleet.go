package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fednats"
	"github.com/fedhttp/fedhttp/fedtest"
)

// More than one instance of A, all with the same work: once each for itself, and
// once as a fleet. They meet a denial, a rotated anchor and a policy that is not
// agreed yet, and in the end all is started anew. (fleetoutage.go is what happens
// to a fleet alone.)
const (
	maxFleet   = 9
	fleetTasks = 20 // of each replica, in each step
	fleetCalls = 4  // of each replica at a time; where B denies them, one after the other
)

// The policies that B offers. The first is negotiated, the second never is.
var fleetOffers = [2]fedtest.Advertisement{fleetOffer("dataset-01"), fleetOffer("dataset-02")}

func fleetOffer(capability string) fedtest.Advertisement {
	terms := map[string]string{"output-licensing": "redistribution-permitted", "dataset": capability}
	return fedtest.Advertisement{Capability: capability, Epoch: 1, Digest: fedtest.Digest(terms), Terms: terms}
}

// fleetFigures is what the replicas' work left in the peers' books.
type fleetFigures struct {
	Denials        int `json:"denials"`
	Refused        int `json:"refused_locally"`
	Dropped        int `json:"dropped"` // for the stale anchor
	AnchorFetches  int `json:"anchor_fetches"`
	Recovered      int `json:"recovered"`
	Negotiations   int `json:"negotiations"`
	Released       int `json:"released"`
	DeniedAnew     int `json:"denials_after_restart"`
	RefusedAnew    int `json:"refused_locally_after_restart"`
	NegotiatedAnew int `json:"negotiations_after_restart"`
	RanAnew        int `json:"run_after_restart"`
	WrongPolicy    int `json:"wrong_policy"`
	SentUnagreed   int `json:"sent_without_agreement"`
	ServersStarted int `json:"servers_started"`

	escalations map[string]int // on record after the restart, by correlation id
}

// fleetTimes is how long a fleet took.
type fleetTimes struct {
	DenialKnown   elapsed `json:"denial_known"`   // to all replicas, after its answer
	LastReleased  elapsed `json:"last_released"`  // of the held tasks, after the acceptance was written
	ServerAway    elapsed `json:"server_away"`    // the one that was killed
	WritesArrived elapsed `json:"writes_arrived"` // all of them, after it was back
	AllKnown      elapsed `json:"all_known"`      // to all replicas, likewise
	Restart       elapsed `json:"restart"`        // of everything, until the replicas know what they knew
}

// fleetRun is the replicas and their peers.
type fleetRun struct {
	o        *organisations
	n        int
	cluster  *cluster // nil: the replicas are alone
	fail     func(error)
	replicas []*replica
	closing  []func() // of the replicas

	agreeing chan struct{} // closed: B's desk comes to a result
}

// runFleet runs n replicas, each alone, or as a fleet where dir is where to store
// what they share. A server of a fleet is away in between. tell is told of each step.
func runFleet(ctx context.Context, n int, dir string, x *outage, tell func(step string)) (f fleetFigures, t fleetTimes, err error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r := &fleetRun{n: n, fail: fail, agreeing: make(chan struct{})}
	r.o = openOrganisations(fedtest.Config{ChecksAnchor: isGated, Policy: narrow}, r.negotiationTakes(ctx))
	defer r.o.close()
	if dir != "" {
		tell("its servers")
		if r.cluster, err = newCluster(ctx, n, dir); err != nil {
			return f, t, err
		}
		defer r.cluster.stop()
	}
	defer r.close()
	if err := r.open(ctx); err != nil {
		return f, t, err
	}
	steps := []fleetStep{
		{"the day before", func(ctx context.Context) error { return r.begin(ctx) }},
		{"a denial", func(ctx context.Context) error { return r.meetDenial(ctx, &f, &t) }},
		{"a rotation", func(ctx context.Context) error { return r.rotate(ctx, &f) }},
		{"an acceptance", func(ctx context.Context) error { return r.agree(ctx, &f, &t) }},
	}
	if r.shared() {
		steps = append(steps, fleetStep{"a server is killed", func(ctx context.Context) error { return x.play(ctx, r, &t) }})
	}
	steps = append(steps, fleetStep{"all restart", func(ctx context.Context) error { return r.restart(ctx, &f, &t) }})
	for _, s := range steps {
		tell(s.title)
		if err = s.run(ctx); err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			fail(err) // what still waits for something gives up
			return f, t, fmt.Errorf("%s: %w", s.title, err)
		}
	}
	f.WrongPolicy, f.SentUnagreed = r.wrongPolicy(), r.sent(fleetOffers[1].Capability)
	if r.shared() {
		f.ServersStarted = r.cluster.started
	}
	return f, t, nil
}

type fleetStep struct {
	title string
	run   func(context.Context) error
}

// fleetCopies is how many servers keep what a fleet of n stores.
func fleetCopies(n int) int {
	if n < 3 {
		return 1 // of two copies neither is a majority
	}
	return 3
}

// negotiationTakes has B's desk wait until every task is held.
func (r *fleetRun) negotiationTakes(ctx context.Context) func(string) time.Duration {
	return func(string) time.Duration {
		select {
		case <-r.agreeing:
		case <-ctx.Done():
		}
		return 0
	}
}

func (r *fleetRun) shared() bool { return r.cluster != nil }

// open makes the replicas.
func (r *fleetRun) open(ctx context.Context) error {
	for i := range r.n {
		var fleet *fednats.Fleet
		if r.shared() {
			part, closePart, err := openFleet(ctx, r.cluster.servers[i], fleetCopies(r.n))
			if err != nil {
				return fmt.Errorf("replica %d: %w", i+1, err)
			}
			fleet, r.closing = part, append(r.closing, closePart)
		}
		one, err := newReplica(ctx, r.o, fleet, r.fail)
		if err != nil {
			return fmt.Errorf("replica %d: %w", i+1, err)
		}
		r.replicas = append(r.replicas, one)
		r.closing = append(r.closing, one.close)
	}
	return nil
}

// close ends the replicas, each before its part in the fleet.
func (r *fleetRun) close() {
	for len(r.closing) > 0 {
		last := len(r.closing) - 1
		r.closing[last]()
		r.closing = r.closing[:last]
	}
	r.replicas = nil
}

// begin is the day before: every replica holds B's anchor, and knows what B offers.
func (r *fleetRun) begin(ctx context.Context) error {
	for _, offer := range fleetOffers {
		r.o.b.Advertise(offer)
	}
	return r.learn(ctx)
}

// learn has the replicas read what B offers: each where they are alone, else one.
func (r *fleetRun) learn(ctx context.Context) error {
	for i, one := range r.replicas {
		var err error
		if i > 0 && r.shared() {
			err = getJSON(ctx, one.Client, r.o.b.CapabilitiesURL(), nil)
		} else {
			err = one.learn(ctx, r.o)
		}
		if err != nil {
			return fmt.Errorf("replica %d: %w", i+1, err)
		}
	}
	return r.await(ctx, "the replicas know what B offers", func() bool {
		return r.every(func(one *replica) bool { return one.knowsOffer(fleetOffers[0]) && one.knowsOffer(fleetOffers[1]) })
	})
}

// meetDenial has one replica meet a denial, and then all of them send tasks of the
// same scope.
func (r *fleetRun) meetDenial(ctx context.Context, f *fleetFigures, t *fleetTimes) error {
	task := fedhttp.Task{ID: "first", Capability: narrowed, Scope: "delegation-1"}
	_, _ = r.send(ctx, r.replicas[0], task) // B's ledger says what became of it
	if r.shared() {
		start := time.Now()
		if err := r.await(ctx, "the replicas know of the denial", func() bool {
			return r.every(func(one *replica) bool { return one.knowsDenial(task) })
		}); err != nil {
			return err
		}
		t.DenialKnown = elapsed(time.Since(start))
	}
	f.Refused = r.sendAll(ctx, "denied", fleetTasks, 1, task).refused
	f.Denials = r.denials()
	return nil
}

// rotate has B rotate its anchor, which all replicas run into.
func (r *fleetRun) rotate(ctx context.Context, f *fleetFigures) error {
	if err := r.o.rotate(); err != nil {
		return err
	}
	r.sendAll(ctx, "rotated", fleetTasks, fleetCalls, fedhttp.Task{Capability: gated})
	f.Recovered, f.AnchorFetches = r.ran(gated), r.o.anchorFetches()
	f.Dropped = r.sent(gated) - f.Recovered
	return nil
}

// agree has tasks held at every replica until their policy is agreed.
func (r *fleetRun) agree(ctx context.Context, f *fleetFigures, t *fleetTimes) error {
	ctx, end := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer end()
	var agreed time.Time
	if r.shared() {
		work.Go(func() { negotiate(ctx, r.o, r.replicas[0].fleet, func() { agreed = time.Now() }, r.fail) })
	}
	task := fedhttp.Task{Capability: fleetOffers[0].Capability, Obligations: obligations}
	var sending sync.WaitGroup
	defer sending.Wait()
	for i, one := range r.replicas {
		for k := range fleetTasks {
			sending.Go(func() {
				task := task
				task.ID = fmt.Sprintf("held-%d-%d", i+1, k)
				_, _ = r.send(ctx, one, task)
			})
		}
	}
	if err := r.await(ctx, "all tasks are held", func() bool {
		return r.every(func(one *replica) bool { return one.held() == fleetTasks })
	}); err != nil {
		end()
		return err
	}
	close(r.agreeing)
	sending.Wait()
	end()
	work.Wait()
	f.Released, f.Negotiations = r.ran(task.Capability), r.o.received(negotiationsPath)
	for _, e := range r.o.b.Routing.Log() {
		if e.Capability == task.Capability && r.shared() {
			t.LastReleased = max(t.LastReleased, elapsed(e.Time.Sub(agreed)))
		}
	}
	return nil
}

// restart starts all anew, the servers of the fleet included, and sends tasks as
// before.
func (r *fleetRun) restart(ctx context.Context, f *fleetFigures, t *fleetTimes) error {
	denials, negotiations, ran := r.denials(), r.o.received(negotiationsPath), r.ran(fleetOffers[0].Capability)
	start := time.Now()
	r.close()
	denied := fedhttp.Task{Capability: narrowed, Scope: "delegation-1"}
	if r.shared() {
		r.cluster.stop()
		if err := r.cluster.start(ctx); err != nil {
			return err
		}
	}
	if err := r.open(ctx); err != nil {
		return err
	}
	if r.shared() {
		// If it does not come, B counts what follows.
		await(ctx, patience, func() bool { return r.every(func(one *replica) bool { return one.knowsDenial(denied) }) })
	} else if err := r.learn(ctx); err != nil {
		return err
	}
	t.Restart = elapsed(time.Since(start))
	if r.shared() {
		stored, err := storedEscalations(ctx, r.replicas[0].fleet)
		if err != nil {
			return err
		}
		f.escalations = stored
	}
	f.RefusedAnew = r.sendAll(ctx, "denied-anew", fleetTasks, 1, denied).refused
	r.sendAll(ctx, "agreed-anew", fleetTasks, fleetCalls, fedhttp.Task{
		Capability: fleetOffers[0].Capability, Obligations: obligations, PolicyDeadline: time.Now().Add(patience),
	})
	f.DeniedAnew, f.NegotiatedAnew = r.denials()-denials, r.o.received(negotiationsPath)-negotiations
	f.RanAnew = r.ran(fleetOffers[0].Capability) - ran
	return nil
}
