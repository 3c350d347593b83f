package fedhttp

import "time"

// PeerStatus is the state of one peer at one time. It has no secrets, and what
// came from the peer is bounded and escaped.
type PeerStatus struct {
	ID string
	// Origins are where the peer is reached, normalised.
	Origins []string
	// Held tasks wait for their policy; calls in flight have been sent and have
	// not returned from RoundTrip.
	Held, InFlight int
	// HeldTasks are the held tasks by capability, the one that has waited longest
	// first. Nil where none are held.
	HeldTasks []HeldStatus
	// Denials counts the rejections since the peer was configured.
	Denials int
	// DenialsLeft is how many more denials DenialPolicy.Budget allows before
	// tasks are refused. -1: no budget is set.
	DenialsLeft int
	// LastEscalationAt is when the last call to the peer was escalated, zero where none
	// was: RecentEscalations are those of all peers, and may not have it any more.
	LastEscalationAt time.Time
	// Breaker is "closed", "half-open", "open" or "off".
	Breaker string
	// BreakerRetryAt is when an open breaker lets a trial through; zero for any other.
	BreakerRetryAt time.Time
	// Degraded tells whether we disbelieve the peer's signals: by SetDegraded, or
	// as its breaker is not closed.
	Degraded bool
	// AnchorVersion is that of the anchor at hand, "" where there is none, and
	// AnchorAge the time since it was fetched or confirmed.
	AnchorVersion string
	AnchorAge     time.Duration
	// AnchorIssuedAt and AnchorExpiresAt bound the anchor's life; zero is unknown.
	AnchorIssuedAt, AnchorExpiresAt time.Time
	// AnchorDueAt is when MaintainAnchors fetches it anew; zero before the first fetch.
	AnchorDueAt time.Time
	// AnchorError is why the last fetch failed; "" where it did not.
	AnchorError string
}

// HeldStatus is the held tasks of one capability.
type HeldStatus struct {
	Capability string
	Tasks      int
	// OldestFor is how long the oldest of them has waited, to the second.
	OldestFor time.Duration
	// Epoch and Digest are what the peer advertises; zero where it advertises nothing.
	Epoch  uint64
	Digest string
}

// Status returns the state of every peer, in the order of the configuration. It
// is safe for concurrent use.
func (t *Transport) Status() []PeerStatus {
	table := t.peers.Load()
	if table == nil {
		return nil
	}
	now := time.Now()
	all := make([]PeerStatus, len(table.peers))
	for i, p := range table.peers {
		all[i] = t.statusOf(p, now)
	}
	return all
}

func (t *Transport) statusOf(p *peer, now time.Time) PeerStatus {
	b := p.breaker.Load()
	s := PeerStatus{
		ID: p.ID, InFlight: int(p.inFlight.Load()),
		Denials: int(p.denials.total.Load()), DenialsLeft: p.denials.left(now, p.Denial),
		Breaker: b.String(), Degraded: p.disbelieved(),
	}
	for _, o := range p.origins {
		s.Origins = append(s.Origins, o.String())
	}
	if at := p.raised.Load(); at != 0 {
		s.LastEscalationAt = time.Unix(0, at)
	}
	if b.open() {
		s.BreakerRetryAt = b.retryAt(now)
	}
	for _, h := range p.held.list(now) {
		// Any obligation at all makes the book say what it knows of the capability.
		auth, _ := t.book.Authorize(p.ID, Task{Capability: h.Capability, Obligations: anyObligation}, nil, now)
		h.Epoch, h.Digest = auth.Epoch, sanitize(auth.Digest)
		h.Capability = sanitize(h.Capability)
		s.HeldTasks = append(s.HeldTasks, h)
		s.Held += h.Tasks
	}
	if a := p.anchors.current.Load(); a != nil {
		s.AnchorVersion, s.AnchorAge = sanitize(a.Version), now.Sub(a.fetchedAt)
		s.AnchorIssuedAt, s.AnchorExpiresAt = a.IssuedAt, a.ExpiresAt
	}
	var err error
	if s.AnchorDueAt, err = p.anchors.planned(); err != nil {
		s.AnchorError = errorText(err)
	}
	return s
}

var anyObligation = Terms{"": ""}

// RecentEscalations returns the last 100 escalations, the newest first, whether
// or not an Escalator took them. It is safe for concurrent use.
func (t *Transport) RecentEscalations() []Escalation { return t.lastEscalations.list() }

// RecentDenials returns the last 100 rejections, the newest first; some of them
// may be over. It is safe for concurrent use.
func (t *Transport) RecentDenials() []Denial { return t.lastDenials.list() }
