package fednats

import (
	"context"
	"fmt"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// TestClusterAnchors: who finds the lease taken at the very moment waits for its
// holder, and does not take that for a broken cluster. (Three servers say it with
// another code than one.)
func TestClusterAnchors(t *testing.T) {
	c := newCluster(t, nil)
	source := &countingSource{fetch: func(_ context.Context, n int64) (fedhttp.Anchor, error) {
		return fedhttp.Anchor{Version: fmt.Sprint("v", n)}, nil // at once: leases are short
	}}
	var sources []fedhttp.AnchorSource
	for n := range 4 {
		sources = append(sources, c.open(Config{Name: fmt.Sprint(n), URL: c.url(n % 3)}).Anchors(source))
	}
	for round := int64(1); round <= 50; round++ {
		fetchAll(t, sources)
		if n := source.calls.Load(); n != round {
			t.Fatalf("round %d: %d fetches", round, n)
		}
	}
}
