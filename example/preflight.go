package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// The second incident. B advertises capabilities, each with the digest of the
// policy that it offers. To see one is not to have agreed to it: until B and A
// have negotiated, B runs what it gets under its default policy, which is
// internal-reuse-only. A's tasks need more than that. They come as soon as A
// sees a capability.
//
// Some tasks say by when they need their policy. B does not run these under
// its default; it refuses them with POLICY_UNRESOLVED while nothing is agreed.
const (
	capabilities  = 20
	perCapability = 57
	perGossip     = 5 // capabilities that are new in one round of gossip
	inAHurry      = 53

	gossipEvery = 30 * time.Second
	arriveOver  = 30 * time.Second // the tasks of a capability, once it is seen

	medianNegotiation = 4 * time.Minute
	p99Negotiation    = 19 * time.Minute
	// The tasks in a hurry are for negotiations that last longer than slow, and
	// cannot wait for longer than hurry. What lies between keeps the outcome
	// from depending on how busy the machine is.
	slow  = 8 * time.Minute
	hurry = 2 * time.Minute
)

// obligations is what every task demands of the policy that it runs under.
var obligations = fedhttp.Terms{"output-licensing": "redistribution-permitted"}

// preflightFigures is what the second incident left in the peers' books.
type preflightFigures struct {
	Tasks               int `json:"tasks"`
	Sends               int `json:"sends"`
	SentBeforeAgreement int `json:"sent_before_agreement"`
	WrongPolicy         int `json:"wrong_policy"`
	RightPolicy         int `json:"right_policy"`
	Pending             int `json:"pending"`
	CoordinatorSignals  int `json:"coordinator_signals"`
}

// plannedCapability is one capability of B, as the incident has it.
type plannedCapability struct {
	offer       fedtest.Advertisement
	negotiation time.Duration
	hurried     int // how many of its tasks are in a hurry; they come first
}

// planPreflight draws the incident, the same in each run. The negotiations
// follow the log-normal distribution with the incident's median and p99: its
// quantiles, evenly spaced, and in the place of the last one the p99.
func planPreflight() []plannedCapability {
	sigma := math.Log(float64(p99Negotiation)/float64(medianNegotiation)) / normalQuantile(0.99)
	plan := make([]plannedCapability, capabilities)
	for i := range plan {
		p := (float64(i) + 0.5) / capabilities
		if i == capabilities-1 {
			p = 0.99
		}
		plan[i].negotiation = time.Duration(float64(medianNegotiation) * math.Exp(sigma*normalQuantile(p)))
	}
	order := rand.New(rand.NewPCG(2, 0)) //nolint:gosec // an order, not a secret
	order.Shuffle(len(plan), func(i, j int) { plan[i], plan[j] = plan[j], plan[i] })
	var slowOnes []int
	for i := range plan {
		terms := map[string]string{"output-licensing": "redistribution-permitted", "dataset": fmt.Sprintf("set-%02d", i+1)}
		plan[i].offer = fedtest.Advertisement{
			Capability: fmt.Sprintf("dataset-%02d", i+1), Epoch: uint64(i%3 + 1), Digest: fedtest.Digest(terms), Terms: terms,
		}
		if plan[i].negotiation > slow {
			slowOnes = append(slowOnes, i)
		}
	}
	for n := range inAHurry {
		plan[slowOnes[n%len(slowOnes)]].hurried++
	}
	return plan
}

func normalQuantile(p float64) float64 { return math.Sqrt2 * math.Erfinv(2*p-1) }

// preflightRun is one replay of the incident.
type preflightRun struct {
	o      *organisations
	a      *client
	plan   map[string]plannedCapability
	mu     sync.Mutex
	issued map[string]string // the path of each task that A issued, and its capability
	unsent map[string]bool   // those that A itself kept for want of a policy
}

// runPreflight replays the incident with one client. It returns the
// negotiations that took place as well, the shortest first.
func runPreflight(ctx context.Context, newClient makeClient) (f preflightFigures, lasted []time.Duration, err error) {
	plan := planPreflight()
	run := &preflightRun{plan: map[string]plannedCapability{}, issued: map[string]string{}, unsent: map[string]bool{}}
	for _, c := range plan {
		run.plan[c.offer.Capability] = c
	}
	run.o = openOrganisations(fedtest.Config{
		Policy: func(r fedtest.Request) fedtest.Verdict {
			if !r.Agreed && r.Header.Get(headerDeadline) != "" {
				return fedtest.Verdict{Deny: true, Reason: "POLICY_UNRESOLVED"}
			}
			return fedtest.Verdict{}
		},
	}, func(capability string) time.Duration { return scaled(run.plan[capability].negotiation) })
	defer run.o.close()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if run.a, err = newClient(ctx, run.o, fail); err != nil {
		return f, nil, err
	}
	defer run.a.close()

	var background, tasks sync.WaitGroup
	gossiping, stopGossip := context.WithCancel(ctx)
	defer func() {
		stopGossip()
		background.Wait()
	}()
	background.Go(func() { run.o.advertise(gossiping, plan) })
	seen := make(chan string)
	background.Go(func() { gossip(gossiping, run.a, run.o.b.CapabilitiesURL(), seen) })
	for range plan {
		select {
		case capability := <-seen:
			tasks.Go(func() { run.issue(ctx, run.plan[capability]) })
		case <-ctx.Done():
			tasks.Wait()
			return f, nil, context.Cause(ctx)
		}
	}
	tasks.Wait()
	run.count(&f)
	lasted = slices.Sorted(slices.Values(run.o.desk.lasted))
	return f, lasted, context.Cause(ctx)
}

// advertise is B's side of the gossip: in each round, some capabilities are new.
func (o *organisations) advertise(ctx context.Context, plan []plannedCapability) {
	tick := time.NewTicker(scaled(gossipEvery))
	defer tick.Stop()
	for batch := range slices.Chunk(plan, perGossip) {
		for _, c := range batch {
			o.b.Advertise(c.offer)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// issue sends the tasks of a capability as they arrive, each on its own: one
// that is held keeps no other waiting.
func (r *preflightRun) issue(ctx context.Context, c plannedCapability) {
	var sending sync.WaitGroup
	defer sending.Wait()
	seenAt := time.Now()
	for i := range perCapability {
		task := fedhttp.Task{
			ID:         fmt.Sprintf("%s/task-%02d", c.offer.Capability, i),
			Capability: c.offer.Capability, Obligations: obligations,
		}
		if i < c.hurried {
			// Between half of the time and all of it.
			wait := hurry/2 + hurry/2*time.Duration(i)/time.Duration(c.hurried)
			task.PolicyDeadline = seenAt.Add(scaled(wait))
		} else {
			time.Sleep(time.Until(seenAt.Add(scaled(arriveOver) * time.Duration(i-c.hurried) / perCapability)))
		}
		path := "/" + task.ID
		r.mu.Lock()
		r.issued[path] = task.Capability
		r.mu.Unlock()
		sending.Go(func() {
			_, err := r.a.send(ctx, r.o.b.URL+path, task)
			if errors.Is(err, fedhttp.ErrPolicyUnresolved) {
				r.mu.Lock()
				r.unsent[path] = true
				r.mu.Unlock()
			}
		})
	}
}

// count reads the peers' books.
func (r *preflightRun) count(f *preflightFigures) {
	sent, early, ran, wrong, refused := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, e := range r.o.b.Routing.Log() {
		capability, ours := r.issued[e.Task]
		if !ours {
			continue
		}
		f.Sends++
		sent[e.Task] = true
		if !r.o.desk.agreedBefore(capability, e.Time) {
			early[e.Task] = true
		}
	}
	for _, e := range r.o.b.Engine.Log() {
		switch _, ours := r.issued[e.Task]; {
		case !ours:
		case e.Verdict == "deny":
			refused[e.Task] = strings.HasPrefix(e.Reason, "POLICY_UNRESOLVED")
		default:
			ran[e.Task] = true
			if !fedhttp.Terms(e.RanTerms).Grants(obligations) {
				wrong[e.Task] = true
			}
		}
	}
	f.Tasks, f.SentBeforeAgreement, f.WrongPolicy, f.RightPolicy = len(r.issued), len(early), len(wrong), len(ran)-len(wrong)
	for path := range r.issued {
		// Pending is what has not run because its policy was not resolved in
		// time: by B's log, or, where nothing was sent, by A's own word.
		if !ran[path] && (refused[path] || r.unsent[path] && !sent[path]) {
			f.Pending++
		}
	}
	f.CoordinatorSignals = r.o.received(negotiationsPath)
}
