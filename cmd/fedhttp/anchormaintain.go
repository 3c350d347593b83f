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
	var seen []byte             // what the file had when it was read last; nil: nothing yet
	var stop context.CancelFunc // nil: nothing is renewed
	for ctx.Err() == nil {
		if data, err := readFile(a.path); err == nil && (seen == nil || !bytes.Equal(data, seen)) {
			seen = data
			switch fetched, err := a.fetched(data); {
			case err != nil || fetched == (stop != nil):
			case fetched:
				var renew context.Context
				renew, stop = context.WithCancel(ctx)
				renewing.Go(func() { _ = t.MaintainAnchors(renew) })
			default:
				stop()
				stop = nil
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

// fetched reports whether the file has anchors that are fetched from a URL.
func (a *anchorFile) fetched(data []byte) (bool, error) {
	entries, err := a.parse(data)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.URL != "" || e.Bundle != "" {
			return true, nil
		}
	}
	return false, nil
}
