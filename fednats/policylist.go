package fednats

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fedhttp/fedhttp"
)

// Policies is what a fleet has on record of policies at one moment, in the order in
// which it was written.
type Policies struct {
	Advertised []StoredAdvertisement
	Accepted   []StoredPolicy
	Negotiated []StoredNegotiation
}

// StoredAdvertisement is what a peer advertises. StoredAt is when the cluster took it,
// here and below.
type StoredAdvertisement struct {
	fedhttp.Advertisement
	// Withdrawn says that the peer advertises the capability no longer. The epoch is
	// the last one then, and Digest means nothing.
	Withdrawn bool
	StoredAt  time.Time
}

// StoredPolicy is a digest that was accepted.
type StoredPolicy struct {
	fedhttp.Policy
	StoredAt time.Time
}

// StoredNegotiation is the result of a negotiation. It may have expired.
type StoredNegotiation struct {
	fedhttp.Negotiation
	StoredAt time.Time
}

// Policies reads what is on record, for tools: [Fleet.Feed] is what a Transport needs.
// What Feed would refuse is left out, logged and counted.
func (f *Fleet) Policies(ctx context.Context) (*Policies, error) {
	if err := f.needs(PartPolicies, "PartPolicies"); err != nil {
		return nil, err
	}
	bucket := f.names.policies()
	r := policyReader{refuse: func(key string, err error) { f.refusals.add(bucket, key, err) }, records: make(map[string]policyRecord)}
	err := f.read(ctx, bucketStream(bucket), false, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) {
		r.apply(entryOf(msg, bucketSubject(bucket), meta.Sequence.Stream), meta.Timestamp)
	})
	if err != nil {
		return nil, err
	}
	return r.list(), nil
}

// policyReader keeps the last word of each key, which may change while it is read.
type policyReader struct {
	refuse  func(key string, err error)
	records map[string]policyRecord
}

type policyRecord struct {
	kind     string
	value    policyValue
	revision uint64
	at       time.Time
}

func (r *policyReader) apply(e entry, at time.Time) {
	delete(r.records, e.key)
	if e.deleted {
		return
	}
	kind, v, err := readPolicy(e.key, e.value)
	if err != nil {
		r.refuse(e.key, err)
		return
	}
	r.records[e.key] = policyRecord{kind, v, e.revision, at}
}

func (r *policyReader) list() *Policies {
	p := &Policies{}
	byRevision := func(a, b policyRecord) int { return cmp.Compare(a.revision, b.revision) }
	for _, record := range slices.SortedFunc(maps.Values(r.records), byRevision) {
		p.add(record.kind, &record.value, record.at)
	}
	return p
}

func (p *Policies) add(kind string, v *policyValue, at time.Time) {
	key, digest, terms := v.key(), string(v.Digest), v.terms()
	switch kind {
	case kindAdvertised:
		p.Advertised = append(p.Advertised, StoredAdvertisement{fedhttp.Advertisement{PolicyKey: key, Digest: digest}, v.Withdrawn, at})
	case kindAccepted:
		p.Accepted = append(p.Accepted, StoredPolicy{fedhttp.Policy{PolicyKey: key, Digest: digest, Terms: terms}, at})
	case kindNegotiated:
		n := fedhttp.Negotiation{PolicyKey: key, Digest: digest, ExpiresAt: *v.ExpiresAt, Terms: terms}
		p.Negotiated = append(p.Negotiated, StoredNegotiation{n, at})
	}
}

// Book returns a book that has just that, and decides as those of the replicas do.
func (p *Policies) Book() *fedhttp.PolicyBook {
	book := new(fedhttp.PolicyBook)
	for _, a := range p.Advertised {
		if book.Advertise(a.Advertisement) == nil && a.Withdrawn {
			book.Withdraw(a.Peer, a.Capability)
		}
	}
	for _, accepted := range p.Accepted {
		book.Accept(accepted.Policy)
	}
	for _, n := range p.Negotiated {
		book.CacheNegotiation(n.Negotiation)
	}
	return book
}
