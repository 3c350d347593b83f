package fedhttp

import (
	"encoding/binary"
	"maps"
	"slices"
	"time"
)

// policyState is what the book knows of one key, as its table has it.
type policyState struct {
	epoch  uint64  // the highest ever advertised
	policy *policy // nil in the zero value alone
}

// policy is what is known for an epoch and for later ones. Published policies
// are immutable, and most keys share theirs, see [policy.share].
type policy struct {
	digest *policySymbol // advertised; nil: nothing is
	agreed *agreement
	// accepted stands for the agreement that nearly every key has, so that
	// the policy can be shared: the advertised digest is accepted, without terms.
	accepted bool
}

// agreement is an accepted digest or a cached negotiation. It is immutable and
// one of a list in no order.
type agreement struct {
	next        *agreement
	epoch       uint64
	digest      *policySymbol
	terms       termSet
	expires     int64 // Unix seconds, with expiresNano; for a negotiation
	expiresNano int32
	negotiated  bool
}

// authorize finds the agreement under which a task with obligations may go,
// where that is not the one that accepted stands for. A digest must be
// advertised.
func (s *policyState) authorize(obligations Terms, now time.Time) (Authorization, error) {
	advertised := Authorization{Digest: s.policy.digest.text, Epoch: s.epoch}
	var accepted, negotiated *agreement
	for a := s.policy.agreed; a != nil; a = a.next {
		switch {
		case a.epoch != s.epoch:
		case a.negotiated:
			if now.Before(a.expiry()) {
				negotiated = a
			}
		case a.digest == s.policy.digest:
			accepted = a
		}
	}
	switch {
	case accepted != nil && accepted.terms.grant(obligations):
		advertised.Basis = BasisAccepted
		return advertised, nil
	case negotiated != nil && negotiated.terms.grant(obligations):
		return Authorization{negotiated.digest.text, s.epoch, BasisNegotiated}, nil
	case accepted != nil || negotiated != nil:
		return advertised, errTermsInsufficient
	default:
		return advertised, errNotAccepted
	}
}

// policyEntry is a writer's copy of a state, to change.
type policyEntry struct {
	epoch uint64
	policy
}

func (s policyState) entry() policyEntry {
	if s.policy == nil {
		return policyEntry{}
	}
	return policyEntry{s.epoch, *s.policy}
}

// empty reports whether nothing is known: no epoch is older than 0, so that
// one need not be kept.
func (e *policyEntry) empty() bool {
	return e.epoch == 0 && e.digest == nil && e.agreed == nil
}

// advertise expects an epoch that is not older than the entry's.
func (e *policyEntry) advertise(epoch uint64, digest *policySymbol) (changed bool) {
	if e.epoch == epoch && e.digest == digest {
		return false
	}
	list := e.agreements()
	if epoch > e.epoch {
		list = list.without(func(a *agreement) bool { return a.epoch < epoch })
	}
	e.epoch, e.digest = epoch, digest
	e.setAgreements(list)
	return true
}

func (e *policyEntry) withdraw() (changed bool) {
	if e.digest == nil {
		return false
	}
	list := e.agreements()
	e.digest = nil
	e.setAgreements(list)
	return true
}

// agree adds an agreement in the place of those that it replaces.
func (e *policyEntry) agree(a agreement) (changed bool) {
	if a.epoch < e.epoch {
		return false
	}
	list := e.agreements()
	for old := list; old != nil; old = old.next {
		a.next = old.next
		if a == *old {
			return false
		}
	}
	a.next = list.without(a.replaces)
	e.setAgreements(&a)
	return true
}

// drop removes the agreements that match.
func (e *policyEntry) drop(match func(*agreement) bool) (changed bool) {
	list := e.agreements()
	for a := list; a != nil; a = a.next {
		if match(a) {
			e.setAgreements(list.without(match))
			return true
		}
	}
	return false
}

// agreements returns the whole list, with the one that accepted stands for.
func (e *policyEntry) agreements() *agreement {
	if e.accepted {
		return &agreement{next: e.agreed, epoch: e.epoch, digest: e.digest}
	}
	return e.agreed
}

// setAgreements is the opposite of agreements.
func (e *policyEntry) setAgreements(list *agreement) {
	common := agreement{epoch: e.epoch, digest: e.digest}
	e.accepted = false
	e.agreed = list.without(func(a *agreement) bool {
		common.next = a.next
		if *a != common {
			return false
		}
		e.accepted = true
		return true
	})
}

// symbols yields what the policy refers to.
func (p *policy) symbols(yield func(*policySymbol) bool) {
	if p.digest != nil && !yield(p.digest) {
		return
	}
	for a := p.agreed; a != nil; a = a.next {
		if !yield(a.digest) || a.terms.symbol != nil && !yield(a.terms.symbol) {
			return
		}
	}
}

func (a *agreement) expiry() time.Time { return time.Unix(a.expires, int64(a.expiresNano)) }

// replaces reports whether old gives way to a: there is one negotiation for
// each epoch, and one acceptance for each epoch and digest.
func (a *agreement) replaces(old *agreement) bool {
	return a.epoch == old.epoch && a.negotiated == old.negotiated &&
		(a.negotiated || a.digest == old.digest)
}

// without returns a list of those that do not match. Readers may be on the old
// one, so it is left as it is.
func (a *agreement) without(match func(*agreement) bool) *agreement {
	var kept *agreement
	for ; a != nil; a = a.next {
		if !match(a) {
			c := *a
			c.next = kept
			kept = &c
		}
	}
	return kept
}

// termSet is a Terms in one string, see termText, so that equal ones are
// stored once. The zero value says nothing about terms.
type termSet struct{ symbol *policySymbol }

// grant reports whether every obligation is in s with the same value, or s
// says nothing about terms.
func (s termSet) grant(obligations Terms) bool {
	if s.symbol == nil {
		return true
	}
	for key, want := range obligations {
		if got, ok := lookUpTerm(s.symbol.text, key); !ok || got != want {
			return false
		}
	}
	return true
}

// termText returns the keys of terms in order, each with its value, and each
// key and value after its length.
func termText(terms Terms) string {
	var text []byte
	for _, key := range slices.Sorted(maps.Keys(terms)) {
		for _, field := range [...]string{key, terms[key]} {
			text = binary.BigEndian.AppendUint32(text, uint32(len(field)))
			text = append(text, field...)
		}
	}
	return string(text)
}

func lookUpTerm(text, key string) (value string, ok bool) {
	for text != "" {
		var k, v string
		k, text = cutField(text)
		v, text = cutField(text)
		if k == key {
			return v, true
		}
	}
	return "", false
}

func cutField(text string) (field, rest string) {
	n := int(text[0])<<24 | int(text[1])<<16 | int(text[2])<<8 | int(text[3])
	return text[4 : 4+n], text[4+n:]
}
