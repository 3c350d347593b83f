package fednats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fedhttp/fedhttp"
)

const (
	// leaseTTL is how long a replica that fetches keeps the others waiting if it dies.
	leaseTTL = 2 * time.Second
	// leaseWait bounds how long a replica waits for another's fetch, within the 5 s
	// that a fetch may take.
	leaseWait = 3 * time.Second
	leasePoll = 25 * time.Millisecond
	// anchorFirst is how old a result may be for a replica that has none yet.
	anchorFirst = time.Minute
)

// Anchors returns a source by which the fleet fetches once: one replica asks the
// given source under a lease, and the others that want an anchor at that time get
// what it got. A replica that dies with the lease is replaced when that ends, after
// 2 to 3 s. Who has waited for 3 s, or has no connection, asks the source itself.
//
// A result counts for a call if the fetch began after the call; or if it is of
// another version than the one that this replica had last, and came later; or if it is
// this replica's first, and less than a minute old. So a call that has failed under
// an anchor is not repaired by one that was fetched before it failed.
//
// Anchors with Roots and no Certificates cannot be shared: each replica fetches
// those itself. Without PartAnchors the source is returned as it is.
func (f *Fleet) Anchors(source fedhttp.AnchorSource) fedhttp.AnchorSource {
	if f.needs(PartAnchors, "") != nil {
		return source
	}
	return &sharedAnchors{f: f, source: source, given: make(map[string]givenAnchor)}
}

type sharedAnchors struct {
	f      *Fleet
	source fedhttp.AnchorSource

	mu    sync.Mutex
	given map[string]givenAnchor // the last, by peer
}

type givenAnchor struct {
	version  string
	revision uint64 // of the result that it came with; 0: none
}

// FetchAnchor returns an anchor that somebody has fetched.
func (s *sharedAnchors) FetchAnchor(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	a, revision, err := s.fetch(ctx, peer)
	if err == nil {
		s.mu.Lock()
		s.given[peer] = givenAnchor{a.Version, revision}
		s.mu.Unlock()
	}
	return a, err
}

func (s *sharedAnchors) fetch(ctx context.Context, peer string) (fedhttp.Anchor, uint64, error) {
	if !s.f.connected() {
		return s.own(ctx, peer)
	}
	within, cancel := context.WithTimeout(ctx, leaseWait)
	defer cancel()
	a, revision, err := s.shared(ctx, within, peer)
	var failed *fetchError
	switch {
	case err == nil:
		return a, revision, nil
	case errors.As(err, &failed):
		return a, 0, failed.err
	case ctx.Err() != nil:
		return a, 0, context.Cause(ctx)
	}
	s.f.note(err)
	return s.own(ctx, peer)
}

func (s *sharedAnchors) own(ctx context.Context, peer string) (fedhttp.Anchor, uint64, error) {
	a, err := s.source.FetchAnchor(ctx, peer)
	return a, 0, err
}

// fetchError is that a fetch has failed, here or at the replica with the lease.
// Any other error is one of the cluster's.
type fetchError struct{ err error }

func (e *fetchError) Error() string { return e.err.Error() }

var errNotShared = errors.New("the anchor cannot be shared")

// shared gets the anchor within a time, by a lease or from who has it. What this
// replica fetches itself may take as long as ctx.
func (s *sharedAnchors) shared(ctx, within context.Context, peer string) (a fedhttp.Anchor, revision uint64, err error) {
	bucket, err := s.f.bucket(within, s.f.names.anchors())
	if err != nil {
		return a, 0, err
	}
	s.mu.Lock()
	given, had := s.given[peer]
	s.mu.Unlock()
	result, err := s.result(within, bucket, peer)
	if err != nil {
		return a, 0, err
	}
	// Whoever takes the lease from now on begins after this.
	before := result.revision
	if lease, err := bucket.Get(within, leaseKey(peer)); err == nil {
		before = max(before, lease.Revision())
	} else if !errors.Is(err, jetstream.ErrKeyNotFound) {
		return a, 0, err
	}
	for {
		if result.Lease > before {
			switch {
			case result.Failed != "":
				return a, 0, &fetchError{fmt.Errorf("%s has fetched it, and says: %s", quote(string(result.By)), quote(string(result.Failed)))}
			case result.Anchor == nil:
				return a, 0, errNotShared
			}
			return result.Anchor.anchor(), result.revision, nil
		}
		if result.Anchor != nil && result.usable(given, had) {
			return result.Anchor.anchor(), result.revision, nil
		}
		lease, err := bucket.Create(within, leaseKey(peer), []byte(s.f.cfg.Name), jetstream.KeyTTL(leaseTTL))
		if err == nil {
			// Somebody may have ended with a fetch since the result was read.
			latest, failed := bucket.Get(within, anchorKey(peer))
			switch {
			case errors.Is(failed, jetstream.ErrKeyNotFound), failed == nil && latest.Revision() == result.revision:
				return s.lead(ctx, bucket, peer, lease, result)
			case failed == nil:
				failed = bucket.Delete(within, leaseKey(peer), jetstream.LastRevision(lease))
			}
			if failed != nil && !isConflict(failed) {
				return a, 0, failed
			}
			if result, err = s.result(within, bucket, peer); err != nil {
				return a, 0, err
			}
			continue
		}
		if !isConflict(err) { // else somebody has the lease
			return a, 0, err
		}
		if !sleep(within, leasePoll) {
			return a, 0, context.Cause(within)
		}
		if result, err = s.result(within, bucket, peer); err != nil {
			return a, 0, err
		}
	}
}

// lead fetches for all.
func (s *sharedAnchors) lead(ctx context.Context, bucket jetstream.KeyValue, peer string, lease uint64, old storedAnchor) (fedhttp.Anchor, uint64, error) {
	a, _, err := s.own(ctx, peer)
	// The result is for the others: it must not take this call's time, nor end with it.
	told, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	v := newAnchorValue(peer, s.f.cfg.Name, lease, a, err, old.Anchor)
	value, tooLong := encode(v)
	if tooLong != nil {
		v.NotShared, v.Anchor = true, nil
		value, _ = encode(v)
	}
	revision, put := bucket.Put(told, anchorKey(peer), value)
	if put == nil {
		put = bucket.Delete(told, leaseKey(peer), jetstream.LastRevision(lease))
	}
	if put != nil && !isConflict(put) {
		s.f.log.Warn("fednats: an anchor was fetched and not shared", slog.String("peer", peer), slog.String("error", put.Error()))
	}
	if err != nil {
		return a, 0, &fetchError{err}
	}
	return a, revision, nil
}

// storedAnchor is a result, and its revision.
type storedAnchor struct {
	anchorValue
	revision uint64
}

// usable reports whether the anchor of a fetch that may have begun before the call
// is good enough.
func (r *storedAnchor) usable(given givenAnchor, had bool) bool {
	a := r.Anchor
	switch {
	case !a.ExpiresAt.IsZero() && !time.Now().Before(a.ExpiresAt):
		return false
	case !had:
		return time.Since(a.FetchedAt) < anchorFirst
	}
	return r.revision > given.revision && given.revision > 0 && string(a.Version) != given.version
}

// result reads what was fetched last. A value that cannot be read is none.
func (s *sharedAnchors) result(ctx context.Context, bucket jetstream.KeyValue, peer string) (r storedAnchor, err error) {
	e, err := bucket.Get(ctx, anchorKey(peer))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	r.revision = e.Revision()
	if err = decode(e.Value(), &r.anchorValue); err == nil {
		err = r.check(peer)
	}
	if err != nil {
		s.f.refusals.add(s.f.names.anchors(), anchorKey(peer), err)
		return storedAnchor{revision: e.Revision()}, nil
	}
	return r, nil
}
