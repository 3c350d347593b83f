package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// The first incident. A calls two capabilities of B:
//
//   - enrichment, whose route goes to B's policy engine without a look at A's
//     anchor. B has narrowed it: the six scopes that A's tasks are delegated
//     under are no longer among those that it allows.
//   - records, whose route lies behind a gateway that checks which version of
//     B's anchor the caller holds. B has rotated its anchor since A fetched it,
//     so the gateway drops A's tasks before the policy engine sees them.
//
// The two fail at the same time and look the same. That the routes differ is
// what lets a task reach the policy engine while A's anchor is stale.
const (
	narrowed = "enrichment"
	gated    = "records"
	ordinary = "lookup" // neither: what A calls on any other day

	allowedScope = "delegation-7" // what B has narrowed enrichment to

	deniedTasks   = 120
	droppedTasks  = 80
	deniedScopes  = 6
	quarantineAt  = 150
	boundaryCalls = 8 // A's tasks at a time
)

// boundaryFigures is what the first incident left in the peers' books.
type boundaryFigures struct {
	Tasks                 int  `json:"tasks"`
	PolicyEvaluations     int  `json:"policy_evaluations"`
	Denials               int  `json:"denials"`
	MaxSendsPerDeniedTask int  `json:"max_sends_per_denied_task"`
	RefusedLocally        int  `json:"refused_locally"`
	Recovered             int  `json:"recovered"`
	AnchorRefreshes       int  `json:"anchor_refreshes"`
	Escalations           int  `json:"escalations"`
	Quarantined           bool `json:"quarantined"`
}

type boundaryExtras struct {
	sends, dropped int    // at B's routing layer, and those that it answered itself
	brokenOff      int    // handshakes of A with B's gateway
	nextTask       string // what became of an ordinary task afterwards
}

// newBoundary opens the organisations of the first incident.
func newBoundary() *organisations {
	return boundaryOrganisations(isGated)
}

// newTLSBoundary is the same with certificates in place of a header: what drops
// A's tasks is their own handshake.
func newTLSBoundary(ctx context.Context) (*organisations, error) {
	o := boundaryOrganisations(func(*http.Request) bool { return false })
	edge, err := openEdge(ctx, strings.TrimPrefix(o.b.URL, "http://"))
	if err != nil {
		o.close()
		return nil, err
	}
	o.edge = edge
	return o, nil
}

func boundaryOrganisations(checksAnchor func(*http.Request) bool) *organisations {
	return openOrganisations(fedtest.Config{
		QuarantineAt: quarantineAt,
		ChecksAnchor: checksAnchor,
		Policy:       narrow,
	}, nil)
}

// narrow is B's policy: one scope of the narrowed capability is allowed.
func narrow(r fedtest.Request) fedtest.Verdict {
	if r.Capability == narrowed && r.Header.Get(headerScope) != allowedScope {
		return fedtest.Verdict{Deny: true, Reason: "SCOPE_NARROWED"}
	}
	return fedtest.Verdict{}
}

// isGated tells the requests that B's gateway guards.
func isGated(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/"+gated+"/") }

// boundaryTasks are the tasks of the incident, mixed, the same in each run.
func boundaryTasks() []fedhttp.Task {
	var tasks []fedhttp.Task
	for i := range deniedTasks {
		tasks = append(tasks, fedhttp.Task{
			ID: fmt.Sprintf("task-%03d", i), Capability: narrowed, Scope: fmt.Sprintf("delegation-%d", i%deniedScopes+1),
		})
	}
	for i := range droppedTasks {
		tasks = append(tasks, fedhttp.Task{ID: fmt.Sprintf("task-%03d", deniedTasks+i), Capability: gated})
	}
	mix := rand.New(rand.NewPCG(1, 0)) //nolint:gosec // an order, not a secret
	mix.Shuffle(len(tasks), func(i, j int) { tasks[i], tasks[j] = tasks[j], tasks[i] })
	return tasks
}

// runBoundary replays the incident with one client, and closes o.
func runBoundary(ctx context.Context, o *organisations, newClient makeClient) (f boundaryFigures, x boundaryExtras, err error) {
	defer o.close()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	a, err := newClient(ctx, o, fail)
	if err != nil {
		return f, x, err
	}
	defer a.close()
	// The day before: A looks at what B offers, and holds B's anchor from then
	// on. (The stock client fetched it when it started.) Then B rotates.
	if err := getJSON(ctx, a.Client, o.registry()+fedtest.CapabilitiesPath, nil); err != nil {
		return f, x, err
	}
	if err := o.rotate(); err != nil {
		return f, x, err
	}

	tasks := boundaryTasks()
	queue := make(chan fedhttp.Task, len(tasks))
	for _, task := range tasks {
		queue <- task
	}
	close(queue)
	var workers sync.WaitGroup
	var mu sync.Mutex
	escalated := 0
	for range boundaryCalls {
		workers.Go(func() {
			for task := range queue {
				at := o.registry()
				if task.Capability == gated {
					at = o.gateway()
				}
				decision, err := a.send(ctx, at+"/"+task.Capability+"/"+task.ID, task)
				mu.Lock()
				f.Tasks++
				if errors.Is(err, fedhttp.ErrScopeDenied) {
					f.RefusedLocally++
				}
				if decision.Escalated {
					escalated++
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	o.awaitEscalations(ctx, escalated)
	o.countBoundary(&f, &x)

	// The figures are taken. What is A's standing with B now?
	next := fedhttp.Task{ID: "next-day", Capability: ordinary}
	x.nextTask = "ran"
	if _, err := a.send(ctx, o.registry()+"/"+ordinary+"/"+next.ID, next); err != nil {
		x.nextTask = "refused"
		for _, e := range o.b.Engine.Log() {
			if e.Capability == ordinary {
				x.nextTask = "refused: " + e.Reason
			}
		}
	}
	return f, x, context.Cause(ctx)
}

// countBoundary reads the peers' books.
func (o *organisations) countBoundary(f *boundaryFigures, x *boundaryExtras) {
	ledger := o.b.Engine.LedgerOf(orgA)
	f.PolicyEvaluations, f.Denials, f.Quarantined = ledger.Evaluations, ledger.Denials, ledger.Quarantined
	for _, task := range o.b.Tasks() {
		switch {
		case task.Denials > 0:
			f.MaxSendsPerDeniedTask = max(f.MaxSendsPerDeniedTask, task.Sends)
		case strings.HasPrefix(task.ID, "/"+gated+"/") && task.Evaluations > 0:
			// It needed B's new anchor, and B ran it in the end.
			f.Recovered++
		}
	}
	f.AnchorRefreshes = o.anchorFetches()
	if o.edge != nil {
		x.brokenOff = int(o.edge.gateway.refused.Load())
	}
	f.Escalations = o.received(escalationsPath)
	routing := o.b.Routing.LedgerOf(orgA)
	x.sends, x.dropped = routing.Requests, routing.Requests-routing.Delivered
}
