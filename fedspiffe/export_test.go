package fedspiffe

import "time"

// SetFetchTimeout changes how long a fetch may take, and returns what it was.
func SetFetchTimeout(s *Source, peer string, limit time.Duration) (before time.Duration) {
	c := s.peers[peer].domain.client
	before, c.Timeout = c.Timeout, limit
	return before
}
