package fedhttp

import "sync"

// keepRecent is how many escalations and denials a Transport remembers.
const keepRecent = 100

// recent keeps the last events for those who ask what has happened.
type recent[E any] struct {
	mu   sync.Mutex
	ring []E
	next int // the oldest, once the ring is full
}

func (r *recent[E]) add(e E) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < keepRecent {
		r.ring = append(r.ring, e)
		return
	}
	r.ring[r.next] = e
	r.next = (r.next + 1) % keepRecent
}

// list returns a copy, the newest first.
func (r *recent[E]) list() []E {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]E, 0, len(r.ring))
	for i := range r.ring {
		all = append(all, r.ring[(r.next+len(r.ring)-1-i)%len(r.ring)])
	}
	return all
}
