package fedspiffe

import (
	"context"
	"fmt"
	"time"

	"github.com/fedhttp/fedhttp"
)

// flight is a fetch, for all who asked before it began: what they know of the peer
// is older than what it brings.
type flight struct {
	ctx     context.Context
	cancel  context.CancelFunc
	waiters int           // by domain.mu
	done    chan struct{} // closed when anchor and err are there
	anchor  fedhttp.Anchor
	err     error
}

// refresh waits for a fetch that begins after this call.
func (d *domain) refresh(ctx context.Context) (fedhttp.Anchor, error) {
	f := d.board(ctx)
	defer d.leave(f)
	select {
	case <-f.done:
		return f.anchor, f.err
	case <-ctx.Done():
		return fedhttp.Anchor{}, fmt.Errorf("the endpoint has not answered yet: %w", context.Cause(ctx))
	}
}

func (d *domain) board(ctx context.Context) *flight {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.next
	if f == nil {
		f = &flight{done: make(chan struct{})}
		f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
		d.next = f
		go d.fly(f)
	}
	f.waiters++
	return f
}

// leave ends a fetch that nobody waits for any more.
func (d *domain) leave(f *flight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.waiters--; f.waiters > 0 {
		return
	}
	f.cancel()
	if d.next == f {
		d.next = nil
	}
}

func (d *domain) fly(f *flight) {
	defer close(f.done)
	// What panics is Config.Base or a parser, and there is no caller's goroutine here.
	defer func() {
		if fault := recover(); fault != nil {
			f.anchor, f.err = fedhttp.Anchor{}, fmt.Errorf("the fetch panicked: %.256q", fmt.Sprint(fault))
		}
	}()
	// One at a time, so that an older answer cannot overtake a newer one.
	select {
	case d.fetching <- struct{}{}:
		defer func() { <-d.fetching }()
	case <-f.ctx.Done():
		f.err = context.Cause(f.ctx)
		return
	}
	d.mu.Lock()
	if d.next == f {
		d.next = nil // who asks from now on needs another
	}
	d.mu.Unlock()
	b, err := d.fetch(f.ctx)
	if err != nil {
		f.err = err
		return
	}
	f.anchor, f.err = d.adopt(b, time.Now())
}
