package fedhttp

import (
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
func (c *call) hold(unresolved refusal) refusal {
	p := c.peer
	if p.Hold.Max < 0 {
		c.tellCoordinator(unresolved.reason)
		return unresolved
	}
	start := time.Now()
	until, late := start.Add(p.Hold.MaxWait), ReasonHoldTimeout
	if d := c.task.PolicyDeadline; !d.IsZero() && !d.After(until) {
		until, late = d, ReasonPolicyDeadline
	}
	if !start.Before(until) {
		c.tellCoordinator(unresolved.reason)
		return refusal{outcome: OutcomePolicyUnresolved, reason: late}
	}
	if int(p.held.Add(1)) > p.Hold.Max {
		p.held.Add(-1)
		c.tellCoordinator(unresolved.reason)
		return refusal{outcome: OutcomePolicyUnresolved, reason: ReasonHoldFull}
	}
	span := c.t.tracing.startHold(c)
	timer := time.NewTimer(until.Sub(start))
	defer func() {
		timer.Stop()
		p.held.Add(-1)
		c.decision.HeldFor += time.Since(start)
		span.End()
	}()

	var slot time.Time // when a paced release lets this task go; zero: it has not asked
	for {
		watch := c.t.book.watch(p.ID, c.task.Capability)
		now := time.Now()
		r := c.authorize(now)
		switch {
		case !now.Before(until) && (r.ok() || r.outcome == OutcomePolicyUnresolved):
			// The deadline came first, even if the policy came with it.
			c.t.book.unwatch(watch)
			return refusal{outcome: OutcomePolicyUnresolved, reason: late}
		case r.ok() && slot.IsZero():
			slot = p.pacer.reserve(c.task.Capability, now, p.Hold.ReleaseRate)
			fallthrough
		case r.ok():
			if !now.Before(slot) {
				c.t.book.unwatch(watch)
				return r
			}
			r = c.await(watch.changed(), timer, slot.Sub(now), late)
		case r.outcome != OutcomePolicyUnresolved:
			c.t.book.unwatch(watch)
			return r
		default:
			slot = time.Time{}
			c.tellCoordinator(r.reason)
			r = c.await(watch.changed(), timer, -1, late)
		}
		c.t.book.unwatch(watch)
		if !r.ok() {
			return r
		}
	}
}

// await waits for a change of the key, or for pause to pass where it is not
// negative, and returns why the task need not wait any longer.
func (c *call) await(changed <-chan struct{}, deadline *time.Timer, pause time.Duration, late Reason) refusal {
	var slot <-chan time.Time
	if pause >= 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		slot = timer.C
	}
	select {
	case <-changed:
	case <-slot:
	case <-deadline.C:
		return refusal{outcome: OutcomePolicyUnresolved, reason: late}
	case <-c.Done():
		return refusal{OutcomePolicyUnresolved, ReasonContextEnded, contextError(c)}
	case <-c.t.lifetime.Done():
		return refusal{OutcomePolicyUnresolved, ReasonClosed, ErrClosed}
	}
	return refusal{}
}

func (c *call) tellCoordinator(reason Reason) {
	if !c.peer.told.first(c.task.Capability, c.auth, reason) {
		return
	}
	c.t.unresolved.notify(c, Unresolved{
		Peer: c.peer.ID, Capability: c.task.Capability, Epoch: c.auth.Epoch, Digest: c.auth.Digest,
		Reason: reason, Obligations: c.task.Obligations, At: time.Now(),
	})
}

// toldSet remembers, for one peer, which unresolved policies the coordinator
// knows of: the latest of each capability, terms that fall short apart.
type toldSet struct {
	pending atomic.Int32 // entries that a resolution would remove
	mu      sync.Mutex
	told    map[toldKey]toldPolicy
}

type toldKey struct {
	capability string
	terms      bool
}

type toldPolicy struct {
	epoch  uint64
	digest string
}

// first reports whether the coordinator has not been told yet.
func (s *toldSet) first(capability string, auth Authorization, reason Reason) bool {
	key := toldKey{capability, reason == ReasonTermsInsufficient}
	policy := toldPolicy{auth.Epoch, auth.Digest}
	s.mu.Lock()
	defer s.mu.Unlock()
	if told, ok := s.told[key]; ok && told == policy {
		return false
	}
	if s.told == nil {
		s.told = make(map[toldKey]toldPolicy)
	}
	if _, ok := s.told[key]; !ok && !key.terms {
		s.pending.Add(1)
	}
	s.told[key] = policy
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
	mu   sync.Mutex
	next map[string]time.Time
}

// reserve returns when the next task of the capability may go.
func (p *pacer) reserve(capability string, now time.Time, rate float64) time.Time {
	if rate <= 0 {
		return now
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, next := range p.next {
		if next.Before(now) {
			delete(p.next, other) // nobody waits for its turn any more
		}
	}
	slot := now
	if next := p.next[capability]; next.After(now) {
		slot = next
	}
	if p.next == nil {
		p.next = make(map[string]time.Time)
	}
	p.next[capability] = slot.Add(time.Duration(float64(time.Second) / rate))
	return slot
}
