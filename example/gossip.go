package main

import (
	"context"
	"errors"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// gossip reads what B advertises, again and again until ctx ends, keeps the
// book up to date, and tells of each capability that is new. An advertisement
// is a claim: it says which policy to agree on, and lets no task go.
func gossip(ctx context.Context, a *client, url string, seen chan<- string) {
	known := map[string]bool{}
	tick := time.NewTicker(scaled(gossipEvery))
	defer tick.Stop()
	for {
		var offers []fedtest.Advertisement
		// A round that fails is made up for by the next.
		_ = getJSON(ctx, a.Client, url, &offers)
		for _, offer := range offers {
			if a.book != nil {
				key := fedhttp.PolicyKey{Peer: orgB, Capability: offer.Capability, Epoch: offer.Epoch}
				err := a.book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: offer.Digest})
				if errors.Is(err, fedhttp.ErrStaleEpoch) {
					continue // it was overtaken on its way
				}
			}
			if known[offer.Capability] {
				continue
			}
			known[offer.Capability] = true
			select {
			case seen <- offer.Capability:
			case <-ctx.Done():
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
