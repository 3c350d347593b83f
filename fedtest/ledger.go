package fedtest

import (
	"slices"
	"time"
)

// TaskRecord is what the peer counted for one task.
type TaskRecord struct {
	ID string
	// Client is the one that sent the task first.
	Client string
	// Sends is how many requests with this ID reached the routing layer.
	Sends int
	// Delivered is how many of them were handed to the policy engine. The rest
	// was answered, dropped or is still held by the routing layer.
	Delivered int
	// Evaluations is how many requests with this ID reached the policy engine,
	// and Denials how many of these it refused.
	Evaluations, Denials int
}

// RoutingLedger is what the routing layer counted, for one client or for all.
// Requests to the well-known paths are not in it.
type RoutingLedger struct {
	// Requests reached the routing layer; Delivered of them were handed to the
	// policy engine.
	Requests, Delivered int
	// MaxPerTask is the most requests that a single task made.
	MaxPerTask int
}

// EngineLedger is the policy engine's reputation ledger, for one client or for
// all of them.
type EngineLedger struct {
	// Evaluations is how many requests reached the policy engine, whatever
	// became of them.
	Evaluations int
	// Denials is how many of them it refused, those refused in quarantine
	// included.
	Denials int
	// RefusedInQuarantine is how many denials came of the quarantine alone: the
	// policy was not asked.
	RefusedInQuarantine int
	// MaxEvaluationsPerTask and MaxDenialsPerTask are the most of a single task.
	MaxEvaluationsPerTask, MaxDenialsPerTask int
	// Quarantined says that the client (any of them, in the sum of all) has
	// reached Config.QuarantineAt denials, and QuarantinedAt when (the first
	// did). It is not lifted.
	Quarantined   bool
	QuarantinedAt time.Time
}

// account is what both layers hold on one client.
type account struct {
	routing RoutingLedger
	engine  EngineLedger
	tasks   map[string]*TaskRecord // of this client alone
}

// books are the ledgers of both layers. Peer.mu guards them.
type books struct {
	accounts map[string]*account
	tasks    map[string]*TaskRecord // of all clients
	order    []string               // task IDs as they first came
}

func newBooks() *books {
	return &books{accounts: map[string]*account{}, tasks: map[string]*TaskRecord{}}
}

func (b *books) account(client string) *account {
	a := b.accounts[client]
	if a == nil {
		a = &account{tasks: map[string]*TaskRecord{}}
		b.accounts[client] = a
	}
	return a
}

// record counts something of a task in both records that hold it, and gives
// the client's own.
func (b *books) record(client, task string, count func(*TaskRecord)) (*account, *TaskRecord) {
	all := b.tasks[task]
	if all == nil {
		all = &TaskRecord{ID: task, Client: client}
		b.tasks[task] = all
		b.order = append(b.order, task)
	}
	count(all)
	a := b.account(client)
	own := a.tasks[task]
	if own == nil {
		own = &TaskRecord{ID: task, Client: client}
		a.tasks[task] = own
	}
	count(own)
	return a, own
}

func (b *books) arrived(e *Entry) {
	a, t := b.record(e.Client, e.Task, func(t *TaskRecord) { t.Sends++ })
	a.routing.Requests++
	a.routing.MaxPerTask = max(a.routing.MaxPerTask, t.Sends)
}

func (b *books) delivered(e *Entry, n int) {
	a, _ := b.record(e.Client, e.Task, func(t *TaskRecord) { t.Delivered += n })
	a.routing.Delivered += n
}

// evaluated counts a request that reached the engine, and reports whether its
// client is in quarantine.
func (b *books) evaluated(e *Entry) bool {
	a, t := b.record(e.Client, e.Task, func(t *TaskRecord) { t.Evaluations++ })
	a.engine.Evaluations++
	a.engine.MaxEvaluationsPerTask = max(a.engine.MaxEvaluationsPerTask, t.Evaluations)
	return a.engine.Quarantined
}

func (b *books) denied(e *Entry, inQuarantine bool, quarantineAt int, now time.Time) {
	a, t := b.record(e.Client, e.Task, func(t *TaskRecord) { t.Denials++ })
	a.engine.Denials++
	a.engine.MaxDenialsPerTask = max(a.engine.MaxDenialsPerTask, t.Denials)
	if inQuarantine {
		a.engine.RefusedInQuarantine++
	}
	if quarantineAt > 0 && a.engine.Denials >= quarantineAt && !a.engine.Quarantined {
		a.engine.Quarantined, a.engine.QuarantinedAt = true, now
	}
}

// Ledger returns what the routing layer counted for all clients together.
func (l *Routing) Ledger() RoutingLedger {
	l.peer.mu.Lock()
	defer l.peer.mu.Unlock()
	var sum RoutingLedger
	for _, a := range l.peer.books.accounts {
		sum.Requests += a.routing.Requests
		sum.Delivered += a.routing.Delivered
	}
	for _, t := range l.peer.books.tasks {
		sum.MaxPerTask = max(sum.MaxPerTask, t.Sends)
	}
	return sum
}

// LedgerOf returns what the routing layer counted for one client; zero for one
// that it has not met.
func (l *Routing) LedgerOf(client string) RoutingLedger {
	l.peer.mu.Lock()
	defer l.peer.mu.Unlock()
	if a := l.peer.books.accounts[client]; a != nil {
		return a.routing
	}
	return RoutingLedger{}
}

// Ledger returns what the policy engine counted for all clients together.
func (l *Engine) Ledger() EngineLedger {
	l.peer.mu.Lock()
	defer l.peer.mu.Unlock()
	var sum EngineLedger
	for _, a := range l.peer.books.accounts {
		sum.Evaluations += a.engine.Evaluations
		sum.Denials += a.engine.Denials
		sum.RefusedInQuarantine += a.engine.RefusedInQuarantine
		if a.engine.Quarantined && (!sum.Quarantined || a.engine.QuarantinedAt.Before(sum.QuarantinedAt)) {
			sum.Quarantined, sum.QuarantinedAt = true, a.engine.QuarantinedAt
		}
	}
	for _, t := range l.peer.books.tasks {
		sum.MaxEvaluationsPerTask = max(sum.MaxEvaluationsPerTask, t.Evaluations)
		sum.MaxDenialsPerTask = max(sum.MaxDenialsPerTask, t.Denials)
	}
	return sum
}

// LedgerOf returns what the policy engine counted for one client; zero for one
// that it has not met.
func (l *Engine) LedgerOf(client string) EngineLedger {
	l.peer.mu.Lock()
	defer l.peer.mu.Unlock()
	if a := l.peer.books.accounts[client]; a != nil {
		return a.engine
	}
	return EngineLedger{}
}

// Task returns what the peer counted for the task; all zero, but for the ID,
// where no request of it came.
func (p *Peer) Task(id string) TaskRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.books.tasks[id]; t != nil {
		return *t
	}
	return TaskRecord{ID: id}
}

// Tasks returns the record of each task of which a request came, in the order
// in which they first came.
func (p *Peer) Tasks() []TaskRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]TaskRecord, len(p.books.order))
	for i, id := range p.books.order {
		out[i] = *p.books.tasks[id]
	}
	return out
}

// Clients returns the clients that the peer has met, sorted.
func (p *Peer) Clients() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]string, 0, len(p.books.accounts))
	for client := range p.books.accounts {
		out = append(out, client)
	}
	slices.Sort(out)
	return out
}

// Sends returns how many requests of the task reached the routing layer.
func (p *Peer) Sends(task string) int { return p.Task(task).Sends }

// Evaluations returns how many requests of the task reached the policy engine.
func (p *Peer) Evaluations(task string) int { return p.Task(task).Evaluations }
