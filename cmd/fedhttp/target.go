package main

import (
	"net/url"
	"strings"

	"github.com/fedhttp/fedhttp"
)

// target is where the requests of one peer go.
type target struct {
	id     string
	first  *url.URL // its first origin
	others []*url.URL
	routes routeTable
}

// targetsOf finds peers by their IDs.
func targetsOf(peers []fedhttp.Peer) map[string]*target {
	all := make(map[string]*target, len(peers))
	for _, p := range peers {
		t := &target{id: p.ID, routes: routesOf(p.Routes)}
		for _, o := range p.Origins {
			u, err := url.Parse(o)
			if err != nil {
				continue // fedhttp has accepted it, so it can be parsed
			}
			if t.first == nil {
				t.first = u
			} else {
				t.others = append(t.others, u)
			}
		}
		if t.first != nil {
			all[p.ID] = t
		}
	}
	return all
}

// prefix is what the paths of the gateway begin with for this peer.
func (t *target) prefix() string { return "/" + url.PathEscape(t.id) }

// split takes the path of a request, escaped as it came, apart: the peer's ID and
// what is left for the peer.
func split(escaped string) (id, rest string, ok bool) {
	segment, rest, _ := strings.Cut(strings.TrimPrefix(escaped, "/"), "/")
	id, err := url.PathUnescape(segment)
	return id, "/" + rest, err == nil && id != ""
}

// at returns the URL of the path at the peer. ok is false for a path that a server
// could take for another one: with a "." or ".." between slashes of whatever kind,
// escaped or not, or with control characters. An escaped slash as such is passed on
// as it came.
func (t *target) at(escaped, rawQuery string) (u *url.URL, ok bool) {
	path, err := url.PathUnescape(escaped)
	if err != nil || !strings.HasPrefix(escaped, "/") {
		return nil, false
	}
	for i := range len(path) {
		if path[i] < ' ' || path[i] == 0x7f {
			return nil, false
		}
	}
	for segment := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '/' || r == '\\' }) {
		name, _, _ := strings.Cut(segment, ";") // "..;/" is ".." to some servers
		if name == "." || name == ".." {
			return nil, false
		}
	}
	return &url.URL{Scheme: t.first.Scheme, Host: t.first.Host, Path: path, RawPath: escaped, RawQuery: rawQuery}, true
}

// owns reports whether the URL is one of this peer's.
func (t *target) owns(u *url.URL) (first, any bool) {
	same := func(o *url.URL) bool { return sameOrigin(o, u) }
	if same(t.first) {
		return true, true
	}
	for _, o := range t.others {
		if same(o) {
			return false, true
		}
	}
	return false, false
}

var defaultPorts = map[string]string{"http": "80", "https": "443"}

func sameOrigin(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		if p := u.Port(); p != "" {
			return p
		}
		return defaultPorts[u.Scheme]
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}
