package fedhttp

import (
	"fmt"
	"runtime"
	"testing"
)

// Not parallel: AllocsPerRun counts those of the whole process.
func TestAuthorizeDoesNotAllocate(t *testing.T) {
	b := new(PolicyBook)
	key := func(capability string) PolicyKey {
		return PolicyKey{Peer: "b.example", Capability: capability, Epoch: 1}
	}
	for _, capability := range []string{"pending", "accepted", "terms", "short", "negotiated"} {
		advertise(t, b, key(capability), digestA)
	}
	b.Accept(Policy{PolicyKey: key("accepted"), Digest: digestA})
	b.Accept(Policy{PolicyKey: key("terms"), Digest: digestA, Terms: someTerms})
	b.Accept(Policy{PolicyKey: key("short"), Digest: digestA, Terms: Terms{}})
	b.CacheNegotiation(Negotiation{PolicyKey: key("negotiated"), Digest: digestB, ExpiresAt: bookNow.Add(1), Terms: someTerms})
	for _, tt := range []struct {
		capability string
		defaults   Terms
		basis      Basis
		reason     Reason
	}{
		{"accepted", someTerms, BasisNoObligation, ReasonNone},
		{"accepted", nil, BasisAccepted, ReasonNone},
		{"terms", nil, BasisAccepted, ReasonNone},
		{"negotiated", nil, BasisNegotiated, ReasonNone},
		{"nothing", nil, BasisNone, ReasonNotAdvertised},
		{"pending", nil, BasisNone, ReasonNotAccepted},
		{"short", nil, BasisNone, ReasonTermsInsufficient},
		{"", nil, BasisNone, ReasonNone}, // ErrTaskRequired
	} {
		task := Task{Capability: tt.capability, Obligations: residency}
		auth, err := b.Authorize("b.example", task, tt.defaults, bookNow)
		if auth.Basis != tt.basis || reasonOf(err) != tt.reason {
			t.Fatalf("%q: %+v, %v", tt.capability, auth, err)
		}
		if n := testing.AllocsPerRun(100, func() {
			auth, err = b.Authorize("b.example", task, tt.defaults, bookNow)
		}); n != 0 {
			t.Errorf("%q, %q: %v allocations", tt.basis, tt.reason, n)
		}
	}
}

// Not parallel: it looks at the heap of the whole process.
func TestBookMemoryStaysFlat(t *testing.T) {
	const keys, rounds = 5_000, 20
	b := new(PolicyBook)
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	base := heap()
	var first uint64
	for round := range uint64(rounds) {
		for i := range keys {
			key := PolicyKey{Peer: fmt.Sprint("peer-", i%50), Capability: fmt.Sprint("capability-", i/50), Epoch: round}
			digest := fmt.Sprintf("sha256:%064x", uint64(i)<<32|round)
			advertise(t, b, key, digest)
			b.Accept(Policy{PolicyKey: key, Digest: digest, Terms: Terms{"round": fmt.Sprint(round)}})
		}
		if round == 0 {
			first = heap() - base
		}
	}
	last := heap() - base
	if want := keys + 1; len(b.symbols) != want {
		t.Errorf("%d symbols, want %d: one digest for each key, and the terms", len(b.symbols), want)
	}
	if last > first*5/4 {
		t.Errorf("the heap grew from %d to %d B in %d rounds", first, last, rounds)
	}
	runtime.KeepAlive(b)
}
