package fednats

import "time"

// Status is how a fleet fares, as this program sees it.
type Status struct {
	// Connected tells whether there is a connection, and Server to which server.
	Connected bool
	Server    string
	// PoliciesAge is how old what the books know may be: since when the cluster may
	// have had something else. Negative: nothing was read yet, or no book is fed.
	PoliciesAge time.Duration
	// PoliciesStale tells that it is more than Config.MaxStaleness.
	PoliciesStale bool
	// Denials, Unresolved and Escalations are what is published.
	Denials, Unresolved, Escalations SpoolStatus
	// Refused counts the values of the buckets that were refused.
	Refused uint64
	// LastError is the last thing that went wrong with the cluster, bounded and
	// escaped; it may be over.
	LastError string
}

// Status returns the state now. It asks nobody.
func (f *Fleet) Status() Status {
	s := Status{Connected: f.connected(), Server: f.conn.ConnectedUrlRedacted(), PoliciesAge: -1, Refused: f.refusals.count()}
	f.mu.Lock()
	for _, w := range f.watchers {
		if w.bucket != f.names.policies() {
			continue
		}
		age, stale := w.fresh.age()
		s.PoliciesAge, s.PoliciesStale = max(s.PoliciesAge, age), s.PoliciesStale || stale
	}
	f.mu.Unlock()
	for _, o := range []struct {
		from *outbox
		to   *SpoolStatus
	}{{f.denied, &s.Denials}, {f.unresolved, &s.Unresolved}, {f.escalated, &s.Escalations}} {
		if o.from != nil {
			*o.to = o.from.status()
		}
	}
	if last := f.lastErr.Load(); last != nil {
		s.LastError = *last
	}
	return s
}
