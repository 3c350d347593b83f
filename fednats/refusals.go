package fednats

import (
	"log/slog"
	"sync"
	"time"
)

// refusals counts values that were refused and tells the log of the first of each
// minute: whoever writes them must not be able to fill it.
type refusals struct {
	log *slog.Logger

	mu      sync.Mutex
	total   uint64
	minute  time.Time
	written int
}

const refusalsPerMinute = 10

func (r *refusals) add(bucket, key string, why error) {
	r.mu.Lock()
	r.total++
	total := r.total
	if now := time.Now(); now.Sub(r.minute) >= time.Minute {
		r.minute, r.written = now, 0
	}
	write := r.written < refusalsPerMinute
	if write {
		r.written++
	}
	r.mu.Unlock()
	if write {
		r.log.Warn("fednats: a value was refused", slog.String("bucket", bucket), slog.String("key", quote(key)),
			slog.String("why", quote(why.Error())), slog.Uint64("refused", total))
	}
}

func (r *refusals) count() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}
