package fedhttp

import (
	"strconv"
	"sync"
	"testing"
)

// Each key keeps its value, whether it is among the first or not, up to the bound;
// beyond it the value is made anew each time.
func TestSeen(t *testing.T) {
	t.Parallel()
	var s seen[int, string]
	made := make([]int, maxSeen+10)
	ask := func(key int) {
		if got := s.of(key, func() string { made[key]++; return strconv.Itoa(key) }); got != strconv.Itoa(key) {
			t.Fatalf("%d has %q", key, got)
		}
	}
	for range 3 {
		for key := range made {
			ask(key)
		}
	}
	for key, n := range made {
		want := 1
		if key >= maxSeen {
			want = 3
		}
		if n != want {
			t.Errorf("%d was made %d times, want %d", key, n, want)
		}
	}
}

// Who asks at the same time gets the value of the key, and one of them is kept.
func TestSeenTogether(t *testing.T) {
	t.Parallel()
	var s seen[int, int]
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for key := range 20 {
				if got := s.of(key, func() int { return 2 * key }); got != 2*key {
					t.Errorf("%d has %d", key, got)
				}
			}
		})
	}
	wg.Wait()
	if known := s.known.Load(); len(known.first)+len(known.more) != 20 {
		t.Errorf("%d and %d are kept, want 20 in all", len(known.first), len(known.more))
	}
}
