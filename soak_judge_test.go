package fedhttp_test

import (
	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// judge compares what the servers of a generation have logged with what its
// callers were told. s.mu is held.
func (s *soak) judge(g *generation) {
	type sight struct{ sends, evaluations, excused int }
	saw := make(map[string]*sight)
	see := func(task string) *sight {
		if saw[task] == nil {
			saw[task] = new(sight)
		}
		return saw[task]
	}
	for i, p := range g.peers {
		for _, e := range p.Routing.Log() {
			v := see(e.Task)
			v.sends++
			if layer, ok := p.Author(e.CorrelationID); ok && layer == fedtest.LayerRouting {
				v.excused++ // the routing layer has turned this one away
			}
		}
		for _, e := range p.Engine.Log() {
			see(e.Task).evaluations++
		}
		for _, h := range g.hostiles[i] {
			for _, r := range h.Log() {
				v := see(r.Task)
				v.sends++
				if h.Hostile.SaysRouting {
					v.excused++
				}
			}
		}
	}
	for task := range saw {
		if _, ok := g.told[task]; !ok {
			s.t.Errorf("%s was seen, and nobody sent it", task)
		}
	}
	for task, call := range g.told {
		d, v := call.decision, see(task)
		where := soakIDs[call.peer]
		if call.hostile != nil {
			where = call.hostile.Hostile.Name
		}
		s.count.calls++
		s.count.outcomes[d.Outcome]++
		s.count.sends += v.sends
		if d.HeldFor > 0 {
			s.count.held++
		}
		if v.sends > 1 {
			s.count.repeated++
		}
		// Every send but the last must have been turned away by the routing layer.
		if v.sends > 1 && v.excused < v.sends-1 || v.evaluations > 1 {
			s.count.duplicates++
			s.t.Errorf("%s was seen %d times (%d turned away by routing, %d evaluations) by %s: %+v", task, v.sends, v.excused, v.evaluations, where, d)
		}
		if v.sends > d.Attempts {
			s.t.Errorf("%s was seen %d times in %d attempts by %s: %+v", task, v.sends, d.Attempts, where, d)
		}
		if unsent(d.Outcome) && (v.sends > 0 || d.Attempts > 0) {
			s.t.Errorf("%s is %v, and was seen %d times by %s", task, d.Outcome, v.sends, where)
		}
		if d.Outcome == fedhttp.OutcomeDelivered && v.sends == 0 && call.hostile == nil { // some hostile ones answer unasked
			s.t.Errorf("%s was delivered, and %s has not seen it: %+v", task, where, d)
		}
	}
	g.told, g.peers, g.hostiles = nil, [soakPeers]*fedtest.Peer{}, [soakPeers][]*fedtest.HostileServer{}
}

// unsent reports whether nothing of such a call may have been sent.
func unsent(o fedhttp.Outcome) bool {
	switch o {
	case fedhttp.OutcomePolicyUnresolved, fedhttp.OutcomeScopeDenied, fedhttp.OutcomePeerUnavailable,
		fedhttp.OutcomeUnknownPeer, fedhttp.OutcomeTaskRequired:
		return true
	}
	return false
}
