package fedhttp

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Basis is on what ground a task may be sent. It is a closed set; the zero
// value is BasisNone.
type Basis uint8

// The bases.
const (
	// BasisNone: there is no ground; the policy is unresolved.
	BasisNone Basis = iota
	// BasisNoObligation: the task demands nothing, or nothing that the peer's
	// default terms do not grant.
	BasisNoObligation
	// BasisAccepted: the advertised digest is accepted.
	BasisAccepted
	// BasisNegotiated: a negotiation that has not expired.
	BasisNegotiated
)

var basisNames = []string{"", "no_obligation", "accepted", "negotiated"}

// String returns the basis's token, such as "accepted"; "" for BasisNone.
func (b Basis) String() string { return enumString(basisNames, "basis", b) }

// MarshalText returns the basis's token, or an error for a value outside the set.
func (b Basis) MarshalText() ([]byte, error) { return enumMarshal(basisNames, "basis", b) }

// UnmarshalText parses a basis's token.
func (b *Basis) UnmarshalText(text []byte) error {
	return enumUnmarshal(basisNames, "basis", b, text)
}

// Authorization is under what a task may be sent: what [PolicyBook.Authorize]
// found at one moment. It is a value of its own and does not follow the book.
type Authorization struct {
	// Digest is the policy digest; "" where the peer advertises none.
	Digest string
	// Epoch is the negotiation epoch; meaningless where Digest is "".
	Epoch uint64
	// Basis is the ground; BasisNone beside an error.
	Basis Basis
}

// PolicyKey says which policy is meant: that of one capability of one peer in
// one negotiation epoch. Peer is [Peer.ID].
type PolicyKey struct {
	Peer, Capability string
	Epoch            uint64
}

// Advertisement is a peer's claim that it serves a capability under a policy.
// It gives no authority to send anything. All of Peer, Capability and Digest
// are required.
type Advertisement struct {
	PolicyKey
	Digest string
}

// Policy is a digest that our side has agreed to.
type Policy struct {
	PolicyKey
	Digest string
	// Terms are what the policy grants. Nil: the policy says nothing about
	// terms, and obligations are not compared with it. Empty and not nil: it
	// grants nothing.
	Terms Terms
}

// Negotiation is a result that lets tasks go under Digest until ExpiresAt,
// whatever digest the peer advertises in the same epoch.
type Negotiation struct {
	PolicyKey
	Digest string
	// ExpiresAt is exclusive: at that moment the negotiation has expired. The
	// zero value has expired already; there is no negotiation without an end.
	ExpiresAt time.Time
	// Terms are as in [Policy].
	Terms Terms
}

// PolicyBook is what is known of the policies of all peers: what they
// advertise, which digests are accepted, and which negotiations are cached. It
// answers from memory and has no clock of its own.
//
// The zero value is empty and ready. A PolicyBook is safe for concurrent use
// and must not be copied. Reads neither lock nor allocate; writes take turns.
// A read that starts after a write has returned sees it. Nothing that is
// passed in is kept: strings and terms are copied.
//
// The epochs of a key, which is a peer and a capability, only go up: the
// highest that was ever advertised stays with the key, even after Withdraw,
// and what was agreed for older ones is dropped. So a key that was advertised
// takes some memory for good. Feed a book with the capabilities that somebody
// uses, not with whatever peers send.
type PolicyBook struct {
	table   policyTable
	stale   atomic.Bool
	writing sync.Mutex    // held by the one writer; readers do not know it
	symbols policySymbols // guarded by writing
	watches sync.Map      // watchKey -> *keyWatch
}

// Advertise records what a peer advertises. The same epoch with another digest
// replaces the digest; a newer epoch replaces both, and drops what was
// agreed for older ones.
//
// An epoch older than one that was advertised before changes nothing and
// returns an error that matches [ErrStaleEpoch]. An advertisement whose Peer,
// Capability or Digest is empty, or whose Peer or Capability is longer than
// 1,000 bytes, changes nothing and returns an error that names the field.
func (b *PolicyBook) Advertise(a Advertisement) error {
	if err := checkPolicy(a.PolicyKey, a.Digest); err != nil {
		return err
	}
	var stale bool
	var newest uint64
	b.update(a.Peer, a.Capability, &a.Digest, nil, func(e *policyEntry, digest, _ *policySymbol) bool {
		newest = e.epoch
		stale = a.Epoch < e.epoch
		return !stale && e.advertise(a.Epoch, digest)
	})
	if stale {
		return fmt.Errorf("fedhttp: peer %s, capability %s: epoch %d comes after epoch %d: %w",
			quote(a.Peer), quote(a.Capability), a.Epoch, newest, ErrStaleEpoch)
	}
	return nil
}

// Withdraw records that the peer advertises the capability no longer. The
// highest epoch stays, so that a late advertisement of an older one is still
// refused. So does what was agreed, should the capability come back.
func (b *PolicyBook) Withdraw(peer, capability string) {
	b.update(peer, capability, nil, nil, func(e *policyEntry, _, _ *policySymbol) bool {
		return e.withdraw()
	})
}

// Accept records a digest that our side has agreed to. It may come before the
// advertisement, also for an epoch that is still to come. A key may have
// several accepted digests; the same digest again replaces its terms.
//
// A policy for an older epoch than the highest advertised one, or one that
// [PolicyBook.Advertise] would find fault with, could match nothing. It is
// ignored.
func (b *PolicyBook) Accept(p Policy) {
	if checkPolicy(p.PolicyKey, p.Digest) != nil {
		return
	}
	b.agree(p.PolicyKey, p.Digest, p.Terms, agreement{epoch: p.Epoch})
}

// CacheNegotiation records the result of a negotiation. It replaces the one
// that is cached for the same key, also with one that has expired already. A
// negotiation is ignored where [PolicyBook.Accept] ignores a policy.
func (b *PolicyBook) CacheNegotiation(n Negotiation) {
	if checkPolicy(n.PolicyKey, n.Digest) != nil {
		return
	}
	negotiated := agreement{
		epoch: n.Epoch, negotiated: true,
		expires: n.ExpiresAt.Unix(), expiresNano: int32(n.ExpiresAt.Nanosecond()),
	}
	b.agree(n.PolicyKey, n.Digest, n.Terms, negotiated)
}

func (b *PolicyBook) agree(key PolicyKey, digest string, terms Terms, a agreement) {
	var text *string
	if terms != nil {
		t := termText(terms)
		text = &t
	}
	b.update(key.Peer, key.Capability, &digest, text, func(e *policyEntry, digest, terms *policySymbol) bool {
		a.digest, a.terms = digest, termSet{terms}
		return e.agree(a)
	})
}

// Revoke takes back everything that lets tasks go under the digest for the
// key: its acceptance, and a cached negotiation that names it. Where there is
// neither, it changes nothing.
func (b *PolicyBook) Revoke(key PolicyKey, digest string) {
	b.update(key.Peer, key.Capability, nil, nil, func(e *policyEntry, _, _ *policySymbol) bool {
		return e.drop(func(a *agreement) bool { return a.epoch == key.Epoch && a.digest.text == digest })
	})
}

// SetStale says whether what the book knows may be out of date, because whoever
// feeds it has lost its source. While it may be, nothing that was agreed counts:
// a task that needs an agreement is unresolved, with [ReasonPoliciesStale], and
// held; the others go on. Writes are taken all the while. A book is not stale
// until it is said to be. Once it is no more, held tasks are looked at anew.
func (b *PolicyBook) SetStale(stale bool) {
	if b.stale.Swap(stale) && !stale {
		b.watches.Range(func(key, _ any) bool {
			k := key.(watchKey)
			b.wake(k.peer, k.capability)
			return true
		})
	}
}

// Authorize says under what the task may be sent to the peer at the time now,
// whose default policy grants defaults. It does not know of denials.
//
// A task whose obligations the defaults grant, or that has none, may always
// go. Any other needs the advertised digest to be accepted, or else a
// negotiation of the advertised epoch that has not expired; where either
// carries terms, they must grant all obligations.
//
// The error is [ErrTaskRequired] for obligations without a capability.
// Otherwise it matches [ErrPolicyUnresolved], and the Authorization has the
// advertised digest and epoch, if any, with BasisNone.
func (b *PolicyBook) Authorize(peer string, task Task, defaults Terms, now time.Time) (Authorization, error) {
	// Fewer terms than obligations cannot grant them all, and counting is
	// much cheaper than iterating over a map.
	granted := len(defaults) >= len(task.Obligations) && defaults.Grants(task.Obligations)
	// Before the table: where the mark was taken away, what led to that is in there.
	stale := !granted && b.stale.Load()
	var known *policyState
	if task.Capability != "" {
		known = b.table.find(peer, task.Capability)
	} else if len(task.Obligations) > 0 {
		return Authorization{}, ErrTaskRequired
	}
	advertised := known != nil && known.policy.digest != nil
	if granted {
		auth := Authorization{Basis: BasisNoObligation}
		if advertised {
			auth.Digest, auth.Epoch = known.policy.digest.text, known.epoch
		}
		return auth, nil
	}
	switch {
	case stale:
		if !advertised {
			return Authorization{}, errPoliciesStale
		}
		return Authorization{known.policy.digest.text, known.epoch, BasisNone}, errPoliciesStale
	case !advertised:
		return Authorization{}, errNotAdvertised
	case known.policy.accepted:
		return Authorization{known.policy.digest.text, known.epoch, BasisAccepted}, nil
	}
	return known.authorize(task.Obligations, now)
}

// negotiatedUntil returns when the negotiation that is cached for the advertised
// epoch expires, or has expired; the zero time where there is none. Equal
// expiries are equal values. It neither locks nor allocates.
func (b *PolicyBook) negotiatedUntil(peer, capability string) time.Time {
	known := b.table.find(peer, capability)
	if known == nil || known.policy.digest == nil {
		return time.Time{}
	}
	for a := known.policy.agreed; a != nil; a = a.next {
		if a.negotiated && a.epoch == known.epoch {
			return a.expiry()
		}
	}
	return time.Time{}
}

// update applies a change, which reports whether there was any, to the entry of
// a key, and wakes the key's waiters when it is visible. The change gets the
// symbols of digest and terms, where those are not nil.
func (b *PolicyBook) update(
	peer, capability string, digest, terms *string,
	change func(e *policyEntry, digest, terms *policySymbol) bool,
) {
	b.writing.Lock()
	if b.symbols == nil {
		b.symbols = make(policySymbols)
	}
	d, t := b.symbols.acquire(digest), b.symbols.acquire(terms)
	changed := b.table.update(peer, capability, func(state policyState) (policyState, bool) {
		old, e := state.entry(), state.entry()
		if !change(&e, d, t) {
			return state, false
		}
		for s := range e.symbols {
			s.refs++
		}
		for s := range old.symbols {
			b.symbols.release(s)
		}
		if e.empty() {
			return policyState{}, true
		}
		return policyState{e.epoch, e.share()}, true
	})
	b.symbols.release(d)
	b.symbols.release(t)
	b.writing.Unlock()
	if changed {
		b.wake(peer, capability)
	}
}

// checkPolicy names the fields that no policy can have as they are.
func checkPolicy(key PolicyKey, digest string) error {
	var faults []string
	check := func(field, value string, limit int) {
		switch {
		case value == "":
			faults = append(faults, field+" is empty")
		case len(value) > limit:
			faults = append(faults, fmt.Sprintf("%s is longer than %d bytes", field, limit))
		case !isHeaderValue(value):
			faults = append(faults, field+" has control characters")
		}
	}
	check("Peer", key.Peer, maxPolicyName)
	check("Capability", key.Capability, maxPolicyName)
	check("Digest", digest, math.MaxInt)
	if faults == nil {
		return nil
	}
	return fmt.Errorf("fedhttp: policy: %s", strings.Join(faults, ", "))
}

// unresolvedError is why a policy is unresolved. There is one value for each
// reason, so that a refusal costs no allocation.
type unresolvedError struct{ reason Reason }

var (
	errNotAdvertised     = &unresolvedError{ReasonNotAdvertised}
	errNotAccepted       = &unresolvedError{ReasonNotAccepted}
	errTermsInsufficient = &unresolvedError{ReasonTermsInsufficient}
	errPoliciesStale     = &unresolvedError{ReasonPoliciesStale}
)

func (e *unresolvedError) Error() string {
	return ErrPolicyUnresolved.Error() + " (" + e.reason.String() + ")"
}

func (e *unresolvedError) Is(target error) bool { return target == ErrPolicyUnresolved }
