package main

import (
	"net/url"
	"strings"
)

// cookie is a peer's Set-Cookie for the gateway's client: to a client all peers are
// one host, and their cookies must not meet. The rest of the line stays as it is. ok
// is false for a cookie that would be every peer's: one whose name begins with
// __Host- demands that, and a path with ".." may be taken for another.
func (t *target) cookie(asked *url.URL, line string) (changed string, ok bool) {
	pair, attributes, _ := strings.Cut(line, ";")
	if name := strings.TrimLeft(pair, "= \t"); len(name) >= len(hostCookie) && strings.EqualFold(name[:len(hostCookie)], hostCookie) {
		return "", false
	}
	path := ""
	var b strings.Builder
	b.WriteString(strings.TrimRight(pair, " \t"))
	for attribute := range strings.SplitSeq(attributes, ";") {
		name, value, _ := strings.Cut(attribute, "=")
		switch name := strings.ToLower(strings.TrimSpace(name)); {
		case name == "path":
			path = strings.TrimSpace(value) // of several the last, RFC 6265
		case name != "domain" && strings.TrimSpace(attribute) != "":
			b.WriteString(";" + attribute)
		}
	}
	if !strings.HasPrefix(path, "/") { // then it is the folder of what was asked for
		path = asked.EscapedPath()
		path = path[:max(strings.LastIndexByte(path, '/'), 0)]
	}
	if path == "" {
		path = "/"
	}
	if _, ok := t.at(path, ""); !ok {
		return "", false
	}
	return b.String() + "; Path=" + t.prefix() + path, true
}

const hostCookie = "__Host-"
