package fedspiffe_test

import (
	"context"
	"crypto/x509"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedspiffe"
)

// anchorFor publishes b and fetches it.
func anchorFor(t *testing.T, s *fedspiffe.Source, p *publisher, b *spiffebundle.Bundle) fedhttp.Anchor {
	t.Helper()
	p.bundle.Store(b)
	a, err := s.FetchAnchor(t.Context(), "org-b")
	if err != nil {
		t.Fatalf("FetchAnchor: %v", err)
	}
	return a
}

func TestAnchor(t *testing.T) {
	t.Parallel()
	short, long := newCAFrom(t, domainB, -time.Hour, time.Hour), newCAFrom(t, domainB, -time.Hour, 3*time.Hour)
	gone := newCAFrom(t, domainB, -2*time.Hour, -time.Hour)
	p := newPublisher(t, bundleOf(7, short))
	e, _ := webEndpoint(t, p)
	s := newSource(t, e, nil)

	one := anchorFor(t, s, p, bundleOf(7, short))
	if !strings.HasPrefix(one.Version, "spiffe:7:") {
		t.Errorf("Version is %q, want it to begin with the sequence", one.Version)
	}
	if !one.IssuedAt.IsZero() {
		t.Errorf("IssuedAt is %v, want zero: a bundle does not say", one.IssuedAt)
	}
	if one.Certificates != nil {
		t.Error("the anchor can be shared among replicas, whose handshakes would go on under the bundle before")
	}
	if again := anchorFor(t, s, p, bundleOf(7, short)); again.Version != one.Version || !again.Roots.Equal(one.Roots) {
		t.Errorf("the same bundle is version %q, and then %q", one.Version, again.Version)
	}

	all := anchorFor(t, s, p, bundleOf(7, short, gone, long))
	pool := x509.NewCertPool()
	for _, c := range []*ca{long, short, gone} {
		pool.AddCert(c.cert)
	}
	if !all.Roots.Equal(pool) {
		t.Error("Roots are not the authorities of the bundle")
	}
	if !all.ExpiresAt.Equal(long.cert.NotAfter) {
		t.Errorf("ExpiresAt is %v, want the end of the last authority, %v", all.ExpiresAt, long.cert.NotAfter)
	}
	if all.Version == one.Version || !strings.HasPrefix(all.Version, "spiffe:7:") {
		t.Errorf("Version of another set with the same sequence is %q, and was %q", all.Version, one.Version)
	}
	if turned := anchorFor(t, s, p, bundleOf(7, long, short, gone)); turned.Version != all.Version {
		t.Errorf("the same set in another order is version %q, and was %q", turned.Version, all.Version)
	}
	if next := anchorFor(t, s, p, bundleOf(8, long, short, gone)); next.Version == all.Version || next.Version[9:] != all.Version[9:] {
		t.Errorf("the same set with the sequence 8 is version %q, and was %q", next.Version, all.Version)
	}
}

func TestRefreshHint(t *testing.T) {
	t.Parallel()
	c := newCA(t, domainB)
	p := newPublisher(t, bundleOf(1, c))
	e, _ := webEndpoint(t, p)
	s := newSource(t, e, nil)
	if a := anchorFor(t, s, p, bundleOf(1, c)); a.RefreshHint != 5*time.Minute {
		t.Errorf("RefreshHint of a bundle without one is %v, want 5m", a.RefreshHint)
	}
	for hint, want := range map[time.Duration]time.Duration{
		-time.Second: 5 * time.Minute, 0: 5 * time.Minute, time.Second: 5 * time.Second, 5 * time.Second: 5 * time.Second,
		time.Minute: time.Minute, 24 * time.Hour: 24 * time.Hour, 28 * 24 * time.Hour: 24 * time.Hour, math.MaxInt64 / 2: 24 * time.Hour,
	} {
		b := bundleOf(1, c)
		b.SetRefreshHint(hint)
		if a := anchorFor(t, s, p, b); a.RefreshHint != want {
			t.Errorf("RefreshHint of a bundle with %v is %v, want %v", hint, a.RefreshHint, want)
		}
	}
}

// TestSequence: what may come after what.
func TestSequence(t *testing.T) {
	t.Parallel()
	old, next := newCA(t, domainB), newCA(t, domainB)
	unnumbered := bundleOf(0, next)
	unnumbered.ClearSequenceNumber()
	for name, tt := range map[string]struct {
		bundles []*spiffebundle.Bundle
		refused bool // the last; those before it are adopted
	}{
		"higher":                     {[]*spiffebundle.Bundle{bundleOf(5, old), bundleOf(math.MaxUint64, next)}, false},
		"lower":                      {[]*spiffebundle.Bundle{bundleOf(5, old), bundleOf(4, next)}, true},
		"zero":                       {[]*spiffebundle.Bundle{bundleOf(5, old), bundleOf(0, next)}, true},
		"equal, with other contents": {[]*spiffebundle.Bundle{bundleOf(5, old), bundleOf(5, next)}, false},
		"none":                       {[]*spiffebundle.Bundle{bundleOf(0, old), unnumbered}, true},
		"none, and none before":      {[]*spiffebundle.Bundle{unnumbered, unnumbered}, false},
		"zero, and none before":      {[]*spiffebundle.Bundle{unnumbered, bundleOf(0, old)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPublisher(t, bundleOf(1, old))
			e, _ := webEndpoint(t, p)
			s := newSource(t, e, nil)
			last := len(tt.bundles) - 1
			for _, b := range tt.bundles[:last] {
				anchorFor(t, s, p, b)
			}
			p.bundle.Store(tt.bundles[last])
			_, err := s.FetchAnchor(t.Context(), "org-b")
			if refused := err != nil; refused != tt.refused {
				t.Errorf("FetchAnchor: %v, want an error: %v", err, tt.refused)
			}
			want := tt.bundles[last]
			if tt.refused {
				want = tt.bundles[last-1]
			}
			if !authorities(t, s).Equal(want.X509Bundle()) {
				t.Error("another bundle is held")
			}
		})
	}
}

// TestPeersOfOneDomain share its bundle, and what it may not go back behind.
func TestPeersOfOneDomain(t *testing.T) {
	t.Parallel()
	old, next := newCA(t, domainB), newCA(t, domainB)
	p := newPublisher(t, bundleOf(1, old))
	e, _ := webEndpoint(t, p)
	peer := fedspiffe.Peer{TrustDomain: domainB, AnyServer: true, Endpoint: e}
	s, err := fedspiffe.New(fedspiffe.Config{Peers: map[string]fedspiffe.Peer{"org-b": peer, "org-b2": peer}})
	if err != nil {
		t.Fatal(err)
	}
	fetch(t, s, "org-b")
	p.bundle.Store(bundleOf(2, next))
	fetch(t, s, "org-b2")
	p.bundle.Store(bundleOf(1, old))
	if _, err := s.FetchAnchor(t.Context(), "org-b"); err == nil {
		t.Error("a bundle older than one that the other peer has fetched was adopted")
	}
	server := serve(t, serverTLS(newWorkload(next.issue(t, registry))), false, noContent)
	for _, id := range []string{"org-b", "org-b2"} {
		if _, err := get(t, baseOf(t, s, id), server.URL); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// TestConcurrentUse rotates while many fetch and connect. What is held is always
// a whole bundle.
func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	cas := []*ca{newCA(t, domainB), newCA(t, domainB)}
	p := newPublisher(t, bundleOf(0, cas...))
	e, _ := webEndpoint(t, p)
	s := newSource(t, e, newWorkload(newCA(t, domainA).issue(t, client)))
	fetch(t, s, "org-b")
	server := serve(t, serverTLS(newWorkload(cas[0].issue(t, registry))), true, noContent)
	base := baseOf(t, s, "org-b")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := uint64(0); ctx.Err() == nil && i < 20; i++ {
				p.bundle.Store(bundleOf(i, cas...))
				_, _ = s.FetchAnchor(ctx, "org-b") // some come too late with a lower sequence
			}
		})
		wg.Go(func() {
			for range 10 {
				if _, err := get(t, base, server.URL); err != nil {
					t.Errorf("a request under an authority that is in every bundle: %v", err)
					cancel()
					return
				}
			}
		})
	}
	wg.Wait()
	cancel()
}
