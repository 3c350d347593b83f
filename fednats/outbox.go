package fednats

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// item is a message that waits to be published.
type item struct {
	ID      string    `json:"id"` // by which the cluster knows it again
	Subject string    `json:"subject"`
	Data    []byte    `json:"data"`
	Until   time.Time `json:"until,omitzero"`  // when it is of no use any more; zero: never
	TTL     bool      `json:"ttl,omitempty"`   // the cluster forgets it then
	Once    bool      `json:"once,omitempty"`  // there is one message on its subject, ever
	Alone   bool      `json:"alone,omitempty"` // nothing may overtake it, or be overtaken
}

func (i *item) over(now time.Time) bool { return !i.Until.IsZero() && !now.Before(i.Until) }

// outbox publishes items in the background and keeps those that cannot be published
// yet. Adding one neither waits nor touches a disk.
type outbox struct {
	name    string
	max     int
	publish func(ctx context.Context, i *item) error // nil error: it is there, once
	ready   func() bool                              // whether it is worth a try
	log     *slog.Logger
	note    func(error)
	journal *journal // nil: in memory alone

	wake chan struct{}

	mu       sync.Mutex
	queue    []item
	closed   bool
	draining chan struct{} // closed when the queue is empty; nil: nobody waits
	stats    SpoolStatus
}

// SpoolStatus is how one kind of message fares.
type SpoolStatus struct {
	// Waiting are not published yet.
	Waiting int
	// Published were taken by the cluster, Lost found the spool full or can never be
	// taken, Expired were of no use any more before they could be published.
	Published, Lost, Expired uint64
	// OnDisk tells whether those that wait survive the process.
	OnDisk bool
}

func newOutbox(name string, most int) *outbox {
	return &outbox{name: name, max: most, wake: make(chan struct{}, 1)}
}

// restore begins with what an earlier process has left.
func (o *outbox) restore(j *journal, left []item, damaged int) {
	o.journal, o.queue = j, left
	if damaged > 0 {
		o.stats.Lost += uint64(damaged)
		o.log.Error("fednats: lost, damaged on disk", slog.String("kind", o.name), slog.Int("items", damaged))
	}
	if len(left) > 0 {
		o.kick()
	}
}

// add takes an item, or counts and logs its loss.
func (o *outbox) add(i item) bool {
	o.mu.Lock()
	closed, full := o.closed, len(o.queue) >= o.max
	if !closed && !full {
		o.queue = append(o.queue, i)
	}
	o.mu.Unlock()
	switch {
	case closed:
		o.lose(&i, "the fleet is closed")
	case full:
		o.lose(&i, "the spool is full")
	default:
		o.kick()
	}
	return !closed && !full
}

// lose counts a loss. The log has all that is left of it.
func (o *outbox) lose(i *item, why string) {
	o.count(func(s *SpoolStatus) { s.Lost++ })
	o.log.Error("fednats: lost", slog.String("kind", o.name), slog.String("why", why),
		slog.String("id", i.ID), slog.String("content", string(i.Data)))
}

// errNever is that the cluster will not take an item, however often it is sent.
var errNever = errors.New("the cluster does not take it")

// kick has the queue looked at now.
func (o *outbox) kick() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

const (
	publishTogether = 32
	publishTimeout  = 5 * time.Second
	publishBackoff  = 2 * time.Second // the longest
)

func (o *outbox) run(ctx context.Context) {
	var wait time.Duration
	for {
		var again <-chan time.Time
		if wait > 0 {
			again = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		case <-again:
		}
		for ctx.Err() == nil {
			more, ok := o.round(ctx)
			if !ok {
				wait = min(max(2*wait, 50*time.Millisecond), publishBackoff)
				break
			}
			wait = 0
			if !more {
				break
			}
		}
	}
}

// round publishes the first of the queue. ok is whether all of them are done with,
// more whether others wait.
func (o *outbox) round(ctx context.Context) (more, ok bool) {
	batch := o.take()
	o.journal.append(o.from)
	if len(batch) == 0 {
		return false, true
	}
	if !o.ready() {
		o.sync()
		return true, false
	}
	done := make([]bool, len(batch))
	var group sync.WaitGroup
	for n := range batch {
		group.Go(func() { done[n] = o.send(ctx, &batch[n]) })
	}
	o.keepUntil(&group)
	ok = true
	for _, d := range done {
		ok = ok && d
	}
	if !ok {
		o.sync()
	}
	removed, left := o.remove(done)
	o.journal.forget(removed, left, o.from)
	return left > 0, ok
}

// sync has what is in the file survive the machine.
func (o *outbox) sync() {
	if o.journal == nil || !o.journal.dirty {
		return
	}
	o.journal.dirty = false
	var err error
	var syncing sync.WaitGroup
	syncing.Go(func() { err = o.journal.file.Sync() })
	o.keepUntil(&syncing)
	if err != nil {
		o.journal.dirty = true
		o.journal.report(err)
	}
}

// keepUntil waits for what may take long. What comes meanwhile is in the file at once
// all the same.
func (o *outbox) keepUntil(working *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		working.Wait()
	}()
	for woken := false; ; woken = true {
		select {
		case <-o.wake:
			o.journal.append(o.from)
		case <-done:
			if woken {
				o.kick()
			}
			return
		}
	}
}

// send reports whether the item is done with.
func (o *outbox) send(ctx context.Context, i *item) bool {
	if i.over(time.Now()) {
		o.count(func(s *SpoolStatus) { s.Expired++ })
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	err := o.publish(ctx, i)
	switch {
	case err == nil:
		o.count(func(s *SpoolStatus) { s.Published++ })
		return true
	case errors.Is(err, errNever):
		o.lose(i, err.Error())
		return true
	}
	o.note(err)
	return false
}

func (o *outbox) count(change func(*SpoolStatus)) {
	o.mu.Lock()
	change(&o.stats)
	o.mu.Unlock()
}

// take returns the items that may go together.
func (o *outbox) take() []item {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for n < len(o.queue) && n < publishTogether {
		if o.queue[n].Alone {
			if n == 0 {
				n = 1
			}
			break
		}
		n++
	}
	return append([]item(nil), o.queue[:n]...)
}

// from returns the queue without its first n items.
func (o *outbox) from(n int) []item {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]item(nil), o.queue[min(n, len(o.queue)):]...)
}

// remove takes those of the first items that are done with out of the queue.
func (o *outbox) remove(done []bool) (removed, left int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	to := len(done)
	for n := len(done) - 1; n >= 0; n-- {
		if !done[n] {
			to--
			o.queue[to] = o.queue[n]
		}
	}
	clear(o.queue[:to])
	o.queue = o.queue[to:]
	if left = len(o.queue); left == 0 {
		o.queue = nil
		if o.draining != nil {
			close(o.draining)
			o.draining = nil
		}
	}
	return to, left
}

// drain takes no more items and waits until the others are published, or ctx ends.
// It returns how many are left.
func (o *outbox) drain(ctx context.Context) int {
	o.mu.Lock()
	o.closed = true
	empty := make(chan struct{})
	if len(o.queue) == 0 {
		close(empty)
	} else {
		o.draining = empty
	}
	o.mu.Unlock()
	o.kick()
	select {
	case <-empty:
	case <-ctx.Done():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.journal == nil {
		o.stats.Lost += uint64(len(o.queue))
	}
	return len(o.queue)
}

// close comes after run has ended.
func (o *outbox) close() {
	o.journal.append(o.from)
	o.journal.close()
}

func (o *outbox) status() SpoolStatus {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.stats
	s.Waiting, s.OnDisk = len(o.queue), o.journal != nil
	return s
}
