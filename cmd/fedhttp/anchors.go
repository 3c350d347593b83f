package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/fedhttp/fedhttp"
)

// anchorEntry is an entry of the file of anchors: where a peer's anchor is fetched
// from, or the anchor itself.
type anchorEntry struct {
	Peer      string    `yaml:"peer"`
	URL       string    `yaml:"url"`
	Version   string    `yaml:"version"`
	IssuedAt  time.Time `yaml:"issued_at"`
	ExpiresAt time.Time `yaml:"expires_at"`
}

// anchorFile is the anchor source of a file. It reads the file for each fetch, so
// that whoever renews an anchor only has to write it.
type anchorFile struct {
	path   string
	client *http.Client

	mu   sync.Mutex
	seen map[string]stamp // of the file at a peer's last fetch
}

func newAnchorFile(path string, base http.RoundTripper) (*anchorFile, error) {
	a := &anchorFile{path: path, seen: map[string]stamp{}, client: &http.Client{
		Transport: base, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	_, err := a.entries()
	return a, err
}

// fetches reports whether there are anchors that are fetched from a URL.
func (a *anchorFile) fetches() bool {
	entries, err := a.entries()
	for _, e := range entries {
		if e.URL != "" {
			return err == nil
		}
	}
	return false
}

func (a *anchorFile) entries() (map[string]anchorEntry, error) {
	var file struct {
		Anchors []anchorEntry `yaml:"anchors"`
	}
	if err := readFile(a.path, &file); err != nil {
		return nil, err
	}
	entries := map[string]anchorEntry{}
	var faults []error
	for i, e := range file.Anchors {
		fault := func(text string) { faults = append(faults, fmt.Errorf("%s: anchors[%d]: %s", a.path, i, text)) }
		if _, twice := entries[e.Peer]; twice || e.Peer == "" {
			fault("want a peer, each once")
		}
		if (e.URL == "") == (e.Version == "") {
			fault("want either a url or a version")
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

var errUnwritten = errors.New("the file has not been written since it was last read, so nobody has fetched an anchor")

// FetchAnchor fetches the peer's anchor from its URL. One that is in the file was
// fetched by whoever wrote it: once it has been read it is none that is fetched
// anew, until the file is written again.
func (a *anchorFile) FetchAnchor(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	seen, err := stampOf(a.path)
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
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen[peer] == seen {
		return fedhttp.Anchor{}, errUnwritten
	}
	a.seen[peer] = seen
	return fedhttp.Anchor{Version: e.Version, IssuedAt: e.IssuedAt, ExpiresAt: e.ExpiresAt}, nil
}

const maxAnchor = 64 << 10

// get fetches an anchor as JSON: version, issued_at, expires_at.
func (a *anchorFile) get(ctx context.Context, url string) (fedhttp.Anchor, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fedhttp.Anchor{}, err
	}
	resp, err := a.client.Do(req)
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
	if err := json.Unmarshal(data, &anchor); err != nil {
		return fedhttp.Anchor{}, fmt.Errorf("no anchor: %w", err)
	}
	return fedhttp.Anchor{Version: anchor.Version, IssuedAt: anchor.IssuedAt, ExpiresAt: anchor.ExpiresAt}, nil
}
