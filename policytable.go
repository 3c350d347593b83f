package fedhttp

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"sync/atomic"
)

// policyTable is a hash table from (peer, capability) to policyState that is
// read without locks. The keys are in small immutable leaves, each behind an
// atomic pointer; a write copies one leaf, so that it costs the same in a
// large book as in a small one. The zero value is empty.
//
// The hash of the peer chooses one of the directories, so that the keys of a
// peer share leaves, which have its name once; the hash of the key chooses the
// leaf in it. Growth is extendible hashing: a full leaf splits in two, and
// where it has only one slot in the directory, that doubles first. No
// write moves more than the keys of one leaf and the slots of one directory.
type policyTable struct {
	directories [256]atomic.Pointer[policyDirectory]
	// unhashed are bits that no hash has: none, but in tests of collisions.
	unhashed uint64
}

// policyDirectory has 1<<depth slots. The first depth bits of a hash are its
// slot. A leaf whose hashes have fewer first bits in common is in several.
type policyDirectory struct {
	slots []atomic.Pointer[policyLeaf]
	depth uint8
}

// policySeed keeps the hashes from the peers, who choose what their
// capabilities are called.
var policySeed = maphash.MakeSeed()

func hashName(name string) uint64 { return maphash.String(policySeed, name) }

// hashPeer hashes the name of a peer. Our own side gives the peers their IDs, so
// this need not stand up to names that somebody has chosen with care, and can be
// done beside the call that hashes the capability.
func hashPeer(name string) uint64 {
	h := mix(peerSeed ^ uint64(len(name)))
	if len(name) < 8 {
		for i := range len(name) {
			h = mix(h ^ uint64(name[i]))
		}
		return mix(h)
	}
	for i := 0; i+8 <= len(name); i += 8 {
		h = mix(h ^ word(name[i:]))
	}
	return mix(h ^ word(name[len(name)-8:])) // the rest, with some of it again
}

var peerSeed = maphash.String(policySeed, "peer")

// mix folds the product with an odd constant of no pattern (the golden ratio's).
func mix(h uint64) uint64 {
	hi, lo := bits.Mul64(h, 0x9e3779b97f4a7c15)
	return hi ^ lo
}

// word returns the first eight bytes of s as a number; they are read at once.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// place returns the hash of a key and its directory, from the hashes of its
// names. The directory is chosen by the last bits of the peer's: the first bits
// of the key's must still differ in a directory.
func (t *policyTable) place(peer, capability uint64) (uint64, *atomic.Pointer[policyDirectory]) {
	// Rotated, so that (a, b) does not meet (b, a), nor (a, a) every (b, b).
	hash := (peer ^ bits.RotateLeft64(capability, 29)) &^ t.unhashed
	return hash, &t.directories[(peer&^t.unhashed)%uint64(len(t.directories))]
}

// find returns what is known of the key, nil where that is nothing.
func (t *policyTable) find(peer, capability string) *policyState {
	hash, root := t.place(hashPeer(peer), hashName(capability))
	dir := root.Load()
	if dir == nil {
		return nil
	}
	for leaf := dir.slots[dir.slot(hash)].Load(); leaf != nil; leaf = leaf.more {
		if s := leaf.find(hash, peer, capability); s != nil {
			return s
		}
	}
	return nil
}

// update replaces what is known of the key, unless change reports that there
// is no change, and forgets the key where change returns the zero state. One
// writer at a time.
func (t *policyTable) update(peer, capability string, change func(policyState) (policyState, bool)) bool {
	var old policyState
	if s := t.find(peer, capability); s != nil {
		old = *s
	}
	state, changed := change(old)
	if !changed {
		return false
	}
	hash, root := t.place(hashPeer(peer), hashName(capability))
	dir := root.Load()
	if dir == nil {
		dir = newPolicyDirectory(0)
		dir.slots[0].Store(&policyLeaf{})
		root.Store(dir)
	}
	leaf := dir.slots[dir.slot(hash)].Load()
	if state.policy == nil {
		items := slices.DeleteFunc(t.items(leaf), func(i policyItem) bool {
			return i.peer == peer && i.capability == capability
		})
		dir.put(hash, newPolicyLeaf(leaf.depth, items))
		return true
	}
	leaf = leaf.put(policyItem{peer, capability, hash, state})
	if leaf.more == nil || !t.split(root, dir, hash, leaf) {
		dir.put(hash, leaf)
	}
	return true
}

// split publishes the leaf of a hash in two, by the first bit that its keys'
// hashes need not have in common. It does not where they do all the same: that
// is no chance among so many, going on to the next bit could double the
// directory without end, and a leaf with more is only slower.
func (t *policyTable) split(root *atomic.Pointer[policyDirectory], dir *policyDirectory, hash uint64, leaf *policyLeaf) bool {
	bit := uint64(1) << (63 - leaf.depth)
	var low, high []policyItem
	for _, item := range t.items(leaf) {
		if item.hash&bit == 0 {
			low = append(low, item)
		} else {
			high = append(high, item)
		}
	}
	if len(low) == 0 || len(high) == 0 {
		return false
	}
	if leaf.depth == dir.depth {
		dir = dir.double()
	}
	dir.put(hash&^bit, newPolicyLeaf(leaf.depth+1, low))
	dir.put(hash|bit, newPolicyLeaf(leaf.depth+1, high))
	root.Store(dir) // another one where it doubled, and complete by now
	return true
}

func (t *policyTable) items(leaf *policyLeaf) []policyItem {
	items := leaf.items(nil)
	for i := range items {
		items[i].hash, _ = t.place(hashPeer(items[i].peer), hashName(items[i].capability))
	}
	return items
}

func newPolicyDirectory(depth uint8) *policyDirectory {
	return &policyDirectory{depth: depth, slots: make([]atomic.Pointer[policyLeaf], 1<<depth)}
}

// slot returns where the leaf of a hash is.
func (d *policyDirectory) slot(hash uint64) uint64 {
	return hash >> (64 - d.depth) // 0 where depth is
}

// put stores the leaf in every slot whose hashes have the first bits in common
// with hash that the leaf's have. A key has one of the slots, so its readers
// see the change at once.
func (d *policyDirectory) put(hash uint64, leaf *policyLeaf) {
	n := uint64(1) << (d.depth - leaf.depth)
	first := d.slot(hash) &^ (n - 1)
	for i := range n {
		d.slots[first+i].Store(leaf)
	}
}

func (d *policyDirectory) double() *policyDirectory {
	c := newPolicyDirectory(d.depth + 1)
	for i := range c.slots {
		c.slots[i].Store(d.slots[i/2].Load())
	}
	return c
}
