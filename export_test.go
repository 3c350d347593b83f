package fedhttp

import "math"

// EndAttempts does what the alarm does when AttemptTimeout is over, for every attempt
// that is under way: for tests of what comes of it at a certain moment, which no timer
// meets on a machine that has other things to do. It returns how many there were.
func EndAttempts(t *Transport) int {
	var over []*attempt
	for _, p := range t.peers.Load().peers {
		for i := range p.clocks.lanes {
			l := &p.clocks.lanes[i]
			l.mu.Lock()
			over = l.over(over, math.MaxInt64)
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
