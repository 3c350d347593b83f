package fedtest

import "net/http"

// script is what a peer was told to answer. Peer.mu guards it.
type script struct {
	byKey     map[string][]Step
	queue     []Step
	otherwise Step
}

// On adds steps for one task, or for one path: each of its requests takes the
// next step, and when none is left they go the ordinary way. Steps for a task
// come before those for a path, and both before those of [Peer.Script]. This
// is also how the anchor endpoint is made to fail: On(AnchorPath, …).
func (p *Peer) On(taskOrPath string, steps ...Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script.byKey[taskOrPath] = append(p.script.byKey[taskOrPath], steps...)
}

// Script adds steps for whichever requests come next. The well-known paths
// take none of them.
func (p *Peer) Script(steps ...Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script.queue = append(p.script.queue, steps...)
}

// Otherwise sets the step that each request takes for which no other is left;
// nil, as at first, is [Pass]. The well-known paths do not take it.
func (p *Peer) Otherwise(step Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script.otherwise = step
}

// StepsLeft returns how many steps of [Peer.On] and [Peer.Script] were not
// taken yet.
func (p *Peer) StepsLeft() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := len(p.script.queue)
	for _, steps := range p.script.byKey {
		left += len(steps)
	}
	return left
}

func (p *Peer) nextStep(r *http.Request, x *exchange) Step {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.script
	keys := []string{r.URL.Path}
	if x.entry != nil {
		keys = []string{x.entry.Task, r.URL.Path}
	}
	for _, key := range keys {
		if steps := s.byKey[key]; len(steps) > 0 {
			s.byKey[key] = steps[1:]
			return steps[0]
		}
	}
	switch {
	case x.entry == nil:
	case len(s.queue) > 0:
		step := s.queue[0]
		s.queue = s.queue[1:]
		return step
	case s.otherwise != nil:
		return s.otherwise
	}
	return Pass()
}
