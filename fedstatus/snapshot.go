package fedstatus

import (
	"cmp"
	"slices"
	"time"

	"github.com/fedhttp/fedhttp"
)

// The bounds of a page.
const (
	maxPeers    = 1000
	maxHeldKeys = 1000
	maxOrigins  = 16
	maxRecent   = 100
	maxEvidence = 16
)

// recently is how long an escalation makes its peer one that needs attention.
const recently = time.Hour

// snapshot reads the state. All text in it has passed shown, all times timeOf.
func snapshot(src source, now time.Time) Status {
	all := src.Status()
	escalations := src.RecentEscalations()
	peers := peerStates(all, escalations, now)
	s := Status{
		At:          timeOf(now),
		Summary:     summarize(peers),
		Escalations: convert(escalations, escalationOf),
		Denials:     convert(src.RecentDenials(), func(d fedhttp.Denial) Denial { return denialOf(d, now) }),
	}
	first := worstFirst(peers)
	s.PeersOmitted = len(peers) - len(first)
	s.Peers = make([]Peer, 0, len(first))
	for i := range first {
		s.Peers = append(s.Peers, peerOf(&first[i]))
	}
	s.HeldKeys = longestFirst(all)
	s.HeldKeysOmitted = s.Summary.HeldKeys - len(s.HeldKeys)
	return s
}

// peerState is what there is to tell of a peer.
type peerState struct {
	*fedhttp.PeerStatus
	escalated
	problems []Problem // the worst first
}

// escalated is what the escalations tell of a peer.
type escalated struct {
	recently int
	last     time.Time
}

// peerStates returns the states of the peers, in their order. The escalations are
// the newest first.
func peerStates(all []fedhttp.PeerStatus, escalations []fedhttp.Escalation, now time.Time) []peerState {
	of := make(map[string]escalated)
	for _, e := range escalations[:min(len(escalations), maxRecent)] {
		known := of[e.Decision.Peer]
		if e.At.After(known.last) {
			known.last = e.At
		}
		if now.Sub(e.At) < recently {
			known.recently++
		}
		of[e.Decision.Peer] = known
	}
	states := make([]peerState, len(all))
	for i := range all {
		p := peerState{PeerStatus: &all[i], escalated: of[all[i].ID]}
		if at := all[i].LastEscalationAt; at.After(p.last) { // those of other peers have taken its place
			p.last = at
			if p.recently == 0 && now.Sub(at) < recently {
				p.recently = 1
			}
		}
		p.problems = problemsOf(&p, now)
		states[i] = p
	}
	return states
}

// problemsOf returns what is wrong with the peer, the worst first. It is not nil.
func problemsOf(p *peerState, now time.Time) []Problem {
	found := []Problem{}
	for _, problem := range problems {
		var has bool
		switch problem {
		case ProblemBreakerOpen:
			has = p.Breaker == "open"
		case ProblemAnchorExpired:
			has = !p.AnchorExpiresAt.IsZero() && !now.Before(p.AnchorExpiresAt)
		case ProblemDenialBudgetSpent:
			has = p.DenialsLeft == 0
		case ProblemEscalations:
			has = p.recently > 0
		case ProblemBreakerHalfOpen:
			has = p.Breaker == "half-open"
		case ProblemDegraded:
			has = p.Degraded
		case ProblemAnchorRefreshFailed:
			has = p.AnchorError != ""
		}
		if has {
			found = append(found, problem)
		}
	}
	return found
}

func summarize(peers []peerState) Summary {
	s := Summary{Peers: len(peers), Problems: make(map[Problem]int, len(problems))}
	for _, p := range problems {
		s.Problems[p] = 0
	}
	var last time.Time
	for i := range peers {
		p := &peers[i]
		if len(p.problems) > 0 {
			s.NeedAttention++
		}
		for _, problem := range p.problems {
			s.Problems[problem]++
		}
		s.RecentEscalations += p.recently
		if p.last.After(last) {
			last = p.last
		}
		s.Held += p.Held
		s.HeldKeys += len(p.HeldTasks)
		for _, h := range p.HeldTasks {
			s.OldestHeldSeconds = max(s.OldestHeldSeconds, seconds(h.OldestFor))
		}
		s.InFlight += p.InFlight
		s.Denials += p.Denials
	}
	s.LastEscalationAt = timeOf(last)
	return s
}

// worstFirst returns the first maxPeers peers, ordered by their worst problem.
func worstFirst(peers []peerState) []peerState {
	rank := func(p peerState) int {
		if len(p.problems) == 0 {
			return len(problems)
		}
		return slices.Index(problems, p.problems[0])
	}
	sorted := slices.Clone(peers)
	slices.SortStableFunc(sorted, func(a, b peerState) int { return cmp.Compare(rank(a), rank(b)) })
	return sorted[:min(len(sorted), maxPeers)]
}

// longestFirst returns the maxHeldKeys keys of all peers that wait longest.
func longestFirst(states []fedhttp.PeerStatus) []HeldKey {
	type held struct {
		peer string
		*fedhttp.HeldStatus
	}
	var all []held
	keep := func() {
		slices.SortStableFunc(all, func(a, b held) int { return cmp.Compare(b.OldestFor, a.OldestFor) })
		all = all[:min(len(all), maxHeldKeys)]
	}
	for i := range states {
		for j := range states[i].HeldTasks {
			all = append(all, held{states[i].ID, &states[i].HeldTasks[j]})
			if len(all) >= 2*maxHeldKeys {
				keep()
			}
		}
	}
	keep()
	keys := make([]HeldKey, 0, len(all))
	for _, h := range all {
		keys = append(keys, HeldKey{
			Peer: shown(h.peer), Capability: shown(h.Capability), Tasks: h.Tasks,
			OldestSeconds: seconds(h.OldestFor), Epoch: h.Epoch, Digest: shown(h.Digest),
		})
	}
	return keys
}

func peerOf(p *peerState) Peer {
	return Peer{
		ID:      shown(p.ID),
		Origins: convert(p.Origins[:min(len(p.Origins), maxOrigins)], shown), OriginsOmitted: max(0, len(p.Origins)-maxOrigins),
		Problems: p.problems,
		Held:     p.Held, HeldKeys: len(p.HeldTasks), InFlight: p.InFlight,
		RecentEscalations: p.recently, LastEscalationAt: timeOf(p.last),
		Denials: p.Denials, DenialsLeft: p.DenialsLeft,
		Breaker: shown(p.Breaker), BreakerRetryAt: timeOf(p.BreakerRetryAt), Degraded: p.Degraded,
		Anchor: Anchor{
			Version: shown(p.AnchorVersion), AgeSeconds: seconds(p.AnchorAge),
			IssuedAt: timeOf(p.AnchorIssuedAt), ExpiresAt: timeOf(p.AnchorExpiresAt), DueAt: timeOf(p.AnchorDueAt),
			Error: shown(p.AnchorError),
		},
	}
}

func escalationOf(e fedhttp.Escalation) Escalation {
	d := &e.Decision
	evidence := d.Evidence[:min(len(d.Evidence), maxEvidence)]
	return Escalation{
		At: timeOf(e.At), Kind: e.Kind.String(),
		Peer: shown(d.Peer), Capability: shown(d.Capability), TaskID: shown(d.TaskID), CorrelationID: shown(d.CorrelationID),
		Outcome: d.Outcome.String(), Reason: d.Reason.String(), Delivery: d.Delivery.String(),
		Evidence:     convert(evidence, fedhttp.Evidence.String),
		PolicyReason: shown(d.PolicyReason), Digest: shown(d.PolicyDigest), Epoch: d.Epoch, Basis: d.Basis.String(),
		Attempts: d.Attempts, Refreshes: d.Refreshes, AnchorVersion: shown(d.AnchorVersion), HeldSeconds: seconds(d.HeldFor),
	}
}

func denialOf(d fedhttp.Denial, now time.Time) Denial {
	return Denial{
		At: timeOf(d.At), Until: timeOf(d.Until),
		Peer: shown(d.Peer), Capability: shown(d.Capability), Scope: shown(d.Scope), TaskID: shown(d.TaskID),
		Status: d.Status, PolicyReason: shown(d.PolicyReason), CorrelationID: shown(d.CorrelationID),
		Digest: shown(d.Digest), Epoch: d.Epoch, Holds: now.Before(d.Until),
	}
}

// convert converts the first maxRecent of a list. It never returns nil.
func convert[From, To any](list []From, one func(From) To) []To {
	list = list[:min(len(list), maxRecent)]
	all := make([]To, 0, len(list))
	for _, from := range list {
		all = append(all, one(from))
	}
	return all
}

// seconds is d to the millisecond.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }

// timeOf returns t in UTC, to the millisecond. A year that RFC 3339 cannot write
// becomes the last that it can, or unknown where it is before the first.
func timeOf(t time.Time) time.Time {
	t = t.UTC().Truncate(time.Millisecond)
	switch {
	case t.Year() > 9999:
		return time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
	case t.Year() < 1:
		return time.Time{}
	}
	return t
}
