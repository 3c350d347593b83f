package fedhttp

import (
	"maps"
	"sync"
	"sync/atomic"
)

// seen keeps what was made once for a key, for the few keys that come again and
// again. It is read without a lock and without an allocation; each new key copies
// it, so it is bounded. The first few are a list: a map has room for eight at once.
type seen[K comparable, V any] struct {
	known atomic.Pointer[seenKeys[K, V]]
	write sync.Mutex
}

type seenKeys[K comparable, V any] struct {
	first []seenKey[K, V]
	more  map[K]V
}

type seenKey[K comparable, V any] struct {
	key   K
	value V
}

const firstSeen, maxSeen = 8, 512

func (s *seenKeys[K, V]) find(key K) (value V, ok bool) {
	for i := range s.first {
		if s.first[i].key == key {
			return s.first[i].value, true
		}
	}
	value, ok = s.more[key]
	return value, ok
}

// with returns a copy that has the key too.
func (s *seenKeys[K, V]) with(key K, value V) *seenKeys[K, V] {
	if len(s.first) < firstSeen {
		return &seenKeys[K, V]{first: append(s.first[:len(s.first):len(s.first)], seenKey[K, V]{key, value})}
	}
	more := map[K]V{key: value}
	maps.Copy(more, s.more)
	return &seenKeys[K, V]{s.first, more}
}

// of returns the value of the key, which make makes where it is not kept.
func (s *seen[K, V]) of(key K, make func() V) V {
	if known := s.known.Load(); known != nil {
		if v, ok := known.find(key); ok {
			return v
		}
	}
	v := make()
	s.write.Lock()
	defer s.write.Unlock()
	known := s.known.Load()
	if known == nil {
		known = &seenKeys[K, V]{}
	}
	if _, ok := known.find(key); !ok && len(known.first)+len(known.more) < maxSeen {
		s.known.Store(known.with(key, v))
	}
	return v
}
