package fednats

import (
	"sync"
	"time"
)

// freshness is since when what is in memory may have fallen behind, and says when
// that is too long.
type freshness struct {
	max  time.Duration // negative: it is never too long
	tell func(stale bool)

	mu    sync.Mutex
	at    time.Time // zero: nothing was ever read
	stale bool
	timer *time.Timer
	ended bool
}

// newFreshness is stale until the first advance.
func newFreshness(longest time.Duration, tell func(bool)) *freshness {
	f := &freshness{max: longest, tell: tell, stale: true}
	tell(true)
	return f
}

// advance tells that memory has all that the cluster had at a time.
func (f *freshness) advance(at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || !at.After(f.at) {
		return
	}
	f.at = at
	if f.max >= 0 {
		left := f.max - time.Since(at)
		if left <= 0 {
			return
		}
		if f.timer == nil {
			f.timer = time.AfterFunc(left, f.expire)
		} else {
			f.timer.Reset(left)
		}
	}
	f.set(false)
}

func (f *freshness) expire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	// The timer may have run out just before it was set anew.
	if !f.ended && time.Since(f.at) >= f.max {
		f.set(true)
	}
}

// set is called with f.mu held.
func (f *freshness) set(stale bool) {
	if f.stale != stale {
		f.stale = stale
		f.tell(stale)
	}
}

// end leaves it stale: nothing keeps memory current any more.
func (f *freshness) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	if f.timer != nil {
		f.timer.Stop()
	}
	if f.max >= 0 {
		f.set(true)
	}
}

// age is how old memory is; negative: nothing was ever read.
func (f *freshness) age() (age time.Duration, stale bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.at.IsZero() {
		return -1, f.stale
	}
	return time.Since(f.at), f.stale
}

// interval is how often the cluster is asked.
func (f *freshness) interval() time.Duration {
	if f.max < 0 {
		return probeInterval
	}
	return min(f.max/4, probeInterval)
}

const probeInterval = 15 * time.Second
