package fedhttp

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// DenialPolicy says how a peer's rejections narrow what later tasks may ask of
// it. Each repeat of a denied task counts against us in the peer's ledger.
type DenialPolicy struct {
	// HoldOff is how long tasks that a denial covers are refused locally. Zero:
	// 15 min. Negative: they are not. A 429 whose Retry-After is shorter holds
	// off for that long only.
	HoldOff time.Duration
	// Budget is how many denials within Window refuse every further task that
	// carries a capability: it keeps us clear of the threshold at which the
	// peer would quarantine us. Zero: no budget. At most 1,048,576.
	Budget int
	// Window is the time in which Budget counts. Zero: 1 h.
	Window time.Duration
}

const (
	defaultHoldOff = 15 * time.Minute
	maxBudget      = 1 << 20 // the window keeps a time for each denial of the budget
)

func (p DenialPolicy) withDefaults(fault func(field, format string, args ...any)) DenialPolicy {
	if p.HoldOff == 0 {
		p.HoldOff = defaultHoldOff
	}
	if p.Budget < 0 || p.Budget > maxBudget {
		fault("Denial.Budget", "%d is not from 0 to %d", p.Budget, ConfigValue{Value: maxBudget})
	}
	p.Window = orDefault(p.Window, time.Hour, "Denial.Window", fault)
	return p
}

// Denial is a rejection on record. It covers later tasks of the same peer,
// capability and scope while the epoch and digest are the same and Until has
// not come. What the peer said is bounded and escaped.
type Denial struct {
	Peer, Capability, Scope string
	Epoch                   uint64
	Digest                  string
	TaskID                  string
	Status                  int // the response's status; 0 where the connection was refused
	PolicyReason            string
	CorrelationID           string
	At, Until               time.Time
}

// DenialLedger keeps denials. Record is called once for each rejection, Denied
// before every send of a task that has a capability, and once more when there is a
// connection for it, so it must answer from memory. Implementations are safe for
// concurrent use. A ledger that panics is contained: its Denied is then taken as a yes.
type DenialLedger interface {
	// Record keeps d until d.Until. Where it fails, the error is logged and the
	// denial kept in memory; the call goes on.
	Record(ctx context.Context, d Denial) error
	// Denied returns the unexpired denial that covers the task under auth.
	Denied(peer string, task Task, auth Authorization) (Denial, bool)
	// Forget drops the denials of a capability, all of the peer's where
	// capability is empty.
	Forget(peer, capability string)
}

// NewDenialLedger returns a ledger that keeps denials in memory, one for each
// (peer, capability, scope, epoch, digest), the one that lasts longest. It is what a
// nil Config.Denials means.
func NewDenialLedger() DenialLedger { return &memoryLedger{} }

// denialKey is what a denial covers. Those of different epochs and digests stand
// beside each other: a rejection may come after one of a task that was sent later.
type denialKey struct {
	peer, capability, scope string
	epoch                   uint64
	digest                  string
}

type memoryLedger struct {
	size atomic.Int64 // len(byKey), so that a ledger without denials costs no lock

	mu    sync.RWMutex
	byKey map[denialKey]Denial
	sweep int // the size at which expired denials are looked for
}

func (l *memoryLedger) Record(_ context.Context, d Denial) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byKey == nil {
		l.byKey = make(map[denialKey]Denial)
		l.sweep = 1024
	}
	key := denialKey{d.Peer, d.Capability, d.Scope, d.Epoch, d.Digest}
	if old, ok := l.byKey[key]; !ok || d.Until.After(old.Until) {
		l.byKey[key] = d
	}
	if len(l.byKey) >= l.sweep {
		for key, old := range l.byKey {
			if !d.At.Before(old.Until) {
				delete(l.byKey, key)
			}
		}
		l.sweep = max(1024, 2*len(l.byKey))
	}
	l.size.Store(int64(len(l.byKey)))
	return nil
}

func (l *memoryLedger) Denied(peer string, task Task, auth Authorization) (Denial, bool) {
	if l.size.Load() == 0 {
		return Denial{}, false
	}
	l.mu.RLock()
	d, ok := l.byKey[denialKey{peer, task.Capability, task.Scope, auth.Epoch, auth.Digest}]
	l.mu.RUnlock()
	if !ok || !time.Now().Before(d.Until) {
		return Denial{}, false
	}
	return d, true
}

func (l *memoryLedger) Forget(peer, capability string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.byKey {
		if key.peer == peer && (capability == "" || key.capability == capability) {
			delete(l.byKey, key)
		}
	}
	l.size.Store(int64(len(l.byKey)))
}

// denialWindow counts a peer's denials in a sliding window, at most as many as
// the budget asks about.
type denialWindow struct {
	total atomic.Int64

	mu    sync.Mutex
	times []time.Time // a ring; the oldest is at next once it is full
	next  int
}

// add counts a denial. budget is the ring's size.
func (w *denialWindow) add(now time.Time, budget int) {
	w.total.Add(1)
	if budget == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resize(budget)
	if len(w.times) < budget {
		w.times = append(w.times, now)
		return
	}
	w.times[w.next] = now
	w.next = (w.next + 1) % budget
}

// spent reports whether budget denials fell into the window that ends now.
func (w *denialWindow) spent(now time.Time, p DenialPolicy) bool {
	if p.Budget == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resize(p.Budget)
	return len(w.times) == p.Budget && now.Sub(w.times[w.next]) < p.Window
}

// left is how many more denials the budget allows now; -1 where there is none.
func (w *denialWindow) left(now time.Time, p DenialPolicy) int {
	if p.Budget == 0 {
		return -1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resize(p.Budget)
	left := p.Budget
	for _, at := range w.times {
		if now.Sub(at) < p.Window {
			left--
		}
	}
	return left
}

// resize keeps the latest denials when SetPeers changes the budget.
func (w *denialWindow) resize(budget int) {
	if len(w.times) == budget || len(w.times) < budget && w.next == 0 {
		return
	}
	ordered := slices.Concat(w.times[w.next:], w.times[:w.next])
	w.times, w.next = ordered[max(0, len(ordered)-budget):], 0
}
