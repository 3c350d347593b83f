package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/fedhttp/fedhttp"
)

// unfinished is the error for an answer that does not say what became of the request: a
// 101, which nobody has asked for, whose author is about to speak another protocol; and a
// status below 100, which is none, and none that a server could pass on.
func unfinished(resp *http.Response, d fedhttp.Decision) error {
	err := errors.New("the peer switched protocols, which nobody has asked for")
	switch {
	case resp.StatusCode >= http.StatusOK:
		return nil
	case resp.StatusCode != http.StatusSwitchingProtocols:
		err = fmt.Errorf("the peer answered with the status %03d, which is none", resp.StatusCode)
	}
	d.Outcome, d.Reason = fedhttp.OutcomeAmbiguous, fedhttp.ReasonNoSignal
	return &fedhttp.Error{Decision: d, Err: err}
}

// rewrite makes of the peer's response the gateway's. The body and everything else
// stay as they are.
func (t *target) rewrite(resp *http.Response, at here) {
	h := resp.Header
	removePrefixed(h, ownWord)
	cleanTrailer(resp.Trailer)
	resp.Body = &trailerGuard{resp.Body, resp}
	for _, name := range wholeHost {
		delete(h, name)
	}
	t.references(resp.Request.URL, h, at)
	if lines := h["Set-Cookie"]; len(lines) > 0 {
		delete(h, "Set-Cookie")
		for _, line := range lines {
			if line, ok := t.cookie(resp.Request.URL, line); ok {
				h.Add("Set-Cookie", line)
			}
		}
	}
}

// location is the Location for the gateway's client: that of the peer's first
// origin through the gateway, another URL as it is. ok is false for one that would
// lead a client through the gateway to another peer, or cannot be read.
func (t *target) location(asked *url.URL, values []string, at here) (to string, ok bool) {
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
		through, ok := t.at("/"+strings.TrimPrefix(u.EscapedPath(), "/"), u.RawQuery)
		if !ok { // to some clients its path is another one
			return "", false
		}
		to := url.URL{RawQuery: u.RawQuery, ForceQuery: u.ForceQuery, Fragment: u.Fragment, RawFragment: u.RawFragment}
		return t.prefix() + through.EscapedPath() + to.String(), true
	case any:
		return u.String(), true
	case u.Host == "" && (u.Scheme == "http" || u.Scheme == "https"):
		return "", false // "http:/x" is relative to some clients
	}
	return u.String(), !at.is(u)
}

// here is where clients reach the gateway.
type here struct {
	host   string // that the client has asked, with its port
	port   string // on which the gateway listens
	remote bool   // also from other machines
}

// is reports whether the URL may lead to the gateway. A client may write this
// machine's address in many ways ("127.1", "0x7f000001"), so that only a name like
// those of other machines, and another machine's address, are taken for such.
func (at here) is(u *url.URL) bool {
	port := u.Port()
	if n, err := strconv.Atoi(port); err == nil {
		port = strconv.Itoa(n)
	}
	asked := url.URL{Host: at.host}
	if strings.EqualFold(u.Hostname(), asked.Hostname()) && port == asked.Port() {
		return true
	}
	if port == "" {
		port = defaultPorts[u.Scheme]
	}
	return port == at.port && (at.remote || !isElsewhere(u.Hostname()))
}

var dnsName = regexp.MustCompile(`^(?i:([a-z0-9_-]+\.)*[a-z][a-z0-9-]*\.?)$`)

func isElsewhere(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return !addr.Unmap().IsLoopback() && !addr.IsUnspecified()
	}
	return dnsName.MatchString(host) && !isLoopback(host)
}

// trailerGuard cleans the trailer, which is there once the body has been read.
type trailerGuard struct {
	io.ReadCloser
	resp *http.Response
}

func (g *trailerGuard) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	if err != nil {
		cleanTrailer(g.resp.Trailer)
	}
	return n, err
}

// cleanTrailer takes out of a trailer what rewrite would have changed in a header.
func cleanTrailer(trailer http.Header) {
	removePrefixed(trailer, ownWord)
	for _, name := range wholeHost {
		delete(trailer, name)
	}
	for _, name := range []string{"Location", "Content-Location", "Link", "Set-Cookie"} {
		delete(trailer, name)
	}
}

// peerWriter writes the responses of peers.
type peerWriter struct {
	http.ResponseWriter
	passage
}

// WriteHeader lets a client have of an interim response what it is for, and of the
// final one no type that net/http would guess.
func (w peerWriter) WriteHeader(status int) {
	h := w.Header()
	if status < 200 {
		for name := range h {
			if name != "Link" {
				delete(h, name)
			}
		}
		w.target.references(w.url, h, w.at)
	} else if _, given := h["Content-Type"]; !given {
		h["Content-Type"] = nil
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w peerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
