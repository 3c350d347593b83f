package fedhttp

import "encoding/binary"

const (
	// leafCapacity is how many keys a leaf may have. Small leaves make cheap
	// writes; large ones store the names that their keys share less often.
	// Positions must fit a byte.
	leafCapacity = 128

	// nameUnit is what the places of names are counted in, so that those of a
	// full leaf fit 16 bits, even if all its names are different and as long
	// as they may be.
	nameUnit      = 4
	maxPolicyName = 1000
)

// policyLeaf is a hash table of a few keys. It is immutable, and versions of a
// leaf share what they can. The zero value is empty.
//
// In a large book each step of a search waits for memory, and little else
// counts. So the index has all that leads on: the names to compare and the
// state to return are then fetched at the same time.
type policyLeaf struct {
	// index is open addressing in a table that is at most half full.
	index  [2 * leafCapacity]policySlot
	states []policyState
	// names has the peers and capabilities of the keys, each once: a string
	// for each would cost more than most names are long.
	names string
	// more has the keys beyond leafCapacity where the leaf could not be split.
	more *policyLeaf
	// depth is how many first bits the hashes of the keys have in common.
	depth uint8
}

type policySlot struct {
	position         uint8 // in states, from 1; 0 where the slot is free
	tag              uint8 // a part of the key's hash
	peer, capability uint16
}

// policyItem is a key and what is known of it, outside of a leaf.
type policyItem struct {
	peer, capability string
	hash             uint64
	state            policyState
}

// A leaf uses bits of a hash that neither a directory of any real size does nor
// the choice of the directory: those are the same for all of its keys.
func startOf(hash uint64) uint8 { return uint8(hash >> 16) }
func tagOf(hash uint64) uint8   { return uint8(hash >> 24) }

// find returns what is known of the key, nil where that is nothing. It does
// not look at more.
func (l *policyLeaf) find(hash uint64, peer, capability string) *policyState {
	for at := startOf(hash); ; at++ {
		slot := &l.index[at]
		if slot.position == 0 {
			return nil
		}
		if slot.tag == tagOf(hash) && l.hasName(slot.capability, capability) && l.hasName(slot.peer, peer) {
			return &l.states[slot.position-1]
		}
	}
}

// hasName reports whether the given name is at a place.
func (l *policyLeaf) hasName(place uint16, name string) bool {
	start := uint(place) * nameUnit
	end := start + 2 + uint(len(name))
	return end <= uint(len(l.names)) && l.names[start+2:end] == name &&
		uint(l.names[start])|uint(l.names[start+1])<<8 == uint(len(name))
}

// name returns the name at a place.
func (l *policyLeaf) name(place uint16) string {
	text := l.names[int(place)*nameUnit:]
	return text[2:][:int(text[0])|int(text[1])<<8]
}

// put returns the leaf with the item, which may replace one with the same key.
func (l *policyLeaf) put(item policyItem) *policyLeaf {
	c := *l
	if old := l.find(item.hash, item.peer, item.capability); old != nil {
		c.states = make([]policyState, len(l.states))
		for i := range c.states {
			if c.states[i] = l.states[i]; old == &l.states[i] {
				c.states[i] = item.state
			}
		}
		return &c
	}
	if len(l.states) == leafCapacity {
		more := l.more
		if more == nil {
			more = &policyLeaf{}
		}
		c.more = more.put(item)
		return &c
	}
	c.states = append(make([]policyState, 0, len(l.states)+1), l.states...)
	c.names = string(c.add([]byte(l.names), item))
	return &c
}

// newPolicyLeaf returns a leaf of the items, which have different keys.
func newPolicyLeaf(depth uint8, items []policyItem) *policyLeaf {
	n := min(len(items), leafCapacity)
	l := &policyLeaf{depth: depth, states: make([]policyState, 0, n)}
	var names []byte
	for _, item := range items[:n] {
		names = l.add(names, item)
	}
	l.names = string(names)
	if n < len(items) {
		l.more = newPolicyLeaf(depth, items[n:])
	}
	return l
}

// items appends the content of the leaf, without hashes.
func (l *policyLeaf) items(items []policyItem) []policyItem {
	for ; l != nil; l = l.more {
		for _, slot := range l.index {
			if slot.position > 0 {
				items = append(items, policyItem{
					peer: l.name(slot.peer), capability: l.name(slot.capability),
					state: l.states[slot.position-1],
				})
			}
		}
	}
	return items
}

// add adds an item to a leaf that is not yet published and whose names are to
// be those that it returns.
func (l *policyLeaf) add(names []byte, item policyItem) []byte {
	at := startOf(item.hash)
	for l.index[at].position != 0 {
		at++
	}
	slot := &l.index[at]
	l.states = append(l.states, item.state)
	slot.position, slot.tag = uint8(len(l.states)), tagOf(item.hash)
	names, slot.peer = addName(names, item.peer)
	names, slot.capability = addName(names, item.capability)
	return names
}

// addName adds a name after its length, unless names has it, and returns its
// place.
func addName(names []byte, name string) ([]byte, uint16) {
	at := 0
	for at < len(names) {
		end := at + 2 + int(binary.LittleEndian.Uint16(names[at:]))
		if string(names[at+2:end]) == name {
			return names, uint16(at / nameUnit)
		}
		at = (end + nameUnit - 1) / nameUnit * nameUnit
	}
	names = append(names, make([]byte, at-len(names))...)
	names = binary.LittleEndian.AppendUint16(names, uint16(len(name)))
	return append(names, name...), uint16(at / nameUnit)
}
