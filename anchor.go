package fedhttp

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Anchor is the trust material for a peer.
type Anchor struct {
	// Version identifies the anchor. Required, at most 256 bytes: an anchor without
	// one is refused as empty. It is sent as X-Federation-Anchor-Version.
	Version string
	// IssuedAt and ExpiresAt bound its life; zero is unknown, and not compared.
	// An anchor issued before the last good one, issued more than a minute in
	// the future, or expired is refused.
	IssuedAt, ExpiresAt time.Time
	// RefreshHint is how long after a fetch MaintainAnchors fetches again, but not
	// later than at half of the remaining life. Zero: at half of it. Negative is
	// zero.
	RefreshHint time.Duration
	// Roots verify the peer's server certificate, and only that peer's, in place of
	// those of its base. Nil: the base's, or the system's. Roots that are equal to
	// those at hand, as CertPool.Equal has it, change nothing; others are in force for the very next attempt,
	// over connections of their own. They need a base that is an *http.Transport
	// without a DialTLSContext; with any other the peer's calls are refused.
	Roots *x509.CertPool
	// Certificates are what Roots are made of where Roots is nil. A source that
	// fills them, as HTTPAnchorSource does, has anchors that replicas can share: a
	// CertPool does not give its certificates away. They are not changed.
	Certificates []*x509.Certificate
}

// AnchorSource fetches a peer's current anchor. It is called by one goroutine a
// peer at a time, for several peers at once, and should end when ctx does, within 5 s. It should not go
// through the Transport that it serves: calls of it with ctx to the same peer go
// out under the anchor at hand, if any, and are not sent again. A panic is an
// error; one that never returns keeps the peer without refreshes, and nothing else.
type AnchorSource interface {
	FetchAnchor(ctx context.Context, peer string) (Anchor, error)
}

// refreshResult is what fetching an anchor came to. It is a closed set.
type refreshResult uint8

const (
	refreshFailed    refreshResult = iota // no anchor, or one that was refused; the last good one stays
	refreshConfirmed                      // the same version, freshly fetched
	refreshAdvanced                       // a newer version
)

var refreshNames = []string{"failed", "confirmed", "advanced"}

// String returns the result's token, such as "advanced".
func (r refreshResult) String() string { return enumString(refreshNames, "refresh result", r) }

// anchorFetchTimeout bounds one fetch, so that a call to a peer whose anchor
// endpoint hangs goes on.
const anchorFetchTimeout = 5 * time.Second

var (
	errFetchHangs  = errors.New("the fetch before has not returned yet")
	errNoAnchor    = errors.New("no anchor source is configured")
	errNoAnchorYet = errors.New("there is no anchor yet")
	errOwnFetch    = errors.New("the anchor source calls the peer that it fetches the anchor of through this Transport, which cannot wait for that")
	errExpired     = errors.New("the anchor has expired")
	errAnchorEmpty = errors.New("the anchor is empty: it has no version")
	errRootsEmpty  = errors.New("the anchor's Roots are empty: nothing would verify")
	errRootsGone   = errors.New("the anchor has no TLS roots, and the one before has")
)

// anchorKeeper holds one peer's anchor and fetches it anew, one fetch at a time,
// for everybody who waits.
type anchorKeeper struct {
	peer     string
	source   AnchorSource    // nil: nobody asks for a fetch
	lifetime context.Context // the Transport's: a fetch belongs to no single call
	ended    func(refreshResult)
	current  atomic.Pointer[keptAnchor]

	started     atomic.Uint64 // fetches begun so far; the number of the latest
	outstanding atomic.Bool   // a source was called and has not returned

	mu       sync.Mutex
	wanted   uint64        // the number of the first fetch that RefreshAnchor is content with
	flight   chan struct{} // closed when the fetch on its way has ended; nil: none is
	lastAt   time.Time     // when the last fetch began
	last     fetchOutcome  // the last fetch that ended
	newest   time.Time     // the latest IssuedAt ever taken: nothing rolls back behind it
	failures int           // in a row
	dueAt    time.Time     // when MaintainAnchors wants the next
}

type keptAnchor struct {
	Anchor
	fetchedAt time.Time
	trust     uint64 // counts the Roots that the peer has had; zero: none yet
}

// differs reports whether the anchors are not one and the same: a source may well
// give other roots under a version that it never changes.
func (a *keptAnchor) differs(b *keptAnchor) bool { return a.Version != b.Version || a.trust != b.trust }

func (a *keptAnchor) expired() bool { return !a.ExpiresAt.IsZero() && !time.Now().Before(a.ExpiresAt) }

type fetchOutcome struct {
	number uint64
	result refreshResult
	err    error
}

// anchor is the anchor at hand, which is never changed; an empty one where there
// is none.
func (k *anchorKeeper) anchor() *keptAnchor {
	if a := k.current.Load(); a != nil {
		return a
	}
	return &noAnchor
}

var noAnchor keptAnchor

// mark tells a fetch that begins after this call from one that began before.
func (k *anchorKeeper) mark() uint64 { return k.started.Load() }

// nextFetch is when the next fetch may begin.
func (k *anchorKeeper) nextFetch(interval time.Duration) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lastAt.Add(interval)
}

// lastFetch is what the last fetch that ended came to.
func (k *anchorKeeper) lastFetch() (refreshResult, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last.result, k.last.err
}

// obtain waits for an anchor where there is no valid one, and reports whether
// there was anything to wait for. Where none is required, only the calls up to
// the end of the first fetch wait: a peer whose anchor endpoint is down is not
// slowed down call by call.
func (k *anchorKeeper) obtain(ctx context.Context, required bool, interval time.Duration) (waited bool) {
	if k.fetchesIn(ctx) {
		return false
	}
	k.mu.Lock()
	ended, flying, tooSoon := k.last, k.flight != nil, time.Now().Before(k.lastAt.Add(interval))
	k.mu.Unlock()
	if ended.number > 0 && (!required || tooSoon && !flying) {
		return false
	}
	// Whatever is on its way will do: there is nothing that it could be too old for.
	_, _, _ = k.refresh(ctx, ended.number, k.anchor().differs, interval)
	return true
}

// refresh waits for a fetch that began after mark, or until there is an anchor that
// is enough without, such as another than the one that the caller went out under. It
// starts a fetch where none is on its way. That goes on when ctx ends, for the
// others who wait. waited tells whether there was anything to wait for.
func (k *anchorKeeper) refresh(ctx context.Context, mark uint64, enough func(*keptAnchor) bool, interval time.Duration) (result refreshResult, waited bool, err error) {
	if k.fetchesIn(ctx) {
		return refreshFailed, false, errOwnFetch
	}
	for {
		k.mu.Lock()
		if enough(k.anchor()) {
			k.mu.Unlock()
			return refreshAdvanced, waited, nil
		}
		if last := k.last; last.number > mark {
			k.mu.Unlock()
			return last.result, waited, last.err
		}
		waited = true
		flight := k.start(interval)
		k.mu.Unlock()
		select {
		case <-flight:
		case <-ctx.Done():
			return refreshFailed, waited, contextError(ctx)
		}
	}
}

// kick has a fetch started that nobody waits for.
func (k *anchorKeeper) kick(interval time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.start(interval)
}

// renew is kick for a fetch that begins from now on, also where one is on its way.
func (k *anchorKeeper) renew(interval time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.wanted = k.mark() + 1
	k.start(interval)
}

// start returns the flight on its way, a new one where none is. k.mu is held.
func (k *anchorKeeper) start(interval time.Duration) chan struct{} {
	if k.flight != nil {
		return k.flight
	}
	k.flight = make(chan struct{})
	var wait time.Duration
	if !k.lastAt.IsZero() {
		wait = time.Until(k.lastAt.Add(interval))
	}
	go k.fly(k.flight, wait, interval)
	return k.flight
}

func (k *anchorKeeper) fly(flight chan struct{}, wait, interval time.Duration) {
	open := k.sleep(wait)

	k.mu.Lock()
	k.lastAt = time.Now()
	out := fetchOutcome{number: k.started.Add(1), err: ErrClosed}
	k.mu.Unlock()

	var fetched Anchor
	if open {
		fetched, out.err = k.fetch()
	}
	k.mu.Lock()
	now := time.Now()
	if out.err == nil {
		out.result, out.err = k.take(fetched, now)
	}
	k.last, k.flight = out, nil
	k.plan(now, interval)
	if out.number < k.wanted {
		k.start(interval)
	}
	k.mu.Unlock()
	close(flight)
	if k.ended != nil && open {
		k.ended(out.result)
	}
}

type fetchKey struct{}

// fetchesIn reports whether ctx is that of a fetch of this very anchor. A call
// that the source makes with it must not wait for what waits for the call.
func (k *anchorKeeper) fetchesIn(ctx context.Context) bool { return ctx.Value(fetchKey{}) == k }

// sleep reports whether the Transport was still open at the end of d.
func (k *anchorKeeper) sleep(d time.Duration) bool {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-k.lifetime.Done():
		}
	}
	return k.lifetime.Err() == nil
}

// fetch asks the source, for a bounded time and whatever it does.
func (k *anchorKeeper) fetch() (Anchor, error) {
	if !k.outstanding.CompareAndSwap(false, true) {
		return Anchor{}, errFetchHangs
	}
	ctx, cancel := context.WithTimeout(context.WithValue(k.lifetime, fetchKey{}, k), anchorFetchTimeout)
	defer cancel()
	type answer struct {
		anchor Anchor
		err    error
	}
	answered := make(chan answer, 1)
	go func() {
		var a answer
		defer func() {
			if fault := recover(); fault != nil {
				a = answer{err: fmt.Errorf("the anchor source panicked: %s", faultText(fault))}
			}
			k.outstanding.Store(false)
			answered <- a
		}()
		if a.anchor, a.err = k.source.FetchAnchor(ctx, k.peer); a.err == nil {
			a.err = a.anchor.ownRoots()
		}
	}()
	select {
	case a := <-answered:
		return a.anchor, a.err
	case <-ctx.Done():
		return Anchor{}, fmt.Errorf("the anchor source has not answered: %w", context.Cause(ctx))
	}
}

// ownRoots makes the roots the keeper's own: what the source still does with its
// pool changes nothing.
func (a *Anchor) ownRoots() error {
	switch {
	case a.Roots != nil:
		a.Roots = a.Roots.Clone()
	case a.Certificates != nil:
		a.Roots = x509.NewCertPool()
		for i, c := range a.Certificates {
			if c == nil {
				return fmt.Errorf("anchor %s: Certificates[%d] is nil", quote(a.Version), i)
			}
			a.Roots.AddCert(c)
		}
	}
	a.Certificates = nil // nobody asks the keeper for them
	return nil
}

// take makes a the current anchor, or says why not. The last good one stays
// where it is refused. k.mu is held.
func (k *anchorKeeper) take(a Anchor, now time.Time) (refreshResult, error) {
	old := k.anchor()
	if old.IssuedAt.After(k.newest) {
		k.newest = old.IssuedAt // and stays, also behind an anchor without times
	}
	switch {
	case a.Version == "":
		return refreshFailed, errAnchorEmpty
	case !a.ExpiresAt.IsZero() && !now.Before(a.ExpiresAt):
		return refreshFailed, fmt.Errorf("anchor %s expired at %s", quote(a.Version), a.ExpiresAt.UTC().Format(time.RFC3339))
	case a.IssuedAt.After(now.Add(maxFuture)):
		return refreshFailed, fmt.Errorf("anchor %s is issued in the future, at %s", quote(a.Version), a.IssuedAt.UTC().Format(time.RFC3339))
	case !isHeaderValue(a.Version) || len(a.Version) > maxAnchorVersion:
		return refreshFailed, fmt.Errorf("anchor %s: its version cannot be sent in a header, or is longer than %d bytes", quote(a.Version), maxAnchorVersion)
	case !a.IssuedAt.IsZero() && a.IssuedAt.Before(k.newest):
		return refreshFailed, fmt.Errorf("anchor %s is older than one that was fetched before", quote(a.Version))
	case a.Roots != nil && a.Roots.Equal(noRoots):
		return refreshFailed, errRootsEmpty
	}
	kept := &keptAnchor{Anchor: a, fetchedAt: now}
	switch {
	case a.Roots == nil && old.Roots != nil:
		return refreshFailed, errRootsGone
	case a.Roots.Equal(old.Roots):
		kept.Roots, kept.trust = old.Roots, old.trust
	default:
		kept.trust = old.trust + 1
	}
	k.current.Store(kept)
	if kept.differs(old) {
		return refreshAdvanced, nil
	}
	return refreshConfirmed, nil
}

// maxAnchorVersion bounds, in bytes, what goes out with every request.
const maxAnchorVersion = 256

var noRoots = x509.NewCertPool()
