package fedhttp

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// EscalationKind is why an operator is told. It is a closed set; the zero
// value is EscalationAmbiguous.
type EscalationKind uint8

// The kinds of escalation.
const (
	// EscalationAmbiguous: a failure whose author cannot be told.
	EscalationAmbiguous EscalationKind = iota
	// EscalationRoutingUnrepaired: a routing failure that no refresh and resend mended.
	EscalationRoutingUnrepaired
	// EscalationPolicyMismatch: an answer produced under another policy.
	EscalationPolicyMismatch
	// EscalationPeerDistrustsUs: the peer refuses our certificate or key.
	EscalationPeerDistrustsUs
)

var escalationNames = []string{"ambiguous", "routing_unrepaired", "policy_mismatch", "peer_distrusts_us"}

// String returns the kind's token, such as "ambiguous".
func (k EscalationKind) String() string { return enumString(escalationNames, "escalation kind", k) }

// MarshalText returns the kind's token, or an error for a value outside the set.
func (k EscalationKind) MarshalText() ([]byte, error) {
	return enumMarshal(escalationNames, "escalation kind", k)
}

// UnmarshalText parses a kind's token.
func (k *EscalationKind) UnmarshalText(text []byte) error {
	return enumUnmarshal(escalationNames, "escalation kind", k, text)
}

// Escalation is what an operator must see.
type Escalation struct {
	Kind     EscalationKind
	Decision Decision
	At       time.Time
}

// Escalator is told of what an operator must see: one call for each
// escalation, in order, from one goroutine, with a context that carries the
// call's values, its task aside, and ends after 30 s. It may be slow and may panic: no call
// waits for it. Where more than 1,024 wait for it, further ones are logged.
type Escalator interface {
	Escalate(ctx context.Context, e Escalation)
}

// Unresolved is a policy that tasks wait for.
type Unresolved struct {
	Peer, Capability string
	// Epoch and Digest are what the peer advertises; zero where it advertises
	// nothing.
	Epoch  uint64
	Digest string
	// Reason is ReasonNotAdvertised, ReasonNotAccepted or ReasonTermsInsufficient.
	Reason Reason
	// Obligations are those of the task that met it first.
	Obligations Terms
	At          time.Time
}

// Coordinator is told of policies that somebody has to agree: once for each
// (peer, capability, epoch, digest) until it is resolved, however many tasks
// wait for it. It is called as an [Escalator] is.
type Coordinator interface {
	PolicyUnresolved(ctx context.Context, u Unresolved)
}

const (
	notifyQueue   = 1024
	notifyTimeout = 30 * time.Second
)

// notifier hands events to a sink, in order and on a goroutine of its own,
// which lives only while there is something to hand over. Nothing is dropped
// silently: what finds the queue full or the sink hanging, or meets a panic, goes
// to the log.
type notifier[E any] struct {
	sink func(context.Context, E)
	log  func(ctx context.Context, e E, note string)

	mu     sync.Mutex
	queue  []notice[E]
	active bool      // there is a goroutine
	since  time.Time // when the sink was called that has not returned; zero: none was
}

type notice[E any] struct {
	ctx   context.Context
	event E
}

func (n *notifier[E]) notify(ctx context.Context, e E) {
	if n.sink == nil {
		n.log(ctx, e, "")
		return
	}
	for _, left := range n.enqueue(notice[E]{context.WithoutCancel(detached{ctx}), e}) {
		n.log(left.ctx, left.event, "the queue to the sink is full, or the sink hangs")
	}
}

// enqueue returns what cannot be handed over: next where the queue is full, and
// all that waits where the sink has been called and has not returned in time.
func (n *notifier[E]) enqueue(next notice[E]) []notice[E] {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case !n.since.IsZero() && time.Since(n.since) > notifyTimeout:
		left := n.queue
		n.queue = nil
		return append(left, next)
	case len(n.queue) >= notifyQueue:
		return []notice[E]{next}
	}
	n.queue = append(n.queue, next)
	if !n.active {
		n.active = true
		go n.drain()
	}
	return nil
}

func (n *notifier[E]) drain() {
	more := true
	// A sink can end its goroutine (runtime.Goexit); another one goes on then.
	defer func() {
		if more {
			go n.drain()
		}
	}()
	for {
		n.mu.Lock()
		n.since = time.Time{}
		if len(n.queue) == 0 {
			n.queue, n.active, more = nil, false, false
			n.mu.Unlock()
			return
		}
		next := n.queue[0]
		n.queue[0] = notice[E]{}
		n.queue = n.queue[1:]
		n.since = time.Now()
		n.mu.Unlock()
		n.deliver(next)
	}
}

func (n *notifier[E]) deliver(next notice[E]) {
	ctx, cancel := context.WithTimeout(next.ctx, notifyTimeout)
	defer cancel()
	defer func() {
		if fault := recover(); fault != nil {
			n.log(next.ctx, next.event, "the sink panicked: "+faultText(fault))
		}
	}()
	n.sink(ctx, next.event)
}

// escalate tells an operator. Without an Escalator the call's line in the log does.
func (t *Transport) escalate(ctx context.Context, e Escalation) {
	kept := e
	kept.Decision.Capability = shortened(e.Decision.Capability)
	kept.Decision.TaskID = shortened(e.Decision.TaskID)
	kept.Decision.Evidence = slices.Clone(e.Decision.Evidence)
	t.lastEscalations.add(kept)
	t.metrics.escalation(ctx, &e)
	if t.escalations.sink != nil {
		t.escalations.notify(ctx, e)
	}
}

// logEscalation writes what could not be handed to the Escalator. It is all that
// is left of it, so it is never left out.
func (t *Transport) logEscalation(ctx context.Context, e Escalation, note string) {
	attrs := append(decisionAttrs(&e.Decision), slog.String("escalation", e.Kind.String()), slog.String("note", note))
	t.logAttrs(ctx, slog.LevelError, "fedhttp: escalation", attrs...)
}

// logUnresolved writes what no Coordinator takes. A peer that advertises one epoch
// after the other must not fill the log, so it is limited as decisions are.
func (t *Transport) logUnresolved(ctx context.Context, u Unresolved, note string) {
	key := logKey{unresolvedPolicy, u.Peer, OutcomePolicyUnresolved, u.Reason}
	if !t.logs(ctx, slog.LevelWarn) || !t.logged.allow(key, time.Now(), t.logSuppressed) {
		return
	}
	attrs := []slog.Attr{
		slog.String("peer", u.Peer), slog.String("capability", sanitize(u.Capability)),
		slog.Uint64("epoch", u.Epoch), slog.String("digest", sanitize(u.Digest)), slog.String("reason", u.Reason.String()),
	}
	if note != "" {
		attrs = append(attrs, slog.String("note", note))
	}
	t.logAttrs(ctx, slog.LevelWarn, unresolvedPolicy, attrs...)
}
