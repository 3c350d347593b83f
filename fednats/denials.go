package fednats

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nuid"

	"github.com/fedhttp/fedhttp"
)

// Denials returns the ledger that the fleet shares, for fedhttp.Config.Denials. A
// denial counts here at once, and for the others within milliseconds, or when the
// cluster is back. So does Forget. Denied answers from memory; without any denials
// it takes no lock. There is one ledger; every call returns it.
//
// Without PartDenials it is a ledger in memory.
func (f *Fleet) Denials() fedhttp.DenialLedger {
	if f.needs(PartDenials, "") != nil {
		return fedhttp.NewDenialLedger()
	}
	return f.sharedLedger()
}

func (f *Fleet) sharedLedger() *ledger {
	f.mu.Lock()
	l := f.ledger
	first := l == nil
	if first {
		l = &ledger{
			prefix: bucketSubject(f.names.denials()), out: f.denied, refuse: f.refusals.add,
			byKey: make(map[denialKey]heldDenial), names: make(map[string]denialKey), sweep: 1024,
		}
		l.restore(f.denied.from(0))
		f.ledger = l
	}
	f.mu.Unlock()
	if first {
		l.reader = f.watch(f.names.denials(), l, newFreshness(-1, func(bool) {}))
	}
	return l
}

// read waits until the ledger has what the fleet knows: a replica that starts must not
// send what the one before it was refused.
func (l *ledger) read(ctx context.Context) error {
	select {
	case <-l.reader.ready:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("fednats: the denials were not read yet: %w", context.Cause(ctx))
	}
}

// denialKey is what a denial covers. Those of different epochs and digests stand
// beside each other: replicas may hear of a new one at different times.
type denialKey struct {
	peer, capability, scope string
	epoch                   uint64
	digest                  string
}

type heldDenial struct {
	fedhttp.Denial
	revision uint64 // 0: the cluster has not said that it has it
}

// ledger is a fedhttp.DenialLedger, and the sink of its bucket.
//
// The bucket has two kinds of keys: den.PEER.CAPABILITY.HASH for a denial, and
// fgt.PEER.CAPABILITY or fgt.PEER, which ends those that were there before it: of lower
// revisions, and of times that are not later.
type ledger struct {
	prefix string
	out    *outbox
	reader *watcher
	refuse func(bucket, key string, why error)

	size atomic.Int64 // len(byKey), so that a ledger without denials costs no lock

	mu    sync.RWMutex
	byKey map[denialKey]heldDenial
	names map[string]denialKey // by key of the bucket
	seen  map[string]struct{}  // between begin and end
	sweep int                  // the size at which expired denials are looked for
}

const (
	kindDenial = "den"
	kindForget = "fgt"
)

// Record keeps the denial, and has it shared. It never fails: what cannot be shared
// is kept here, counted and logged.
func (l *ledger) Record(_ context.Context, d fedhttp.Denial) error {
	v := newDenialValue(d)
	v = newDenialValue(l.keep(v.name(), heldDenial{Denial: d}))
	value, err := encode(v)
	if err != nil {
		l.refuse("denials", v.name(), err)
		return nil
	}
	l.out.add(item{
		ID: nuid.Next(), Subject: l.prefix + v.name(), Data: value, Until: v.Until, TTL: true,
	})
	return nil
}

// Denied returns the unexpired denial that covers the task under auth.
func (l *ledger) Denied(peer string, task fedhttp.Task, auth fedhttp.Authorization) (fedhttp.Denial, bool) {
	if l.size.Load() == 0 {
		return fedhttp.Denial{}, false
	}
	l.mu.RLock()
	d, ok := l.byKey[denialKey{peer, task.Capability, task.Scope, auth.Epoch, auth.Digest}]
	l.mu.RUnlock()
	if !ok || !time.Now().Before(d.Until) {
		return fedhttp.Denial{}, false
	}
	return d.Denial, true
}

// Forget drops the denials of a capability, all of the peer's where capability is
// empty: for the whole fleet.
func (l *ledger) Forget(peer, capability string) {
	l.drop(peer, capability, func(heldDenial) bool { return true })
	v := forgetValue{Peer: text(peer), Capability: text(capability), At: time.Now().UTC()}
	value, err := encode(v)
	if err != nil {
		l.refuse("denials", v.name(), err)
		return
	}
	l.out.add(item{
		ID: nuid.Next(), Subject: l.prefix + v.name(), Data: value,
		Until: v.At.Add(denialTTL), TTL: true, Alone: true,
	})
}

// restore takes what an earlier process has recorded and not published.
func (l *ledger) restore(left []item) {
	for _, i := range left {
		// What cannot be read, the cluster will have from us all the same, and refuse.
		_ = l.take(entry{key: strings.TrimPrefix(i.Subject, l.prefix), value: i.Data})
	}
}

// keep keeps the denial, and returns the one that is kept.
func (l *ledger) keep(name string, d heldDenial) fedhttp.Denial {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := denialKey{d.Peer, d.Capability, d.Scope, d.Epoch, d.Digest}
	// The one that lasts longer counts: a replica's late word shortens nothing.
	if old, ok := l.byKey[key]; ok && old.Until.After(d.Until) {
		d.Denial = old.Denial
	}
	l.byKey[key], l.names[name] = d, key
	if len(l.byKey) >= l.sweep {
		now := time.Now()
		for name, key := range l.names {
			if !now.Before(l.byKey[key].Until) {
				delete(l.byKey, key)
				delete(l.names, name)
			}
		}
		l.sweep = max(1024, 2*len(l.byKey))
	}
	l.size.Store(int64(len(l.byKey)))
	return d.Denial
}

// drop removes the denials of a capability, or of a peer, that match.
func (l *ledger) drop(peer, capability string, match func(heldDenial) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, key := range l.names {
		if key.peer == peer && (capability == "" || key.capability == capability) && match(l.byKey[key]) {
			delete(l.byKey, key)
			delete(l.names, name)
		}
	}
	l.size.Store(int64(len(l.byKey)))
}

func (l *ledger) begin() { l.seen = make(map[string]struct{}) }

// end drops what the bucket had and has no more. What is not shared yet stays.
func (l *ledger) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, key := range l.names {
		if _, ok := l.seen[name]; !ok && l.byKey[key].revision > 0 {
			delete(l.byKey, key)
			delete(l.names, name)
		}
	}
	l.size.Store(int64(len(l.byKey)))
	l.seen = nil
}

func (l *ledger) apply(e entry) {
	if e.deleted {
		if !e.lapsed { // one that lapses does so here too, by our own clock
			l.deleted(e.key)
		}
		return
	}
	if err := l.take(e); err != nil {
		l.refuse("denials", e.key, err)
		l.deleted(e.key)
		return
	}
	if l.seen != nil {
		l.seen[e.key] = struct{}{}
	}
}

func (l *ledger) deleted(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if key, ok := l.names[name]; ok {
		delete(l.byKey, key)
		delete(l.names, name)
		l.size.Store(int64(len(l.byKey)))
	}
}

func (l *ledger) take(e entry) error {
	switch {
	case hasKind(e.key, kindDenial):
		var v denialValue
		if err := decode(e.value, &v); err != nil {
			return err
		}
		if v.name() != e.key {
			return errOtherKey
		}
		d := v.denial()
		if now := time.Now(); now.Before(d.Until) {
			l.keep(e.key, heldDenial{d, e.revision})
		}
		return nil
	case hasKind(e.key, kindForget):
		var v forgetValue
		if err := decode(e.value, &v); err != nil {
			return err
		}
		if v.name() != e.key {
			return errOtherKey
		}
		// It may have waited in a spool, or come again: what was met after it was said stays.
		l.drop(string(v.Peer), string(v.Capability), func(d heldDenial) bool {
			return !d.At.After(v.At) && (d.revision > 0 && d.revision < e.revision || e.revision == 0)
		})
		return nil
	}
	return errors.New("the key is none of a denial")
}
