package fedhttp

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	maintainTick    = time.Second // how often MaintainAnchors looks at what is due
	maintainUnknown = time.Hour   // between fetches of an anchor that names no end and no hint
	maintainBackoff = time.Minute // the longest wait after failed fetches in a row
)

// MaintainAnchors fetches every peer's anchor ahead of its end, so that calls
// find a fresh one: at RefreshHint, else at half of the remaining life, else
// every hour, each with jitter. After a failure it tries again, at first after
// MinRefreshInterval and then at doubled intervals up to a minute; the last good
// anchor stays meanwhile. It follows SetPeers.
//
// It blocks until ctx ends and returns the context's cause, or ErrClosed once
// the Transport is closed. Without an AnchorSource there is nothing to maintain,
// which is an error. One call is enough; more do no harm.
func (t *Transport) MaintainAnchors(ctx context.Context) error {
	switch {
	case t.peers.Load() == nil:
		return errZero
	case t.anchors == nil:
		return errNoAnchor
	}
	tick := time.NewTicker(maintainTick)
	defer tick.Stop()
	for {
		now := time.Now()
		for _, p := range t.peers.Load().peers {
			if due, _ := p.anchors.planned(); !now.Before(due) {
				p.anchors.kick(p.Retry.MinRefreshInterval)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.lifetime.Done():
			return ErrClosed
		}
	}
}

// RefreshAnchor has the peer's anchor fetched, by a fetch that begins after this call,
// MinRefreshInterval after the one before; it does not wait for it. It is for who knows that
// the AnchorSource has another one, before a RefreshHint or a failure asks for it. A peer
// that was never configured, and a Transport without an AnchorSource, are ignored.
func (t *Transport) RefreshAnchor(peer string) {
	if t.anchors == nil {
		return
	}
	t.update.Lock()
	defer t.update.Unlock()
	s := t.states[peer]
	if s == nil {
		return
	}
	interval := defaultRefreshInterval // of one that was removed, and may come back
	for _, p := range t.peers.Load().peers {
		if p.ID == peer {
			interval = p.Retry.MinRefreshInterval
		}
	}
	s.anchors.renew(interval)
}

// planned is when the next fetch ahead of time should begin, zero before the
// first, and why the last one failed, if it did.
func (k *anchorKeeper) planned() (due time.Time, failed error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dueAt, k.last.err
}

// plan says when the fetch after one that ended now should begin. k.mu is held.
func (k *anchorKeeper) plan(now time.Time, interval time.Duration) {
	wait := maintainUnknown
	a := k.current.Load()
	if k.last.err != nil {
		k.failures = min(k.failures+1, 16)
		wait = max(interval, min(interval<<(k.failures-1), maintainBackoff))
	} else {
		k.failures = 0
		if a.RefreshHint > 0 {
			wait = a.RefreshHint
		}
		if half := a.ExpiresAt.Sub(now) / 2; !a.ExpiresAt.IsZero() && (a.RefreshHint <= 0 || half < wait) {
			wait = half
		}
	}
	// Up to a tenth earlier: a fleet that started together does not fetch together.
	k.dueAt = now.Add(wait - rand.N(wait/10+1))
}
