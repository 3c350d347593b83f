package fedspiffe

import "time"

// SetFetchTimeout changes how long a fetch may take.
func SetFetchTimeout(s *Source, peer string, d time.Duration) {
	s.peers[peer].domain.client.Timeout = d
}
