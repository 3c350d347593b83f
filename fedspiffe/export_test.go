package fedspiffe

import (
	"runtime"
	"time"
)

// SetFetchTimeout changes how long a fetch may take, and returns what it was.
func SetFetchTimeout(s *Source, peer string, limit time.Duration) (before time.Duration) {
	c := s.peers[peer].domain.client
	before, c.Timeout = c.Timeout, limit
	return before
}

// AwaitWaiters returns when n callers wait for the next fetch of the peer's domain.
func AwaitWaiters(s *Source, peer string, n int) {
	for d := s.peers[peer].domain; ; runtime.Gosched() {
		d.mu.Lock()
		waiting := d.next != nil && d.next.waiters == n
		d.mu.Unlock()
		if waiting {
			return
		}
	}
}
