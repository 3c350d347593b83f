package fedhttp

import "encoding/binary"

const (
	// leafCapacity is how many keys a leaf has at most. Small leaves make
	// cheap writes; large ones spread the cost of a leaf over more keys, and
	// store the names that these share less often. Positions must fit a byte.
	leafCapacity = 128

	// nameUnit is what the positions of names are counted in, so that those
	// of a full leaf fit 16 bits even if all its names are different and as
	// long as they may be.
	nameUnit      = 4
	maxPolicyName = 1000
)

// policyLeaf is a hash table of a few keys. It is immutable. The zero value is
// empty.
//
// In a large book nearly every step of a search waits for main memory, and
// nothing else counts. So the index has all that leads on: the names to
// compare and the entry are then fetched at the same time.
type policyLeaf struct {
	// index is open addressing in a table that is at most half full.
	index   [2 * leafCapacity]policySlot
	entries []policyEntry
	// names has the peers and capabilities of the keys, each once: a string
	// for each would cost more than most names are long.
	names string
	// more has the keys beyond leafCapacity where the leaf could not be split.
	more *policyLeaf
	// depth is how many first bits the hashes of the keys have in common.
	depth uint8
}

type policySlot struct {
	position         uint8 // in entries, from 1; 0 where the slot is free
	tag              uint8 // some bits of the key's hash
	peer, capability uint16
}

// policyItem is a key with its entry, outside of a leaf.
type policyItem struct {
	peer, capability string
	hash             uint64
	entry            policyEntry
}

func tagOf(hash uint64) uint8 { return uint8(hash >> 8) }

// find returns the position of the key's entry, or -1. It does not look at more.
func (l *policyLeaf) find(hash uint64, peer, capability string) int {
	for at := uint8(hash); ; at++ {
		slot := &l.index[at]
		if slot.position == 0 {
			return -1
		}
		if slot.tag == tagOf(hash) && l.name(slot.capability) == capability && l.name(slot.peer) == peer {
			return int(slot.position) - 1
		}
	}
}

func (l *policyLeaf) name(at uint16) string {
	text := l.names[int(at)*nameUnit:]
	n := int(text[0]) | int(text[1])<<8
	return text[2 : 2+n]
}

// get returns the key's entry, nil where there is none.
func (l *policyLeaf) get(hash uint64, peer, capability string) *policyEntry {
	for at := uint8(hash); ; at++ {
		slot := &l.index[at]
		if slot.tag == tagOf(hash) && slot.position != 0 &&
			l.hasName(slot.capability, capability) && l.hasName(slot.peer, peer) {
			return &l.entries[slot.position-1]
		}
		if slot.position == 0 {
			break
		}
	}
	if l.more != nil {
		return l.more.get(hash, peer, capability)
	}
	return nil
}

func (l *policyLeaf) hasName(at uint16, name string) bool {
	i := uint(at) * nameUnit
	end := i + 2 + uint(len(name))
	return end <= uint(len(l.names)) && l.names[i+2:end] == name && uint(l.names[i])|uint(l.names[i+1])<<8 == uint(len(name))
}

// put returns the leaf with the item, which may replace one with the same key.
func (l *policyLeaf) put(item policyItem) *policyLeaf {
	c := *l
	if i := l.find(item.hash, item.peer, item.capability); i >= 0 {
		c.entries = append(make([]policyEntry, 0, len(l.entries)), l.entries...)
		c.entries[i] = item.entry
		return &c
	}
	if len(l.entries) == leafCapacity {
		more := l.more
		if more == nil {
			more = &policyLeaf{}
		}
		c.more = more.put(item)
		return &c
	}
	c.entries = append(make([]policyEntry, 0, len(l.entries)+1), l.entries...)
	c.names = string(c.add([]byte(l.names), item))
	return &c
}

// newPolicyLeaf returns a leaf of the items, which have different keys.
func newPolicyLeaf(depth uint8, items []policyItem) *policyLeaf {
	n := min(len(items), leafCapacity)
	l := &policyLeaf{depth: depth, entries: make([]policyEntry, 0, n)}
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
					entry: l.entries[slot.position-1],
				})
			}
		}
	}
	return items
}

// add adds an item to a leaf that is not yet published and whose names are to
// be those that it returns.
func (l *policyLeaf) add(names []byte, item policyItem) []byte {
	at := uint8(item.hash)
	for l.index[at].position != 0 {
		at++
	}
	slot := &l.index[at]
	l.entries = append(l.entries, item.entry)
	slot.position, slot.tag = uint8(len(l.entries)), tagOf(item.hash)
	names, slot.peer = addName(names, item.peer)
	names, slot.capability = addName(names, item.capability)
	return names
}

// addName adds a name after its length, unless names has it, and returns where
// it is.
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
