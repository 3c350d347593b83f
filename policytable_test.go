package fedhttp

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestTableGrowth(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{100, 200}, {1, 20_000}, {20_000, 1}} {
		t.Run(fmt.Sprintf("%dx%d", size[0], size[1]), func(t *testing.T) {
			t.Parallel()
			b := new(PolicyBook)
			for p := range size[0] {
				for c := range size[1] {
					key := PolicyKey{Peer: fmt.Sprint("p", p), Capability: fmt.Sprint("c", c), Epoch: uint64(p ^ c)}
					advertise(t, b, key, "sha256:0")
				}
			}
			for p := range size[0] {
				for c := range size[1] {
					auth, _ := b.Authorize(fmt.Sprint("p", p), Task{Capability: fmt.Sprint("c", c)}, nil, bookNow)
					if want := (Authorization{"sha256:0", uint64(p ^ c), BasisNoObligation}); auth != want {
						t.Fatalf("p%d, c%d: %+v, want %+v", p, c, auth, want)
					}
					// The two names run together in another way.
					if s := b.table.find(fmt.Sprint("p", p, "c"), fmt.Sprint(c)); s != nil {
						t.Fatalf("p%dc, %d was found", p, c)
					}
				}
			}
			checkBook(t, b)
			leaves, slots, probes := map[*policyLeaf]bool{}, 0, 0
			for i := range b.table.directories {
				if dir := b.table.directories[i].Load(); dir != nil {
					slots += len(dir.slots)
					for j := range dir.slots {
						leaf := dir.slots[j].Load()
						leaves[leaf] = true
						if leaf.more != nil {
							t.Error("a leaf was not split")
						}
						if j > 0 && dir.slots[j-1].Load() == leaf {
							continue
						}
						for _, item := range b.table.items(leaf) {
							at := startOf(item.hash)
							for probes++; leaf.states[leaf.index[at].position-1] != item.state; at++ {
								probes++
							}
						}
					}
				}
			}
			if keys := size[0] * size[1]; probes > 3*keys/2 {
				t.Errorf("%d probes for %d keys", probes, keys)
			}
			if most := size[0]*size[1]/20 + 256; len(leaves) > most || slots > 8*most {
				t.Errorf("%d leaves in %d slots", len(leaves), slots)
			}
		})
	}
}

func TestEqualStringsAreStoredOnce(t *testing.T) {
	t.Parallel()
	b := new(PolicyBook)
	b.table.unhashed = ^uint64(0xffff << 16) // one leaf
	for c := range 100 {
		key := PolicyKey{Peer: strings.Clone("b.example"), Capability: fmt.Sprint("capability-", c), Epoch: 1}
		advertise(t, b, key, strings.Clone(digestA))
		b.Accept(Policy{PolicyKey: key, Digest: strings.Clone(digestA)})
		key.Peer = "c.example"
		advertise(t, b, key, digestB)
		b.Accept(Policy{PolicyKey: key, Digest: digestB, Terms: Terms{"residency": strings.Clone("eu")}})
	}
	if n := len(b.symbols); n != 3 {
		t.Errorf("%d symbols, want two digests and one set of terms", n)
	}
	policies := map[*policy]bool{}
	for i := range b.table.directories {
		dir := b.table.directories[i].Load()
		if dir == nil {
			continue
		}
		for leaf := dir.slots[0].Load(); leaf != nil; leaf = leaf.more {
			for _, name := range []string{"b.example", "c.example", "\x0dcapability-42"} {
				if n := strings.Count(leaf.names, name); n > 1 {
					t.Errorf("%q is %d times in a leaf", name, n)
				}
			}
			for _, state := range leaf.states {
				if state.policy.accepted {
					policies[state.policy] = true
				}
			}
		}
	}
	if len(policies) != 1 {
		t.Errorf("%d policies for the keys of one accepted digest", len(policies))
	}
}

func TestLongestNames(t *testing.T) {
	t.Parallel()
	b := new(PolicyBook)
	b.table.unhashed = ^uint64(0xff << 16) // one leaf and what is beyond its capacity
	name := func(kind string, i int) string {
		n := fmt.Sprint(kind, i)
		return n + strings.Repeat("x", maxPolicyName-len(n))
	}
	for i := range 2 * leafCapacity {
		advertise(t, b, PolicyKey{Peer: name("p", i), Capability: name("c", i), Epoch: uint64(i)}, digestA)
	}
	for i := range 2 * leafCapacity {
		if s := b.table.find(name("p", i), name("c", i)); s == nil || s.epoch != uint64(i) {
			t.Fatalf("key %d: %+v", i, s)
		}
	}
	checkBook(t, b)
}

// TestReadersAndWriters has writers move keys of the same leaves, and others
// that split those, while readers check that they see only what was written
// together, and nothing older than what they saw before.
func TestReadersAndWriters(t *testing.T) {
	t.Parallel()
	const keys, epochs = 16, 200
	b := new(PolicyBook)
	name := func(i int) string { return fmt.Sprint("capability-", i) }
	digest := func(key int, epoch uint64) string { return fmt.Sprint("sha256:", key, "-", epoch) }
	var written [keys]atomic.Uint64 // the last epoch whose Accept has returned
	var writers, others sync.WaitGroup
	done := make(chan struct{})
	for key := range keys {
		writers.Go(func() {
			for epoch := uint64(1); epoch <= epochs; epoch++ {
				k := PolicyKey{Peer: "b.example", Capability: name(key), Epoch: epoch}
				b.Accept(Policy{PolicyKey: k, Digest: digest(key, epoch)})
				if err := b.Advertise(Advertisement{k, digest(key, epoch)}); err != nil {
					t.Error(err)
				}
				written[key].Store(epoch)
			}
		})
	}
	others.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			key := PolicyKey{Peer: "b.example", Capability: fmt.Sprint("other-", i%3000), Epoch: uint64(i)}
			if err := b.Advertise(Advertisement{key, digestA}); err != nil {
				t.Error(err)
			}
		}
	})
	for range 4 {
		others.Go(func() {
			var seen [keys]uint64
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				key := i % keys
				least := max(seen[key], written[key].Load())
				auth, err := b.Authorize("b.example", Task{Capability: name(key), Obligations: residency}, nil, bookNow)
				if least == 0 && err != nil {
					continue // not written yet
				}
				if want := (Authorization{digest(key, auth.Epoch), auth.Epoch, BasisAccepted}); err != nil || auth != want || auth.Epoch < least {
					t.Errorf("key %d: %+v, %v after epoch %d", key, auth, err, least)
					return
				}
				seen[key] = auth.Epoch
			}
		})
	}
	writers.Wait()
	close(done)
	others.Wait()
	checkBook(t, b)
}

// TestHashPeer: names that differ anywhere, by length or by one byte, have
// different hashes, also in the bits that choose the directory.
func TestHashPeer(t *testing.T) {
	t.Parallel()
	hashes := map[uint64]string{}
	directories := map[uint8]int{}
	add := func(name string) {
		h := hashPeer(name)
		if other, ok := hashes[h]; ok && other != name {
			t.Fatalf("%q and %q have one hash", name, other)
		}
		hashes[h] = name
		directories[uint8(h)]++
	}
	for length := range 40 {
		name := bytes.Repeat([]byte("a"), length)
		add(string(name))
		for i := range name {
			for _, c := range []byte("b\x00\xff") {
				name[i] = c
				add(string(name))
			}
			name[i] = 'a'
		}
	}
	for i := range 100_000 {
		add(fmt.Sprintf("registry-%06d.example", i))
	}
	for d, n := range directories {
		if fair := len(hashes) / 256; n < fair/2 || n > 2*fair {
			t.Errorf("directory %d has %d of %d peers", d, n, len(hashes))
		}
	}
	if len(directories) != 256 {
		t.Errorf("%d directories have peers", len(directories))
	}
}
