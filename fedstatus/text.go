package fedstatus

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxText bounds, in bytes before they are escaped, what is shown of a value.
	maxText = 256
	// maxRead bounds what is looked at: a URL must be seen whole to be redacted.
	maxRead = 4096
)

// shown returns s as it may be seen: without the secrets of its URLs, cut to
// maxText bytes, and with every character escaped that is not printable ASCII.
// "…", the only other character, marks what was left out. The library has done
// most of this before; nothing here relies on it.
func shown(s string) string {
	cut := len(s) > maxRead
	if cut {
		s = s[:maxRead]
	}
	s = redacted(s)
	if len(s) > maxText {
		s, cut = s[:maxText], true
		for range utf8.UTFMax - 1 { // not within a character
			if r, size := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || size != 1 {
				break
			}
			s = s[:len(s)-1]
		}
	}
	s = escaped(s)
	if cut {
		s += "…"
	}
	return s
}

// escaped returns s with every character that is not printable ASCII as in a Go
// string.
func escaped(s string) string {
	plain := func(r rune) bool { return ' ' <= r && r <= '~' }
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if plain(r) {
			b.WriteByte(byte(r))
		} else {
			q := strconv.QuoteToASCII(s[:size])
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[size:]
	}
	return b.String()
}

var (
	urls = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"<>]*`)
	host = regexp.MustCompile(`^([A-Za-z0-9._~%-]*|\[[0-9A-Fa-f:.%]*\])(:[0-9]*)?$`)
)

// redacted returns s with its URLs redacted.
func redacted(s string) string {
	if !strings.Contains(s, "://") {
		return s
	}
	var b strings.Builder
	done := 0
	for _, at := range urls.FindAllStringIndex(s, -1) {
		b.WriteString(s[done:at[0]])
		// One that ends where the text may have been cut can lack its "@".
		whole := at[1] < len(s) || len(s) <= maxText-utf8.UTFMax
		b.WriteString(redactedURL(s[at[0]:at[1]], whole))
		done = at[1]
	}
	b.WriteString(s[done:])
	return b.String()
}

// redactedURL returns a URL without userinfo, query and fragment; without all but
// its scheme where it cannot be told which part is which.
func redactedURL(raw string, whole bool) string {
	scheme, rest, _ := strings.Cut(raw, "://")
	authority, path := rest, ""
	if end := strings.IndexAny(rest, "/?#\\"); end >= 0 {
		authority, path = rest[:end], rest[end:]
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		authority = authority[at+1:]
	}
	if !whole || !host.MatchString(authority) || strings.Contains(path, "@") {
		return scheme + "://[redacted]"
	}
	if end := strings.IndexAny(path, "?#"); end >= 0 {
		path = path[:end]
	}
	return scheme + "://" + authority + path
}
