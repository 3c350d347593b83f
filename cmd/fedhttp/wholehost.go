package main

import (
	"net/http"
	"net/url"
	"strings"
)

// wholeHost are the fields in which a response speaks for the host as a whole, or
// sends whoever shows it elsewhere. To a client all peers are one host, and none of
// them speaks for it.
var wholeHost = []string{
	"Alt-Svc", "Clear-Site-Data", "Strict-Transport-Security", "Refresh",
	"Nel", "Report-To", "Reporting-Endpoints",
}

// references makes the URLs in a peer's header those that the gateway's client has to
// use, and takes away those that would lead it to another peer.
func (t *target) references(asked *url.URL, h http.Header, at here) {
	for _, name := range []string{"Location", "Content-Location"} {
		if values := h[name]; len(values) > 0 {
			if to, ok := t.location(asked, values, at); ok {
				h.Set(name, to)
			} else {
				delete(h, name)
			}
		}
	}
	if lines := h["Link"]; len(lines) > 0 {
		delete(h, "Link")
		for _, line := range lines {
			if line, ok := t.links(asked, line, at); ok {
				h.Add("Link", line)
			}
		}
	}
}

// links is a line of Link (RFC 8288) for the gateway's client: what stands between
// angle brackets, outside of strings, is like a Location, and the rest as it was. ok
// is false where one of the links must not be followed, or it is no such line.
func (t *target) links(asked *url.URL, line string, at here) (changed string, ok bool) {
	var b strings.Builder
	quoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case quoted && c == '\\' && i+1 < len(line):
			b.WriteByte(c)
			i++
		case c == '"':
			quoted = !quoted
		case c == '<' && !quoted:
			reference, _, closed := strings.Cut(line[i+1:], ">")
			to, allowed := t.location(asked, []string{reference}, at)
			if !closed || !allowed {
				return "", false
			}
			b.WriteString("<" + to)
			i += 1 + len(reference)
		}
		b.WriteByte(line[i])
	}
	if quoted || line == "" {
		return "", false
	}
	return b.String(), true
}
