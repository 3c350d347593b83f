package fednats

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// countingSource answers with what is set, and counts.
type countingSource struct {
	calls atomic.Int64
	fetch func(ctx context.Context, n int64) (fedhttp.Anchor, error)
}

func (s *countingSource) FetchAnchor(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	if peer != "org-b" {
		return fedhttp.Anchor{}, errors.New("another peer: " + peer)
	}
	return s.fetch(ctx, s.calls.Add(1))
}

func testCertificate(t testing.TB, ca bool) *x509.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: ca, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	must(t, err)
	c, err := x509.ParseCertificate(der)
	must(t, err)
	return c
}

// fetchAll has every source fetch at the same time.
func fetchAll(t *testing.T, sources []fedhttp.AnchorSource) []fedhttp.Anchor {
	t.Helper()
	anchors := make([]fedhttp.Anchor, len(sources))
	var all sync.WaitGroup
	for n, s := range sources {
		all.Go(func() {
			var err error
			if anchors[n], err = s.FetchAnchor(t.Context(), "org-b"); err != nil {
				t.Errorf("replica %d: %v", n, err)
			}
		})
	}
	all.Wait()
	return anchors
}

// begunSource counts the calls that have begun.
type begunSource struct {
	fedhttp.AnchorSource
	begun *atomic.Int64
}

func (s begunSource) FetchAnchor(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	s.begun.Add(1)
	return s.AnchorSource.FetchAnchor(ctx, peer)
}

func TestAnchorsFetchedOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	issued, root := time.Now().Add(-time.Minute).UTC().Round(0), testCertificate(t, true)
	const replicas = 8
	var begun atomic.Int64
	source := &countingSource{fetch: func(ctx context.Context, n int64) (fedhttp.Anchor, error) {
		for begun.Load()%replicas != 0 && ctx.Err() == nil { // all are there before the first has its answer
			sleep(ctx, time.Millisecond)
		}
		return fedhttp.Anchor{
			Version: fmt.Sprint("v", n), IssuedAt: issued, ExpiresAt: issued.Add(time.Hour), RefreshHint: 5 * time.Second,
			Certificates: []*x509.Certificate{root},
		}, nil
	}}
	var sources []fedhttp.AnchorSource
	for n := range replicas {
		sources = append(sources, begunSource{open(t, s, Config{Name: fmt.Sprint(n)}).Anchors(source), &begun})
	}
	for round := int64(1); round <= 3; round++ {
		for n, a := range fetchAll(t, sources) {
			if a.Version != fmt.Sprint("v", round) || !a.IssuedAt.Equal(issued) || !a.ExpiresAt.Equal(issued.Add(time.Hour)) ||
				a.RefreshHint != 5*time.Second || len(a.Certificates) != 1 || !a.Certificates[0].Equal(root) {
				t.Errorf("round %d, replica %d: %+v", round, n, a)
			}
		}
		if n := source.calls.Load(); n != round {
			t.Fatalf("round %d: %d fetches", round, n)
		}
	}
	// A replica that starts now takes what is there; the next time it asks.
	late := open(t, s, Config{}).Anchors(source)
	for n, want := range []int64{3, 4} {
		a, err := late.FetchAnchor(t.Context(), "org-b")
		if err != nil || a.Version != fmt.Sprint("v", want) || source.calls.Load() != want {
			t.Errorf("call %d: %+v, %v, %d fetches", n, a, err, source.calls.Load())
		}
	}
}

// TestAnchorsUnchanged: the same version repairs nothing, so one that was fetched
// before the call does not count, and one that is fetched after it does.
func TestAnchorsUnchanged(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	source := &countingSource{fetch: func(context.Context, int64) (fedhttp.Anchor, error) { return fedhttp.Anchor{Version: "v"}, nil }}
	a, b := open(t, s, Config{}).Anchors(source), open(t, s, Config{}).Anchors(source)
	for n, one := range []fedhttp.AnchorSource{a, b, a, b} {
		if got, err := one.FetchAnchor(t.Context(), "org-b"); err != nil || got.Version != "v" {
			t.Fatalf("%+v, %v", got, err)
		}
		if want := []int64{1, 1, 2, 3}[n]; source.calls.Load() != want {
			t.Errorf("call %d: %d fetches, want %d", n, source.calls.Load(), want)
		}
	}
}

func TestAnchorsFailures(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	one, two := open(t, s, Config{Name: "one"}), open(t, s, Config{Name: "two"})

	// The failure of a fetch that somebody made for all is everybody's.
	broken := &countingSource{fetch: func(context.Context, int64) (fedhttp.Anchor, error) {
		return fedhttp.Anchor{}, errors.New("404\x1b")
	}}
	if _, err := one.Anchors(broken).FetchAnchor(t.Context(), "org-b"); err == nil || err.Error() != "404\x1b" {
		t.Errorf("who has fetched: %v", err)
	}
	bucket, err := one.bucket(t.Context(), one.names.anchors())
	must(t, err)
	e, err := bucket.Get(t.Context(), anchorKey("org-b"))
	must(t, err)
	var v anchorValue
	must(t, decode(e.Value(), &v))
	v.Lease = 1 << 60 // as of a fetch that begins after the next call does
	value, err := encode(v)
	must(t, err)
	_, err = bucket.Put(t.Context(), anchorKey("org-b"), value)
	must(t, err)
	_, err = two.Anchors(broken).FetchAnchor(t.Context(), "org-b")
	if err == nil || !strings.Contains(err.Error(), "404") || !strings.Contains(err.Error(), "one") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("who has waited: %v", err)
	}
	if n := broken.calls.Load(); n != 1 {
		t.Errorf("%d fetches", n)
	}
	must(t, bucket.Delete(t.Context(), anchorKey("org-b")))

	// Roots without certificates cannot be shared.
	pooled := &countingSource{fetch: func(context.Context, int64) (fedhttp.Anchor, error) {
		return fedhttp.Anchor{Version: "v", Roots: x509.NewCertPool()}, nil
	}}
	for n, f := range []*Fleet{one, two} {
		a, err := f.Anchors(pooled).FetchAnchor(t.Context(), "org-b")
		if err != nil || a.Roots == nil || pooled.calls.Load() != int64(n+1) {
			t.Errorf("%+v, %v, %d fetches", a, err, pooled.calls.Load())
		}
	}
}

// TestAnchorsLease: a holder that dies is replaced when its lease ends, within the
// same call.
func TestAnchorsLease(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{})
	bucket, err := f.bucket(t.Context(), f.names.anchors())
	must(t, err)
	// As good as dead: it has the lease, and nothing comes of it.
	fetching, dead := make(chan struct{}), open(t, s, Config{})
	over, stop := context.WithCancel(t.Context())
	var holder sync.WaitGroup
	holder.Go(func() {
		_, _ = dead.Anchors(&countingSource{fetch: func(context.Context, int64) (fedhttp.Anchor, error) {
			close(fetching)
			<-over.Done()
			return fedhttp.Anchor{}, over.Err()
		}}).FetchAnchor(t.Context(), "org-b")
	})
	defer holder.Wait()
	defer stop()
	<-fetching
	source := &countingSource{fetch: func(context.Context, int64) (fedhttp.Anchor, error) { return fedhttp.Anchor{Version: "v"}, nil }}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // what a Transport gives it
	defer cancel()
	a, err := f.Anchors(source).FetchAnchor(ctx, "org-b")
	if err != nil || a.Version != "v" || source.calls.Load() != 1 {
		t.Errorf("%+v, %v, %d fetches", a, err, source.calls.Load())
	}
	var v anchorValue
	e, err := bucket.Get(t.Context(), anchorKey("org-b"))
	must(t, err)
	must(t, decode(e.Value(), &v))
	if v.Lease == 0 {
		t.Errorf("it fetched without the lease: %+v", v)
	}
}

func TestAnchorsWithoutCluster(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{})
	source := &countingSource{fetch: func(context.Context, int64) (fedhttp.Anchor, error) { return fedhttp.Anchor{Version: "v"}, nil }}
	anchors := f.Anchors(source)
	s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for range 3 {
		if a, err := anchors.FetchAnchor(ctx, "org-b"); err != nil || a.Version != "v" {
			t.Fatalf("%+v, %v", a, err)
		}
	}
}

func TestAnchorsHostile(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{})
	bucket, err := f.bucket(t.Context(), f.names.anchors())
	must(t, err)
	source := &countingSource{fetch: func(context.Context, int64) (fedhttp.Anchor, error) { return fedhttp.Anchor{Version: "own"}, nil }}
	leaf := testCertificate(t, false)
	hostile := func(change func(*anchorValue)) []byte {
		v := anchorValue{Peer: "org-b", Lease: 1 << 60, Anchor: &anchorPart{Version: "hostile", FetchedAt: time.Now()}}
		change(&v)
		b, err := encode(v)
		must(t, err)
		return b
	}
	cases := [][]byte{
		[]byte("{"), hostile(func(v *anchorValue) { v.Peer = "org-c" }), hostile(func(v *anchorValue) { v.Anchor.Version = "" }),
		hostile(func(v *anchorValue) { v.Anchor.Roots = [][]byte{{1, 2, 3}} }),
		hostile(func(v *anchorValue) { v.Anchor.Roots = [][]byte{leaf.Raw} }),
	}
	for n, value := range cases {
		_, err := bucket.Put(t.Context(), anchorKey("org-b"), value)
		must(t, err)
		a, err := f.Anchors(source).FetchAnchor(t.Context(), "org-b")
		if err != nil || a.Version != "own" || f.Status().Refused != uint64(n+1) {
			t.Errorf("case %d: %+v, %v, %d refused", n, a, err, f.Status().Refused)
		}
	}
}
