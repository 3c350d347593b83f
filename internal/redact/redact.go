// Package redact takes the secrets out of the URLs in a text: in an error, in
// what a peer wrote, in whatever is logged or shown.
package redact

import (
	"math/bits"
	"regexp"
	"strings"
)

const (
	// instead takes the place of what may be secret.
	instead = "[redacted]"
	// cutMark ends what was cut.
	cutMark = "..."
	// spaces end a URL that is not quoted.
	spaces = " \t\n\v\f\r"
	// closers at the end of a URL that is not quoted belong to the text.
	closers = "\"'`>),;"
)

// host is what can be told to be one, with or without a port.
var host = regexp.MustCompile(`^([A-Za-z0-9._~%-]*|\[[0-9A-Fa-f:.%]*\])(:[0-9]*)?$`)

// Text returns s with every URL in it, which is whatever has a "://", without
// userinfo, query and fragment. A URL keeps nothing but its scheme, as in
// "https://[redacted]", where it cannot be told which part is which: its host is
// malformed, an "@" follows the host, or it was cut, which is so where it ends
// with "..." (which stays) and where its closing quote is missing.
//
// A URL right after a double quote ends at the closing one, as %q writes it: an
// escaped quote is a part of it, and so in a text that was quoted once more, as
// often as may be. Any other URL ends at white space: what follows a space in its
// query is not known to be of it.
//
// The redacted text stays as it is when it is redacted again. A URL grows by 10
// bytes at most. Text does not allocate where s has no "://".
func Text(s string) string {
	at := strings.Index(s, "://")
	if at < 0 {
		return s
	}
	var b strings.Builder
	for ; at >= 0; at = strings.Index(s, "://") {
		start := at
		for start > 0 && inScheme(s[start-1]) {
			start--
		}
		at += len("://")
		b.WriteString(s[:at])
		var url string
		if start > 0 && s[start-1] == '"' {
			url, s = quoted(s[at:], level(s[:start-1]))
		} else {
			url, s = bare(s[at:])
		}
		b.WriteString(url)
	}
	b.WriteString(s)
	return b.String()
}

func inScheme(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'
}

// bare redacts the URL that s begins with, after its scheme, and returns it and
// the text that follows it.
func bare(s string) (url, rest string) {
	end := strings.IndexAny(s, spaces)
	if end < 0 {
		end = len(s)
	}
	end = len(strings.TrimRight(s[:end], closers))
	return redacted(s[:end]), s[end:]
}

// quoted is bare for a URL in quotes of that level. Quotes of a lower one end it
// too, as they end what its own are in.
func quoted(s string, within int) (url, rest string) {
	for end := range len(s) {
		if s[end] != '"' {
			continue
		}
		if of := level(s[:end]); of <= within {
			// A backslash that is left over would escape the quote.
			return redacted(strings.TrimRight(s[:end], `\`)), s[end-(1<<of-1):]
		}
	}
	if strings.HasSuffix(s, cutMark) {
		return instead + cutMark, ""
	}
	return instead, ""
}

// level tells how many quoted texts a quote that follows s is within. Each
// doubles the backslashes before the quote and adds one, where those of the text
// itself are doubled once more: the level is the number's trailing ones.
func level(s string) int {
	backslashes := len(s) - len(strings.TrimRight(s, `\`))
	return bits.TrailingZeros(^uint(backslashes))
}

// redacted returns the rest of a URL, after its scheme, without its secrets.
func redacted(s string) string {
	if strings.HasSuffix(s, cutMark) {
		return instead + cutMark
	}
	authority, path := s, ""
	if end := strings.IndexAny(s, `/?#\`); end >= 0 {
		authority, path = s[:end], s[end:]
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	if !host.MatchString(authority) || strings.Contains(path, "@") {
		return instead
	}
	if end := strings.IndexAny(path, "?#"); end >= 0 {
		path = strings.TrimRight(path[:end], closers+`\`)
	}
	if url := authority + path; !strings.HasSuffix(url, cutMark) {
		return url
	}
	return instead
}
