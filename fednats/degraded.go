package fednats

import (
	"context"
	"errors"
	"time"
)

// degradedValue is a flag as the bucket has it, under the peer's token.
type degradedValue struct {
	Peer     text      `json:"peer"`
	Degraded bool      `json:"degraded"`
	By       text      `json:"by,omitempty"`
	At       time.Time `json:"at"`
}

// SetDegraded says for the whole fleet whether the peer's signals can be believed
// just now, see fedhttp.Transport.SetDegraded. It stays so until it is said anew. A
// peer without a name, or with one of more than 1,000 bytes, is an error.
func (f *Fleet) SetDegraded(ctx context.Context, peer string, degraded bool) error {
	if err := f.needs(PartDegraded, "PartDegraded"); err != nil {
		return err
	}
	if peer == "" || len(peer) > maxName {
		return errors.New("fednats: the peer is empty, or longer than 1000 bytes")
	}
	value, err := encode(degradedValue{Peer: text(peer), Degraded: degraded, By: text(f.cfg.Name), At: time.Now().UTC()})
	if err != nil {
		return f.writeError(peer, err)
	}
	bucket, err := f.bucket(ctx, f.names.degraded())
	if err == nil {
		_, err = bucket.Put(ctx, token(peer), value)
	}
	return f.writeError(token(peer), err)
}

// Degradable is a *fedhttp.Transport.
type Degradable interface {
	SetDegraded(peer string, degraded bool)
}

// Degrade applies the fleet's flags to the Transport, those of now and those to
// come, until Close. It does not wait. Call it again after SetPeers has added a
// peer: a Transport ignores the flag of one that it does not know.
func (f *Fleet) Degrade(t Degradable) error {
	if err := f.needs(PartDegraded, "PartDegraded"); err != nil {
		return err
	}
	d := &flags{t: t, refuse: f.refusals.add, bucket: f.names.degraded(), set: make(map[string]string)}
	f.watch(f.names.degraded(), d, newFreshness(-1, func(bool) {}))
	return nil
}

// flags is the sink of the flags' bucket.
type flags struct {
	t      Degradable
	refuse func(bucket, key string, why error)
	bucket string
	set    map[string]string // the peers that are degraded, by key
	seen   map[string]struct{}
}

func (d *flags) begin() { d.seen = make(map[string]struct{}) }

func (d *flags) end() {
	for key := range d.set {
		if _, ok := d.seen[key]; !ok {
			d.unset(key)
		}
	}
	d.seen = nil
}

func (d *flags) apply(e entry) {
	if d.seen != nil {
		d.seen[e.key] = struct{}{}
	}
	if e.deleted {
		d.unset(e.key)
		return
	}
	var v degradedValue
	err := decode(e.value, &v)
	if err == nil && token(string(v.Peer)) != e.key {
		err = errOtherKey
	}
	switch {
	case err != nil:
		// A flag that cannot be read changes nothing: whether the peer is degraded is
		// not known, and the one before is the last word that was understood.
		d.refuse(d.bucket, e.key, err)
	case v.Degraded:
		d.set[e.key] = string(v.Peer)
		d.t.SetDegraded(string(v.Peer), true)
	default:
		d.unset(e.key)
	}
}

func (d *flags) unset(key string) {
	if peer, ok := d.set[key]; ok {
		delete(d.set, key)
		d.t.SetDegraded(peer, false)
	}
}
