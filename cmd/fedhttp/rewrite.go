package main

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
)

var errSwitched = errors.New("the peer switched protocols, which nobody has asked for")

// rewrite makes of the peer's response the gateway's. The body and everything else
// stay as they are.
func (t *target) rewrite(resp *http.Response, gateway string) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return errSwitched
	}
	h := resp.Header
	removeOwn(h)
	removeOwn(resp.Trailer)
	resp.Body = &trailerGuard{resp.Body, resp}
	if locations := h["Location"]; len(locations) > 0 {
		if to, ok := t.location(resp.Request.URL, locations, gateway); ok {
			h.Set("Location", to)
		} else {
			delete(h, "Location")
		}
	}
	if cookies := h["Set-Cookie"]; len(cookies) > 0 {
		delete(h, "Set-Cookie")
		for _, line := range cookies {
			if c, err := http.ParseSetCookie(line); err == nil {
				// To a client all peers are one host, and their cookies must not meet.
				c.Domain, c.Path = "", t.prefix()+"/"+strings.TrimPrefix(c.Path, "/")
				if text := c.String(); text != "" {
					h.Add("Set-Cookie", text)
				}
			}
		}
	}
	return nil
}

// location is the Location for the gateway's client: that of the peer's first
// origin through the gateway, another URL as it is. ok is false for one that would
// lead through the gateway to another peer, or cannot be read.
func (t *target) location(asked *url.URL, values []string, gateway string) (to string, ok bool) {
	if len(values) != 1 {
		return "", false
	}
	parsed, err := url.Parse(values[0])
	if err != nil {
		return "", false
	}
	u := asked.ResolveReference(parsed)
	switch first, any := t.owns(u); {
	case first:
		to := t.prefix() + "/" + strings.TrimPrefix(u.EscapedPath(), "/")
		if u.RawQuery != "" {
			to += "?" + u.RawQuery
		}
		if u.Fragment != "" {
			to += "#" + u.EscapedFragment()
		}
		return to, true
	case any:
		return u.String(), true
	}
	return u.String(), !strings.EqualFold(u.Host, gateway)
}

// trailerGuard takes the gateway's fields out of the trailer, which is there once
// the body has been read.
type trailerGuard struct {
	io.ReadCloser
	resp *http.Response
}

func (g *trailerGuard) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	if err != nil {
		removeOwn(g.resp.Trailer)
	}
	return n, err
}

// earlyGuard does the same to interim responses.
type earlyGuard struct{ http.ResponseWriter }

func (g earlyGuard) WriteHeader(status int) {
	if status < 200 {
		removeOwn(g.Header())
	}
	g.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (g earlyGuard) Unwrap() http.ResponseWriter { return g.ResponseWriter }
