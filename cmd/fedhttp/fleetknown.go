package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fednats"
)

// known is what a fleet knows of policies, by peer and capability, and a book that
// has it all and decides.
type known struct {
	book *fedhttp.PolicyBook
	all  map[[2]string]*knownCapability
}

type knownCapability struct {
	peer, capability string
	advertised       *fednats.StoredAdvertisement // nil: never was
	accepted         []fednats.StoredPolicy
	negotiated       []fednats.StoredNegotiation
	waits            []fedhttp.Unresolved
}

// newKnown leaves out what tasks no longer wait for, and the peers and capabilities
// that are not meant.
func newKnown(policies *fednats.Policies, waits []fedhttp.Unresolved, meant func(peer, capability string) bool) *known {
	k := &known{policies.Book(), map[[2]string]*knownCapability{}}
	at := func(peer, capability string) *knownCapability {
		c := k.all[[2]string{peer, capability}]
		if c == nil {
			c = &knownCapability{peer: peer, capability: capability}
			if meant(peer, capability) {
				k.all[[2]string{peer, capability}] = c
			}
		}
		return c
	}
	for i, a := range policies.Advertised {
		at(a.Peer, a.Capability).advertised = &policies.Advertised[i]
	}
	for _, p := range policies.Accepted {
		c := at(p.Peer, p.Capability)
		c.accepted = append(c.accepted, p)
	}
	for _, n := range policies.Negotiated {
		c := at(n.Peer, n.Capability)
		c.negotiated = append(c.negotiated, n)
	}
	for _, u := range waits {
		task := fedhttp.Task{Capability: u.Capability, Obligations: u.Obligations}
		auth, err := k.book.Authorize(u.Peer, task, nil, time.Now())
		if err != nil && u.Epoch >= auth.Epoch { // else another one is asked for by now
			c := at(u.Peer, u.Capability)
			c.waits = append(c.waits, u)
		}
	}
	return k
}

func (k *known) sorted() []*knownCapability {
	return slices.SortedFunc(maps.Values(k.all), func(a, b *knownCapability) int {
		return cmp.Or(cmp.Compare(a.peer, b.peer), cmp.Compare(a.capability, b.capability))
	})
}

func (k *known) write(w io.Writer, now time.Time) error {
	if len(k.all) == 0 {
		_, err := fmt.Fprintln(w, "There is none.")
		return err
	}
	for i, c := range k.sorted() {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if _, err := fmt.Fprintf(w, "%s  %s\n", plain(c.peer), plain(c.capability)); err != nil {
			return err
		}
		r := c.rows(now)
		r.add("tasks", k.tasks(c, now)...)
		r.write(w, "  ")
	}
	return nil
}

func (c *knownCapability) rows(now time.Time) (r rows) {
	r.add("advertised", c.advertisedText(now))
	var accepted, negotiated, waits []string
	for _, p := range c.accepted {
		accepted = append(accepted, policyText(p.Epoch, p.Digest, p.Terms)+c.differs(p.Epoch, p.Digest))
	}
	for _, n := range c.negotiated {
		text := policyText(n.Epoch, n.Digest, n.Terms) + ", until " + instant(n.ExpiresAt, now)
		if !now.Before(n.ExpiresAt) {
			text = policyText(n.Epoch, n.Digest, n.Terms) + ", expired " + instant(n.ExpiresAt, now)
		}
		negotiated = append(negotiated, text+c.differsEpoch(n.Epoch))
	}
	for _, u := range c.waits {
		waits = append(waits, unresolvedText(u, now))
	}
	r.add("accepted", accepted...)
	r.add("negotiated", negotiated...)
	r.add("unresolved", waits...)
	return r
}

func (c *knownCapability) advertisedText(now time.Time) string {
	switch a := c.advertised; {
	case a == nil:
		return "nothing"
	case a.Withdrawn:
		return fmt.Sprintf("nothing; withdrawn in epoch %d, %s", a.Epoch, instant(a.StoredAt, now))
	default:
		return policyText(a.Epoch, a.Digest, nil) + ", since " + instant(a.StoredAt, now)
	}
}

// differs says where what was accepted is not what is advertised.
func (c *knownCapability) differs(epoch uint64, digest string) string {
	text := c.differsEpoch(epoch)
	if text == "" && digest != c.advertised.Digest {
		return ": not what is advertised, which is " + plain(c.advertised.Digest)
	}
	return text
}

func (c *knownCapability) differsEpoch(epoch uint64) string {
	switch a := c.advertised; {
	case a == nil || a.Withdrawn:
		return ": not advertised"
	case epoch < a.Epoch:
		return fmt.Sprintf(": over, epoch %d is advertised", a.Epoch)
	case epoch > a.Epoch:
		return fmt.Sprintf(": not yet, epoch %d is advertised", a.Epoch)
	}
	return ""
}

// anyTerm stands for an obligation that no terms name.
var anyTerm = fedhttp.Terms{"\x00": ""}

// tasks says under what tasks with obligations may go out now. The book decides; here
// it is only asked.
func (k *known) tasks(c *knownCapability, now time.Time) []string {
	ask := func(obligations fedhttp.Terms) (fedhttp.Authorization, bool) {
		auth, err := k.book.Authorize(c.peer, fedhttp.Task{Capability: c.capability, Obligations: obligations}, nil, now)
		return auth, err == nil
	}
	auth, ok := ask(anyTerm)
	if ok {
		return []string{fmt.Sprintf("go out under %s (%v)", plain(auth.Digest), auth.Basis)}
	}
	var lines []string
	terms := make([]fedhttp.Terms, 0, len(c.accepted)+len(c.negotiated))
	for _, p := range c.accepted {
		terms = append(terms, p.Terms)
	}
	for _, n := range c.negotiated {
		terms = append(terms, n.Terms)
	}
	for _, t := range terms {
		if auth, ok := ask(t); ok && len(t) > 0 {
			line := fmt.Sprintf("go out under %s (%v) where they ask for no more than %s", plain(auth.Digest), auth.Basis, termsText(t))
			if !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	switch {
	case lines != nil:
		return lines
	case auth.Digest == "":
		return []string{"wait, where they have obligations: nothing is advertised"}
	}
	return []string{fmt.Sprintf("wait, where they have obligations: %s of epoch %d is not agreed to", plain(auth.Digest), auth.Epoch)}
}

func policyText(epoch uint64, digest string, terms fedhttp.Terms) string {
	text := fmt.Sprintf("epoch %d, %s", epoch, plain(digest))
	switch {
	case len(terms) > 0:
		text += ", terms " + termsText(terms)
	case terms != nil:
		text += ", which grants no terms"
	}
	return text
}

func termsText(t fedhttp.Terms) string { return plain(strings.Join(sorted(t), " ")) }

func unresolvedText(u fedhttp.Unresolved, now time.Time) string {
	text := "nothing is advertised"
	if u.Digest != "" {
		text = policyText(u.Epoch, u.Digest, nil)
	}
	return fmt.Sprintf("%s: %v, for tasks with %s, %s", text, u.Reason, termsText(u.Obligations), instant(u.At, now))
}

// policyLine is a record as JSON. Kind is advertised, accepted, negotiated or
// unresolved.
type policyLine struct {
	Kind       string `json:"kind"`
	Peer       string `json:"peer"`
	Capability string `json:"capability"`
	Epoch      uint64 `json:"epoch"`
	Digest     string `json:"digest"`
	Withdrawn  bool   `json:"withdrawn,omitempty"` // of advertised
	// Terms are null where a policy says nothing about them, and obligations are not
	// compared.
	Terms       *fedhttp.Terms `json:"terms,omitempty"`       // of accepted and negotiated
	ExpiresAt   time.Time      `json:"expires_at,omitzero"`   // of negotiated
	StoredAt    time.Time      `json:"stored_at,omitzero"`    // of all but unresolved
	Reason      string         `json:"reason,omitempty"`      // of unresolved
	Obligations fedhttp.Terms  `json:"obligations,omitempty"` // of unresolved
	At          time.Time      `json:"at,omitzero"`           // of unresolved
}

func newPolicyLine(kind string, key fedhttp.PolicyKey, digest string, storedAt time.Time) policyLine {
	return policyLine{Kind: kind, Peer: key.Peer, Capability: key.Capability, Epoch: key.Epoch, Digest: digest, StoredAt: storedAt}
}

func unresolvedLine(u fedhttp.Unresolved) policyLine {
	l := newPolicyLine("unresolved", fedhttp.PolicyKey{Peer: u.Peer, Capability: u.Capability, Epoch: u.Epoch}, u.Digest, time.Time{})
	l.Reason, l.Obligations, l.At = u.Reason.String(), u.Obligations, u.At
	return l
}

func (k *known) lines() (lines []policyLine) {
	for _, c := range k.sorted() {
		if a := c.advertised; a != nil {
			l := newPolicyLine("advertised", a.PolicyKey, a.Digest, a.StoredAt)
			l.Withdrawn = a.Withdrawn
			lines = append(lines, l)
		}
		for _, p := range c.accepted {
			l := newPolicyLine("accepted", p.PolicyKey, p.Digest, p.StoredAt)
			l.Terms = &p.Terms
			lines = append(lines, l)
		}
		for _, n := range c.negotiated {
			l := newPolicyLine("negotiated", n.PolicyKey, n.Digest, n.StoredAt)
			l.Terms, l.ExpiresAt = &n.Terms, n.ExpiresAt
			lines = append(lines, l)
		}
		for _, u := range c.waits {
			lines = append(lines, unresolvedLine(u))
		}
	}
	return lines
}
