package fedhttp

import "net/http"

// EndAttempts does what the alarm does when AttemptTimeout is over, for the attempts
// under way whose requests are chosen; nil: all. It is for tests of what comes of it at a
// certain moment, which no timer meets on a machine that has other things to do. It
// returns how many there were.
func EndAttempts(t *Transport, chosen func(*http.Request) bool) int {
	var over []*attempt
	for _, p := range t.peers.Load().peers {
		for i := range p.clocks.lanes {
			l := &p.clocks.lanes[i]
			l.mu.Lock()
			for place, a := range l.places {
				if a != nil && (chosen == nil || chosen(&a.request)) && a.clock.state.CompareAndSwap(clockRuns, clockUp) {
					l.places[place] = nil
					l.out++
					over = append(over, a)
				}
			}
			l.closeRanks()
			l.unlock()
		}
	}
	for _, a := range over {
		a.cancel()
		if body, ok := a.request.Body.(*watchedBody); ok {
			body.abandon()
		}
	}
	return len(over)
}
