package fedhttp

import "sync/atomic"

type watchKey struct{ peer, capability string }

// keyWatch is shared by all that wait for one key to change. It ends with the
// change: who waits on takes another one.
type keyWatch struct {
	key     watchKey
	done    chan struct{}
	waiters atomic.Int64 // negative: the last one left, nobody may join
}

// changed returns the channel that is closed at the change.
func (w *keyWatch) changed() <-chan struct{} { return w.done }

func (w *keyWatch) join() bool {
	for {
		n := w.waiters.Load()
		if n < 0 {
			return false
		}
		if w.waiters.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// watch returns a watch that ends at the next change of what the book knows of
// the key. To miss nothing: take the watch, then authorize, then wait. The
// caller must unwatch it in the end.
//
// Waiters join without a lock, so that a hundred thousand of them that come
// back for the next change keep no writer waiting.
func (b *PolicyBook) watch(peer, capability string) *keyWatch {
	key := watchKey{peer, capability}
	for {
		w, ok := b.watches.Load(key)
		if !ok {
			w, _ = b.watches.LoadOrStore(key, &keyWatch{key: key, done: make(chan struct{})})
		}
		// A writer may have taken w out by now; then it ends at once, which
		// is as good as a change.
		if w := w.(*keyWatch); w.join() {
			return w
		}
		b.watches.CompareAndDelete(key, w)
	}
}

// unwatch ends a wait, whether or not there was a change. The last of the
// waiters frees the watch.
func (b *PolicyBook) unwatch(w *keyWatch) {
	if w.waiters.Add(-1) == 0 && w.waiters.CompareAndSwap(0, -1) {
		b.watches.CompareAndDelete(w.key, w)
	}
}

// wake ends the key's watch. The caller holds no lock and has published the
// change: a waiter either had its watch before, and is woken, or takes it
// after, and then sees the change.
//
// Closing a channel makes its waiters runnable one by one and takes about a
// microsecond for each, so a goroutine of its own does it: the one that
// feeds the book goes on with the next write. It ends with the close.
func (b *PolicyBook) wake(peer, capability string) {
	if w, ok := b.watches.LoadAndDelete(watchKey{peer, capability}); ok {
		go close(w.(*keyWatch).done)
	}
}
