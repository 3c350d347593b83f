package main

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/fedhttp/fedhttp"
)

// maintain has the transport renew anchors ahead of time, until ctx ends, whenever the
// file has any that are fetched from a URL. With those alone that stand in it, there is
// none to fetch before it is written again, and each try would be a failure. A file that
// has faults changes nothing.
func (a *anchorFile) maintain(ctx context.Context, t *fedhttp.Transport) {
	var renewing sync.WaitGroup
	defer renewing.Wait()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var seen []byte                   // what the file had when it was read last; nil: nothing yet
	var before map[string]anchorEntry // that it had, without faults; nil: nothing yet
	var stop context.CancelFunc       // nil: nothing is renewed
	for ctx.Err() == nil {
		if data, err := readFile(a.path); err == nil && (seen == nil || !bytes.Equal(data, seen)) {
			seen = data
			if entries, err := a.parse(data); err == nil {
				switch fetched := refresh(t, before, entries); {
				case fetched == (stop != nil):
				case fetched:
					var renew context.Context
					renew, stop = context.WithCancel(ctx)
					renewing.Go(func() { _ = t.MaintainAnchors(renew) })
				default:
					stop()
					stop = nil
				}
				before = entries
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	if stop != nil {
		stop()
	}
}

// refresh has the anchors fetched that are to come from another URL than before: that which
// a peer has from the file, or from the URL before, may be good for years. It reports whether
// any comes from a URL.
func refresh(t *fedhttp.Transport, before, now map[string]anchorEntry) (fetched bool) {
	for peer, e := range now {
		if e.URL == "" && e.Bundle == "" {
			continue
		}
		fetched = true
		if was := before[peer]; before != nil && (e.URL != was.URL || e.Bundle != was.Bundle) {
			t.RefreshAnchor(peer)
		}
	}
	return fetched
}
