package fedhttp

import (
	"maps"
	"sync"
	"sync/atomic"
)

// seen keeps what was made once for a key, for the few keys that come again and
// again. It is read without a lock and without an allocation; each new key copies
// it, so it is bounded.
type seen[K comparable, V any] struct {
	known atomic.Pointer[map[K]V]
	write sync.Mutex
}

const maxSeen = 512

// of returns the value of the key, which make makes where it is not kept.
func (s *seen[K, V]) of(key K, make func() V) V {
	if known := s.known.Load(); known != nil {
		if v, ok := (*known)[key]; ok {
			return v
		}
	}
	v := make()
	s.write.Lock()
	defer s.write.Unlock()
	grown := map[K]V{key: v}
	if known := s.known.Load(); known != nil {
		if len(*known) >= maxSeen {
			return v
		}
		maps.Copy(grown, *known)
	}
	s.known.Store(&grown)
	return v
}
