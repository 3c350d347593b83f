package main

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/fedhttp/fedhttp"
)

// anchorEntry is an entry of the file of anchors: where a peer's anchor is fetched
// from, or the anchor itself.
type anchorEntry struct {
	Peer      string    `yaml:"peer"`
	URL       string    `yaml:"url"`    // of an anchor as JSON
	Bundle    string    `yaml:"bundle"` // URL of what fedhttp.HTTPAnchorSource fetches
	Version   string    `yaml:"version"`
	IssuedAt  time.Time `yaml:"issued_at"`
	ExpiresAt time.Time `yaml:"expires_at"`
}

// anchorFile is the anchor source of a file. It reads the file for each fetch, so
// that whoever renews an anchor only has to write it.
type anchorFile struct {
	path   string
	client *http.Client
	roots  *x509.CertPool // of the servers of bundles; nil: the system's
	log    *slog.Logger   // of why there is no anchor

	mu      sync.Mutex
	seen    map[string]os.FileInfo // of the file at a peer's last fetch
	bundles map[string]bundle
	failed  map[string]string // why a peer's last fetch failed
	content []byte            // that was parsed last, nil: none
	parsed  map[string]anchorEntry
}

// bundle is a peer's bundle, and what fetches it from there: it remembers what it has
// fetched before.
type bundle struct {
	url    string
	source *fedhttp.HTTPAnchorSource
}

func newAnchorFile(path string, base http.RoundTripper, roots *x509.CertPool) (*anchorFile, error) {
	a := &anchorFile{
		path: path, roots: roots, log: slog.New(slog.DiscardHandler),
		seen: map[string]os.FileInfo{}, bundles: map[string]bundle{}, failed: map[string]string{},
		client: &http.Client{
			Transport: base, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	_, err := a.entries()
	return a, err
}

// entries are what the file has of each peer. It is parsed when it has changed.
func (a *anchorFile) entries() (map[string]anchorEntry, error) {
	data, err := readFile(a.path)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.content == nil || !bytes.Equal(data, a.content) {
		entries, err := a.parse(data)
		if err != nil {
			return nil, err
		}
		a.content, a.parsed = data, entries
	}
	return a.parsed, nil
}

func (a *anchorFile) parse(data []byte) (map[string]anchorEntry, error) {
	var file struct {
		Anchors []anchorEntry `yaml:"anchors"`
	}
	if err := parseFile(a.path, data, &file, "anchors", "peer, bundle, url, version, issued_at, expires_at"); err != nil {
		return nil, err
	}
	entries := map[string]anchorEntry{}
	var faults []error
	for i, e := range file.Anchors {
		fault := func(text string) { faults = append(faults, fmt.Errorf("%s: anchors[%d]: %s", a.path, i, text)) }
		if _, twice := entries[e.Peer]; twice || e.Peer == "" {
			fault("want a peer, each once")
		}
		fetched := e.URL != "" || e.Bundle != ""
		if fetched == (e.Version != "") || e.URL != "" && e.Bundle != "" {
			fault("want one of url, bundle and version")
		}
		if fetched && (!e.IssuedAt.IsZero() || !e.ExpiresAt.IsZero()) {
			fault("issued_at and expires_at are those of a version; what is fetched has its own")
		}
		if !e.ExpiresAt.IsZero() && !e.ExpiresAt.After(e.IssuedAt) {
			fault("expires_at: want a time after issued_at")
		}
		if e.Bundle != "" {
			if _, err := a.newSource(&e); err != nil {
				fault("bundle: " + err.Error())
			}
		}
		if e.URL != "" && !isPrivate(e.URL) {
			fault("url: want https, or http on a loopback address, without userinfo")
		}
		entries[e.Peer] = e
	}
	return entries, errors.Join(faults...)
}

// isPrivate reports whether nobody on the way can change what the URL gives.
func isPrivate(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil {
		return false
	}
	addr, err := netip.ParseAddr(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (err == nil && addr.IsLoopback() || u.Hostname() == "localhost")
}

// unhurried is when an anchor that stands in the file is fetched ahead of time, unless half
// of its life is over before: whoever writes it may never do so again, and each try until
// then would be a failure.
const unhurried = 10 * 365 * 24 * time.Hour

var errUnwritten = errors.New("the file has not been written since it was last read, so nobody has fetched an anchor")

// FetchAnchor fetches the peer's anchor from its URL. One that is in the file was
// fetched by whoever wrote it: once it has been read it is none that is fetched
// anew, until the file is written again.
func (a *anchorFile) FetchAnchor(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	anchor, err := a.fetch(ctx, peer)
	a.tell(ctx, peer, err)
	return anchor, err
}

// tell logs why a peer's anchor was not fetched, once until that changes: without one a
// decision only says that nothing is sent again.
func (a *anchorFile) tell(ctx context.Context, peer string, err error) {
	if errors.Is(err, context.Canceled) {
		return // nobody waits for it any more
	}
	text := ""
	if err != nil {
		text = plain(err.Error())
	}
	a.mu.Lock()
	news := a.failed[peer] != text
	a.failed[peer] = text
	a.mu.Unlock()
	if news && err != nil {
		a.log.LogAttrs(ctx, slog.LevelWarn, "anchor not fetched", slog.String("peer", plain(peer)), slog.String("error", text))
	}
}

func (a *anchorFile) fetch(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	seen, err := os.Stat(a.path)
	if err != nil {
		return fedhttp.Anchor{}, err
	}
	entries, err := a.entries()
	if err != nil {
		return fedhttp.Anchor{}, err
	}
	e, ok := entries[peer]
	switch {
	case !ok:
		return fedhttp.Anchor{}, fmt.Errorf("%s has no anchor of this peer", a.path)
	case e.URL != "":
		return a.get(ctx, e.URL)
	case e.Bundle != "":
		source, err := a.source(&e)
		if err != nil {
			return fedhttp.Anchor{}, err
		}
		return source.FetchAnchor(ctx, peer)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if before := a.seen[peer]; before != nil && sameVersion(before, seen) {
		return fedhttp.Anchor{}, errUnwritten
	}
	a.seen[peer] = seen
	return fedhttp.Anchor{Version: e.Version, IssuedAt: e.IssuedAt, ExpiresAt: e.ExpiresAt, RefreshHint: unhurried}, nil
}

// sameVersion reports whether a file has not been written: it is neither another one, nor
// younger, nor longer.
func sameVersion(before, now os.FileInfo) bool {
	return os.SameFile(before, now) && before.ModTime().Equal(now.ModTime()) && before.Size() == now.Size()
}

// source returns what fetches the bundle of the entry.
func (a *anchorFile) source(e *anchorEntry) (*fedhttp.HTTPAnchorSource, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if kept := a.bundles[e.Peer]; kept.url == e.Bundle {
		return kept.source, nil
	}
	source, err := a.newSource(e)
	if err == nil {
		a.bundles[e.Peer] = bundle{e.Bundle, source}
	}
	return source, err
}

func (a *anchorFile) newSource(e *anchorEntry) (*fedhttp.HTTPAnchorSource, error) {
	source, err := fedhttp.NewHTTPAnchorSource(fedhttp.HTTPAnchors{URLs: map[string]string{e.Peer: e.Bundle}, Roots: a.roots})
	if fault := (*fedhttp.ConfigError)(nil); errors.As(err, &fault) {
		return nil, fmt.Errorf(fault.Format, fault.Args...)
	}
	return source, err
}

const maxAnchor = 64 << 10

// get fetches an anchor as JSON: version, issued_at, expires_at.
func (a *anchorFile) get(ctx context.Context, at string) (fedhttp.Anchor, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return fedhttp.Anchor{}, err
	}
	resp, err := a.client.Do(req)
	if failed := (*url.Error)(nil); errors.As(err, &failed) { // it has the query, which may be a secret
		err = fmt.Errorf("%s: %w", withoutSecrets(at), failed.Err)
	}
	if err != nil {
		return fedhttp.Anchor{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fedhttp.Anchor{}, fmt.Errorf("status %d instead of an anchor", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnchor))
	if err != nil {
		return fedhttp.Anchor{}, err
	}
	var anchor struct {
		Version   string    `json:"version"`
		IssuedAt  time.Time `json:"issued_at"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	switch err := json.Unmarshal(data, &anchor); {
	case err != nil:
		return fedhttp.Anchor{}, fmt.Errorf("no anchor: %w; name a JWK Set or CAs in PEM as bundle, and not as url", err)
	case anchor.Version == "":
		return fedhttp.Anchor{}, errors.New("no anchor: it has no version; name a JWK Set or CAs in PEM as bundle, and not as url")
	}
	return fedhttp.Anchor{Version: anchor.Version, IssuedAt: anchor.IssuedAt, ExpiresAt: anchor.ExpiresAt}, nil
}
