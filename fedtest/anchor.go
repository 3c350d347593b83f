package fedtest

import (
	"net/http"
	"strconv"
	"time"
)

// AnchorPath is where a peer serves its trust anchor, as the JSON of [Anchor].
const AnchorPath = "/.well-known/federation/anchor"

// Anchor is the peer's trust anchor.
type Anchor struct {
	Version   string    `json:"version"`
	IssuedAt  time.Time `json:"issued_at,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// anchorState is the current anchor and the count of its fetches. Peer.mu
// guards it.
type anchorState struct {
	current        Anchor
	rotations      int
	fetches, since int
}

// next returns the anchor after the current one: the next version, issued now,
// and later by a nanosecond at least, so that versions and times tell the same
// order even where the clock stands still.
func (s *anchorState) next(now time.Time, ttl time.Duration) Anchor {
	s.rotations++
	now = now.UTC().Round(0)
	if !now.After(s.current.IssuedAt) {
		now = s.current.IssuedAt.Add(1)
	}
	a := Anchor{Version: strconv.Itoa(s.rotations), IssuedAt: now}
	if ttl > 0 {
		a.ExpiresAt = now.Add(ttl)
	}
	return a
}

// Anchor returns the current trust anchor.
func (p *Peer) Anchor() Anchor {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.anchor.current
}

// Rotate issues a new trust anchor and returns it. Versions are decimal
// numbers that rise by one; the first anchor is "1". The one before is stale
// for the routing layer from now on.
func (p *Peer) Rotate() Anchor {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.anchor.current = p.anchor.next(p.cfg.Now(), p.cfg.AnchorTTL)
	p.anchor.since = 0
	return p.anchor.current
}

// SetAnchor puts an anchor of the caller's own in place, valid or not: one
// that is older, expired, empty or from the future. It counts as a rotation.
// The next Rotate goes on with its own numbers.
func (p *Peer) SetAnchor(a Anchor) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.anchor.current = a
	p.anchor.since = 0
}

// AnchorURL returns the URL of the anchor endpoint: URL plus [AnchorPath].
func (p *Peer) AnchorURL() string { return p.URL + AnchorPath }

// AnchorFetches returns how many requests reached the anchor endpoint, those
// included that a script made fail.
func (p *Peer) AnchorFetches() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.anchor.fetches
}

// AnchorFetchesSinceRotation returns how many of them came after the last
// Rotate or SetAnchor.
func (p *Peer) AnchorFetchesSinceRotation() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.anchor.since
}

func (p *Peer) serveAnchor(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, p.Anchor())
}

// stale reports whether the routing layer turns the request away for its
// anchor.
func (p *Peer) stale(r *http.Request) bool {
	if p.cfg.ChecksAnchor != nil && !p.cfg.ChecksAnchor(r) {
		return false
	}
	version := r.Header.Get(HeaderAnchorVersion)
	if version == "" {
		return p.cfg.RequireAnchor
	}
	return version != p.Anchor().Version
}
