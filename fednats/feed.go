package fednats

import (
	"context"
	"fmt"
	"time"

	"github.com/fedhttp/fedhttp"
)

// Feed keeps the book current with what the fleet knows: advertisements, accepted
// policies and negotiations, in the order of their revisions. It returns once the
// book has all that there is, and goes on until Close.
//
// The book is stale (see [fedhttp.PolicyBook.SetStale]) until then, and whenever
// it has heard nothing of the cluster for Config.MaxStaleness. When ctx ends first,
// Feed returns its cause and still goes on: the book is filled once it can be.
//
// A value that is malformed, oversized, or not that of its key is refused, logged
// and counted, and has the effect of a deletion: replicas that start now and those
// that were there before know the same.
//
// The book should have no other writer. More than one book may be fed.
func (f *Fleet) Feed(ctx context.Context, book *fedhttp.PolicyBook) error {
	if err := f.needs(PartPolicies, "PartPolicies"); err != nil {
		return err
	}
	longest := f.cfg.MaxStaleness
	fresh := newFreshness(longest, func(stale bool) {
		if longest > 0 {
			book.SetStale(stale)
		}
	})
	w := f.watch(f.names.policies(), newFeed(f, book), fresh)
	select {
	case <-w.ready:
		return nil
	case <-f.life.Done():
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("fednats: the policies were not read yet: %w", context.Cause(ctx))
	}
}

// feed writes revisions into a book.
type feed struct {
	f    *Fleet
	book *fedhttp.PolicyBook
	// known has every key that is in force, and in which reading of the bucket it
	// was seen last; hashed what those are that do not say it themselves.
	known   map[string]uint32
	reading uint32
	hashed  map[string]policyValue
	// negotiated is what of the book would go with an acceptance of its digest.
	negotiated map[string]fedhttp.Negotiation
}

func newFeed(f *Fleet, book *fedhttp.PolicyBook) *feed {
	return &feed{
		f: f, book: book,
		known: map[string]uint32{}, hashed: map[string]policyValue{}, negotiated: map[string]fedhttp.Negotiation{},
	}
}

func (d *feed) begin() { d.reading++ }

func (d *feed) end() {
	for key, reading := range d.known {
		if reading != d.reading {
			d.undo(key)
		}
	}
}

func (d *feed) apply(e entry) {
	if e.deleted {
		d.undo(e.key)
		return
	}
	kind, v, err := readPolicy(e.key, e.value)
	if err == nil {
		err = d.do(kind, &v)
	}
	if err != nil {
		d.f.refusals.add(d.f.names.policies(), e.key, err)
		d.undo(e.key)
		return
	}
	d.known[e.key] = d.reading
	if hasHash(e.key) {
		d.hashed[e.key] = v
	}
}

// noDigest is advertised for a moment where only an epoch has to be known: nobody
// agrees to it.
const noDigest = "withdrawn"

func (d *feed) do(kind string, v *policyValue) error {
	switch key := v.key(); kind {
	case kindAdvertised:
		digest := string(v.Digest)
		if v.Withdrawn {
			digest = noDigest
		}
		err := d.book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: digest})
		if v.Withdrawn {
			d.book.Withdraw(key.Peer, key.Capability)
		}
		return err
	case kindAccepted:
		d.book.Accept(fedhttp.Policy{PolicyKey: key, Digest: string(v.Digest), Terms: v.terms()})
	case kindNegotiated:
		n := fedhttp.Negotiation{PolicyKey: key, Digest: string(v.Digest), ExpiresAt: *v.ExpiresAt, Terms: v.terms()}
		d.book.CacheNegotiation(n)
		d.negotiated[v.name(kind)] = n
	}
	return nil
}

// undo takes back what a key has given.
func (d *feed) undo(key string) {
	delete(d.known, key)
	kind, v, ok := nameOnly(key)
	if !ok {
		if v, ok = d.hashed[key]; !ok {
			return // never in force
		}
		kind = key[:len(kindAdvertised)]
		delete(d.hashed, key)
	}
	switch policy := v.key(); kind {
	case kindAdvertised:
		d.book.Withdraw(policy.Peer, policy.Capability)
	case kindAccepted:
		d.book.Revoke(policy, string(v.Digest))
		// That took a negotiation of the same digest along, which has a key of its own.
		if n, ok := d.negotiated[v.name(kindNegotiated)]; ok && n.Digest == string(v.Digest) {
			d.book.CacheNegotiation(n)
		}
	case kindNegotiated:
		n, ok := d.negotiated[key]
		if !ok {
			return
		}
		delete(d.negotiated, key)
		// One that has expired replaces it.
		n.ExpiresAt = time.Time{}
		d.book.CacheNegotiation(n)
	}
}
