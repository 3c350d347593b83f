package fedhttp

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// bookModel is a PolicyBook in the plainest way.
type bookModel map[watchKey]modelEntry

type modelEntry struct {
	epoch      uint64
	digest     string
	accepted   map[Authorization]Terms // by Digest and Epoch
	negotiated map[uint64]Negotiation
}

func (m bookModel) entry(key PolicyKey) modelEntry {
	e := m[watchKey{key.Peer, key.Capability}]
	e.accepted, e.negotiated = maps.Clone(e.accepted), maps.Clone(e.negotiated)
	if e.accepted == nil {
		e.accepted, e.negotiated = map[Authorization]Terms{}, map[uint64]Negotiation{}
	}
	return e
}

func (m bookModel) set(key PolicyKey, e modelEntry) { m[watchKey{key.Peer, key.Capability}] = e }

func (m bookModel) advertise(a Advertisement) (stale bool) {
	e := m.entry(a.PolicyKey)
	if a.Epoch < e.epoch {
		return true
	}
	e.epoch, e.digest = a.Epoch, a.Digest
	maps.DeleteFunc(e.accepted, func(k Authorization, _ Terms) bool { return k.Epoch < e.epoch })
	maps.DeleteFunc(e.negotiated, func(epoch uint64, _ Negotiation) bool { return epoch < e.epoch })
	m.set(a.PolicyKey, e)
	return false
}

func (m bookModel) withdraw(key PolicyKey) {
	e := m.entry(key)
	e.digest = ""
	m.set(key, e)
}

func (m bookModel) accept(p Policy) {
	e := m.entry(p.PolicyKey)
	if p.Epoch >= e.epoch {
		e.accepted[Authorization{Digest: p.Digest, Epoch: p.Epoch}] = p.Terms
		m.set(p.PolicyKey, e)
	}
}

func (m bookModel) revoke(key PolicyKey, digest string) {
	e := m.entry(key)
	delete(e.accepted, Authorization{Digest: digest, Epoch: key.Epoch})
	if e.negotiated[key.Epoch].Digest == digest {
		delete(e.negotiated, key.Epoch)
	}
	m.set(key, e)
}

func (m bookModel) negotiate(n Negotiation) {
	e := m.entry(n.PolicyKey)
	if n.Epoch >= e.epoch {
		e.negotiated[n.Epoch] = n
		m.set(n.PolicyKey, e)
	}
}

func (m bookModel) authorize(peer string, task Task, now time.Time) (Authorization, Reason) {
	e := m.entry(PolicyKey{Peer: peer, Capability: task.Capability})
	if e.digest == "" {
		if len(task.Obligations) == 0 {
			return Authorization{Basis: BasisNoObligation}, ReasonNone
		}
		return Authorization{}, ReasonNotAdvertised
	}
	auth, reason := Authorization{Digest: e.digest, Epoch: e.epoch}, ReasonNotAccepted
	if len(task.Obligations) == 0 {
		auth.Basis = BasisNoObligation
		return auth, ReasonNone
	}
	if terms, ok := e.accepted[auth]; ok {
		if terms == nil || terms.Grants(task.Obligations) {
			auth.Basis = BasisAccepted
			return auth, ReasonNone
		}
		reason = ReasonTermsInsufficient
	}
	if n, ok := e.negotiated[e.epoch]; ok && !n.ExpiresAt.IsZero() && now.Before(n.ExpiresAt) {
		if n.Terms == nil || n.Terms.Grants(task.Obligations) {
			return Authorization{n.Digest, e.epoch, BasisNegotiated}, ReasonNone
		}
		reason = ReasonTermsInsufficient
	}
	return auth, reason
}

// modelRun makes the same changes in a book and in the model, and compares.
type modelRun struct {
	t     *testing.T
	book  *PolicyBook
	model bookModel
}

var (
	modelTerms       = []Terms{nil, {}, {"a": "1"}, {"a": "1", "b": "2"}}
	modelObligations = []Terms{nil, {"a": "1"}, {"b": "2"}, {"a": "1", "b": "2"}}
	modelTimes       = []time.Time{{}, bookNow, bookNow.Add(1), bookNow.Add(time.Hour)}
)

// step makes one change, which choose determines.
func (r *modelRun) step(peers, capabilities int, choose func(n int) int) {
	r.t.Helper()
	key := PolicyKey{
		Peer:       fmt.Sprint("peer-", choose(peers)),
		Capability: fmt.Sprint("capability-", choose(capabilities)),
		Epoch:      uint64(choose(4)),
	}
	digest := fmt.Sprint("sha256:", choose(3))
	watch := r.book.watch(key.Peer, key.Capability)
	before := r.model.entry(key)
	switch choose(6) {
	case 0, 1:
		a := Advertisement{key, digest}
		if err, stale := r.book.Advertise(a), r.model.advertise(a); stale != errors.Is(err, ErrStaleEpoch) || stale != (err != nil) {
			r.t.Fatalf("Advertise(%v) = %v, stale %t", a, err, stale)
		}
	case 2:
		r.book.Withdraw(key.Peer, key.Capability)
		r.model.withdraw(key)
	case 3:
		p := Policy{key, digest, modelTerms[choose(len(modelTerms))]}
		r.book.Accept(p)
		r.model.accept(p)
	case 4:
		r.book.Revoke(key, digest)
		r.model.revoke(key, digest)
	case 5:
		n := Negotiation{key, digest, modelTimes[choose(len(modelTimes))], modelTerms[choose(len(modelTerms))]}
		r.book.CacheNegotiation(n)
		r.model.negotiate(n)
	}
	changed := !reflect.DeepEqual(r.model.entry(key), before)
	if _, waiting := r.book.watches.Load(watch.key); waiting == changed {
		r.t.Fatalf("%v: changed %t, waiters woken %t", key, changed, !waiting)
	}
	r.book.unwatch(watch)
	r.compare(key.Peer, key.Capability)
}

func (r *modelRun) compare(peer, capability string) {
	r.t.Helper()
	for _, obligations := range modelObligations {
		for _, now := range modelTimes {
			task := Task{Capability: capability, Obligations: obligations}
			got, err := r.book.Authorize(peer, task, nil, now)
			want, reason := r.model.authorize(peer, task, now)
			if got != want || reasonOf(err) != reason {
				r.t.Fatalf("Authorize(%s, %s, %v, %v) = %+v, %v; want %+v, reason %q",
					peer, capability, obligations, now, got, err, want, reason)
			}
		}
	}
}

// finish compares all keys and checks what a book must hold to.
func (r *modelRun) finish(peers, capabilities int) {
	r.t.Helper()
	for p := range peers {
		for c := range capabilities {
			r.compare(fmt.Sprint("peer-", p), fmt.Sprint("capability-", c))
		}
	}
	checkBook(r.t, r.book)
	r.book.watches.Range(func(key, _ any) bool {
		r.t.Errorf("a watch of %v is left", key)
		return true
	})
}

// checkBook checks that the symbols of a book are those that its entries refer
// to, and that its leaves are where their keys' hashes say.
func checkBook(t *testing.T, b *PolicyBook) {
	t.Helper()
	refs := map[*policySymbol]int{}
	for i := range b.table.directories {
		dir := b.table.directories[i].Load()
		if dir == nil {
			continue
		}
		for slot := range dir.slots {
			leaf := dir.slots[slot].Load()
			first := slot == 0 || dir.slots[slot-1].Load() != leaf
			for _, item := range b.table.items(leaf) {
				if got := int(dir.slot(item.hash)); dir.slots[got].Load() != leaf {
					t.Errorf("%s, %s: in slot %d, not in %d", item.peer, item.capability, slot, got)
				}
				if entry := item.state.entry(); entry.empty() {
					t.Errorf("%s, %s: an empty entry", item.peer, item.capability)
				}
				for symbol := range item.state.policy.symbols {
					if first {
						refs[symbol]++
					}
				}
			}
		}
	}
	for symbol, n := range refs {
		if symbol.refs != n || b.symbols[symbol.text] != symbol {
			t.Errorf("symbol %q: %d references, want %d", symbol.text, symbol.refs, n)
		}
	}
	if len(refs) != len(b.symbols) {
		t.Errorf("%d symbols are in use, the book has %d", len(refs), len(b.symbols))
	}
}

// Hashes that have few bits, so that keys collide in every way that they can.
var hashBits = map[string]uint64{
	"all bits":        ^uint64(0),
	"no bits":         0,
	"first two bits":  3 << 62,
	"four bits":       15 << 16,
	"all but the tag": ^uint64(0xff << 24),
	"one late bit":    1 << 40,
}

func TestBookAgainstModel(t *testing.T) {
	t.Parallel()
	for name, bits := range hashBits {
		for _, size := range [][2]int{{3, 4}, {1, 400}, {400, 1}, {20, 40}} {
			t.Run(fmt.Sprintf("%s/%dx%d", name, size[0], size[1]), func(t *testing.T) {
				t.Parallel()
				r := modelRun{t, new(PolicyBook), bookModel{}}
				r.book.table.unhashed = ^bits
				choose := rand.New(rand.NewPCG(uint64(size[0]), bits)).IntN
				for range 3000 {
					r.step(size[0], size[1], choose)
				}
				r.finish(size[0], size[1])
			})
		}
	}
}

func FuzzBookAgainstModel(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	f.Add([]byte("\x00\x00\x01\x01\x00\x00\x00\x01\x01\x03\x00\x00\x00\x01\x01\x04"))
	f.Fuzz(func(t *testing.T, choices []byte) {
		r := modelRun{t, new(PolicyBook), bookModel{}}
		for len(choices) > 0 {
			r.step(2, 2, func(n int) int {
				if len(choices) == 0 {
					return 0
				}
				c := int(choices[0]) % n
				choices = choices[1:]
				return c
			})
		}
		r.finish(2, 2)
	})
}
