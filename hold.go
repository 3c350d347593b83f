package fedhttp

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// HoldPolicy is how tasks wait, unsent, for their policy.
type HoldPolicy struct {
	// Max is how many tasks may wait for the peer at once. Zero: 10,000.
	// Negative: none; they are refused at once.
	Max int
	// MaxWait bounds the wait of a task, beside its own PolicyDeadline. Zero: 20 min.
	MaxWait time.Duration
	// ReleaseRate is how many tasks a second a key that resolves lets go.
	// Zero: all at once.
	ReleaseRate float64
}

func (p HoldPolicy) withDefaults(fault func(field, format string, args ...any)) HoldPolicy {
	if p.Max == 0 {
		p.Max = 10_000
	}
	p.MaxWait = orDefault(p.MaxWait, 20*time.Minute, "Hold.MaxWait", fault)
	p.ReleaseRate = rateOrDefault(p.ReleaseRate, 0, "Hold.ReleaseRate", fault)
	return p
}

// hold keeps the task until its policy resolves, and returns why it may not go
// in the end. unresolved is what preflight said.
func (f *preflight) hold(unresolved refusal) refusal {
	p := f.peer
	start := time.Now()
	until, late := start.Add(p.Hold.MaxWait), ReasonHoldTimeout
	if d := f.task.PolicyDeadline; !d.IsZero() && !d.After(until) {
		until, late = d, ReasonPolicyDeadline
	} else if past := time.Duration(until.UnixNano()) % time.Millisecond; past != 0 {
		// Tasks that come at nearly the same time then share an alarm.
		until = until.Add(time.Millisecond - past)
	}
	refused := unresolved
	switch {
	case f.t.noBook:
		refused.err = errNoBook
	case p.Hold.Max < 0:
	case !start.Before(until):
		refused.reason = late
	default:
		since, ok := p.held.join(f.task.Capability, start, p.Hold.Max)
		if !ok {
			refused.reason = ReasonHoldFull
			break
		}
		alarm := f.t.alarms.join(until)
		var waiting span
		over := false
		defer func() {
			if !over { // something that the program has given us panics
				f.release(alarm, since, waiting)
			}
		}()
		waiting = f.t.tracing.startHold(f.Context)
		refused = f.wait(alarm, late)
		over = true
		f.release(alarm, since, waiting)
		took := time.Since(start)
		f.detail().heldFor += took
		f.t.metrics.hold(f.Context, p, took, refused.reason)
		return refused
	}
	if refused.err == nil {
		refused.err = f.missing(unresolved.reason)
	}
	f.tellCoordinator(unresolved.reason)
	return refused
}

// release ends the holding.
func (f *preflight) release(alarm *alarm, since int64, waiting span) {
	f.t.alarms.leave(alarm)
	f.peer.held.leave(f.task.Capability, since)
	waiting.End()
}

// wait waits until the task may go, or is known not to.
func (f *preflight) wait(alarm *alarm, late Reason) refusal {
	var turn time.Time // when a paced release lets the task go; zero: it has not asked
	for {
		watch := f.t.book.watch(f.peer.ID, f.task.Capability)
		r, over := f.look(alarm, late, &turn)
		if !over {
			f.warrant = nil // of which many sleepers would have as many; the next look has its own
			f.sleep(watch.changed(), alarm.rung, turn)
		}
		f.t.book.unwatch(watch)
		if over {
			return r
		}
	}
}

// look decides whether the wait is over. Where several things ended it at once
// the order here decides, and not the scheduler: a deadline comes before a policy
// that comes with it.
func (f *preflight) look(alarm *alarm, late Reason, turn *time.Time) (r refusal, over bool) {
	now := time.Now()
	switch {
	case f.Err() != nil:
		_ = f.consult(now) // for the decision
		return refusal{OutcomePolicyUnresolved, ReasonContextEnded, contextError(f.Context)}, true
	case f.t.lifetime.Err() != nil:
		_ = f.consult(now)
		return refusal{OutcomePolicyUnresolved, ReasonClosed, ErrClosed}, true
	}
	r = f.authorize(now)
	switch {
	case !r.ok() && r.outcome != OutcomePolicyUnresolved:
		return r, true
	case alarm.past(now) && r.ok() && !turn.IsZero():
		return refusal{OutcomePolicyUnresolved, late, errLateTurn}, true
	case alarm.past(now):
		return refusal{OutcomePolicyUnresolved, late, f.missing(r.reason)}, true
	case r.ok():
		if turn.IsZero() {
			*turn = f.peer.pacer.reserve(f.task.Capability, now, f.peer.Hold.ReleaseRate)
		}
		return r, !now.Before(*turn)
	}
	if !turn.IsZero() {
		// Revoked while it waited for its turn: nobody's turn counts any more.
		f.peer.pacer.reset(f.task.Capability)
		*turn = time.Time{}
	}
	f.tellCoordinator(r.reason)
	return r, false
}

// sleep returns when there may be something new to look at.
func (f *preflight) sleep(changed, rung <-chan struct{}, turn time.Time) {
	if turn.IsZero() {
		select {
		case <-changed:
		case <-rung:
		case <-f.Done():
		}
		return
	}
	timer := time.NewTimer(time.Until(turn))
	defer timer.Stop()
	select {
	case <-changed:
	case <-rung:
	case <-f.Done():
	case <-timer.C:
	}
}

// tellCoordinator tells of the key's policy, if nobody has. One that is only
// stale may well be agreed, so there is nothing to ask for.
func (f *preflight) tellCoordinator(reason Reason) {
	if reason == ReasonPoliciesStale {
		return
	}
	known := toldPolicy{f.warrant.Epoch, f.warrant.Digest, f.t.book.negotiatedUntil(f.peer.ID, f.task.Capability)}
	if f.peer.told.first(f.task.Capability, known, reason) {
		f.notify(reason)
	}
}

func (f *preflight) notify(reason Reason) {
	f.t.unresolved.notify(f.Context, Unresolved{
		Peer: f.peer.ID, Capability: f.task.Capability, Epoch: f.warrant.Epoch, Digest: f.warrant.Digest,
		Reason: reason, Obligations: maps.Clone(f.task.Obligations), At: time.Now(),
	})
}

// toldSet remembers, for one peer, which unresolved policies the coordinator
// knows of: those of each capability, terms that fall short apart. It is
// bounded; what it forgets is told again.
type toldSet struct {
	pending atomic.Int32 // entries that a resolution would remove
	mu      sync.Mutex
	told    map[toldKey][]toldPolicy
}

const (
	maxToldKeys     = 10_000 // of a peer
	maxToldPolicies = 16     // of a key; gossip may go back and forth between some
)

type toldKey struct {
	capability string
	terms      bool
}

type toldPolicy struct {
	epoch  uint64
	digest string
	// lapsed tells one negotiation that ran out from the next: each asks for
	// another one, also where no task came while it lasted.
	lapsed time.Time
}

// first reports whether the coordinator has not been told yet.
func (s *toldSet) first(capability string, policy toldPolicy, reason Reason) bool {
	key := toldKey{capability, reason == ReasonTermsInsufficient}
	s.mu.Lock()
	defer s.mu.Unlock()
	told, known := s.told[key]
	if slices.Contains(told, policy) {
		return false
	}
	if s.told == nil || !known && len(s.told) >= maxToldKeys {
		s.told = make(map[toldKey][]toldPolicy)
		s.pending.Store(0)
		told, known = nil, false
	}
	if !known && !key.terms {
		s.pending.Add(1)
	}
	if len(told) >= maxToldPolicies {
		told = told[1:]
	}
	s.told[key] = append(slices.Clip(told), policy)
	return true
}

// resolved forgets what was told of a capability whose policy is agreed, so
// that the coordinator hears of it again once that ends. Terms that fell short
// for one task still do when another task is content with them.
func (s *toldSet) resolved(capability string) {
	if s.pending.Load() == 0 {
		return
	}
	key := toldKey{capability: capability}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.told[key]; ok {
		delete(s.told, key)
		s.pending.Add(-1)
	}
}

// pacer spreads the releases of a key that resolved.
type pacer struct {
	mu    sync.Mutex
	next  map[string]time.Time
	sweep int // the size at which turns that are over are looked for
}

// maxTurn keeps the tiniest rate from overflowing: nobody waits longer anyway.
const maxTurn = 24 * time.Hour

// reset forgets the turns that were given: they will not be taken.
func (p *pacer) reset(capability string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.next, capability)
}

// reserve returns when the next task of the capability may go.
func (p *pacer) reserve(capability string, now time.Time, rate float64) time.Time {
	if rate <= 0 {
		return now
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.next) >= p.sweep {
		for other, next := range p.next {
			if next.Before(now) {
				delete(p.next, other) // nobody waits for its turn any more
			}
		}
		p.sweep = max(64, 2*len(p.next))
	}
	slot := now
	if next := p.next[capability]; next.After(now) {
		slot = next
	}
	if p.next == nil {
		p.next = make(map[string]time.Time)
	}
	p.next[capability] = slot.Add(time.Duration(min(float64(time.Second)/rate, float64(maxTurn))))
	return slot
}
