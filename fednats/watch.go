package fednats

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// entry is one revision of a key.
type entry struct {
	key      string
	revision uint64
	value    []byte
	deleted  bool
	lapsed   bool // deleted by its time, not by anybody
}

// sink is what a watcher keeps current. All is called from one goroutine.
type sink interface {
	// apply takes one revision, in their order.
	apply(e entry)
	// begin tells that everything there is follows, and end that it is over: what
	// has not come between the two is no more.
	begin()
	end()
}

// watcher follows a bucket and keeps a sink current. It goes on after the last
// revision that it has seen, whatever becomes of the connection; only a bucket
// that is not the one from before is read from its beginning.
type watcher struct {
	f       *Fleet
	bucket  string
	sink    sink
	fresh   *freshness
	ready   chan struct{} // closed when everything was read once
	retry   chan struct{}
	replays int // of everything; for tests

	mu       sync.Mutex
	created  time.Time // of the bucket; zero: nothing was read yet
	position uint64    // the last revision that is applied, or known to be no more
	claim    claim
	again    bool               // everything is to be read again
	stop     context.CancelFunc // ends the reading that goes on
	reading  *reading           // the last one; nil: there was none
}

// claim is that the bucket's last revision was seq at a time. What has applied that
// one is as fresh as that.
type claim struct {
	at  time.Time
	seq uint64
}

// watch starts to follow a bucket.
func (f *Fleet) watch(bucket string, s sink, fresh *freshness) *watcher {
	w := &watcher{f: f, bucket: bucket, sink: s, fresh: fresh, ready: make(chan struct{}), retry: make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended {
		return w // which nobody will ever hear of
	}
	f.watchers = append(f.watchers, w)
	f.work.Go(func() { w.run(f.life) })
	f.work.Go(func() { w.probe(f.life) })
	return w
}

// kick ends the wait for another try.
func (w *watcher) kick() {
	select {
	case w.retry <- struct{}{}:
	default:
	}
}

func (w *watcher) run(ctx context.Context) {
	const first, longest = 100 * time.Millisecond, 5 * time.Second
	wait := first
	for ctx.Err() == nil {
		began := time.Now()
		err := w.follow(ctx)
		w.f.note(err)
		if time.Since(began) > longest {
			wait = first
		}
		select {
		case <-ctx.Done():
			return
		case <-w.retry:
			wait = first
		case <-time.After(wait):
			wait = min(2*wait, longest)
		}
	}
}

// follow reads until something is in the way.
func (w *watcher) follow(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	at := time.Now()
	info, err := w.info(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	all := w.again || !w.created.Equal(info.Created) || info.State.LastSeq < w.position
	if all {
		w.created, w.position, w.again = info.Created, 0, false
		w.replays++
	}
	w.claim, w.stop = claim{at, info.State.LastSeq}, stop
	after := w.position
	w.mu.Unlock()
	// What is interrupted has seen some keys and not the others.
	defer func() {
		if all {
			w.restart()
		}
	}()
	if all {
		w.sink.begin()
	}
	r, err := w.f.startReading(ctx, bucketStream(w.bucket), after)
	if err != nil {
		return err
	}
	defer r.messages.Stop()
	w.mu.Lock()
	w.reading = r
	w.mu.Unlock()
	return r.run(ctx, w.wanted, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) {
		w.sink.apply(entryOf(msg, bucketSubject(w.bucket), meta.Sequence.Stream))
	}, func(position uint64) bool {
		w.reached(position)
		if position < info.State.LastSeq {
			return true
		}
		if all {
			w.sink.end()
			all = false
		}
		select {
		case <-w.ready:
		default:
			close(w.ready)
		}
		return true
	})
}

func (w *watcher) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	if !w.f.connected() {
		return nil, errDisconnected
	}
	s, err := w.f.js.Stream(ctx, bucketStream(w.bucket))
	if err != nil {
		return nil, fmt.Errorf("bucket %s: %w", w.bucket, err)
	}
	return s.CachedInfo(), nil
}

func (w *watcher) restart() {
	w.mu.Lock()
	w.again = true
	w.mu.Unlock()
}

// reached notes that everything up to seq is applied.
func (w *watcher) reached(seq uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.position = max(w.position, seq)
	w.settle()
}

// wanted is the revision of the claim, 0 where there is none.
func (w *watcher) wanted() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.claim.seq
}

// settle takes the claim that is fulfilled. w.mu is held.
func (w *watcher) settle() {
	if !w.claim.at.IsZero() && w.position >= w.claim.seq {
		w.fresh.advance(w.claim.at)
		w.claim = claim{}
	}
}

// probe asks the bucket's leader, over and over, which revision is the last: that
// a connection is there does not say that anything comes over it.
func (w *watcher) probe(ctx context.Context) {
	for sleep(ctx, w.fresh.interval()) {
		select {
		case <-w.ready:
		default:
			continue
		}
		at := time.Now()
		info, err := w.info(ctx)
		if err != nil {
			w.f.note(err)
			continue
		}
		w.mu.Lock()
		if !w.created.Equal(info.Created) || info.State.LastSeq < w.position {
			w.again = true // another bucket than the one that was read
			w.stop()
		} else {
			w.claim = claim{at, info.State.LastSeq}
			w.settle()
			w.reading.ask()
		}
		w.mu.Unlock()
	}
}

func entryOf(msg jetstream.Msg, prefix string, revision uint64) entry {
	h := msg.Headers()
	op := h.Get("KV-Operation")
	reason := h.Get("Nats-Marker-Reason")
	return entry{
		key: strings.TrimPrefix(msg.Subject(), prefix), revision: revision, value: msg.Data(),
		deleted: op == "DEL" || op == "PURGE" || reason != "", lapsed: reason == "MaxAge",
	}
}
