package fedhttp

import (
	"strconv"
	"unicode/utf8"
)

// maxQuoted bounds, in bytes of the original, what is kept of a string that a
// peer sent.
const maxQuoted = 256

// bounded cuts s to maxQuoted bytes, at a rune's start.
func bounded(s string) string {
	if len(s) <= maxQuoted {
		return s
	}
	cut := maxQuoted
	for cut > maxQuoted-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut]
}

// sanitize returns s bounded and with every character escaped that could end a
// line, move a cursor or look like another: the form in which a peer's words
// enter decisions, spans, logs and errors. It does not allocate for plain text.
func sanitize(s string) string {
	s = bounded(s)
	if isPlain(s) {
		return s
	}
	escaped := make([]byte, 0, 2*len(s))
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if ' ' <= r && r <= '~' {
			escaped = append(escaped, byte(r))
		} else {
			q := strconv.QuoteToASCII(s[:size])
			escaped = append(escaped, q[1:len(q)-1]...)
		}
		s = s[size:]
	}
	return string(escaped)
}

func isPlain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// quote returns s bounded, escaped and in double quotes, for error messages.
func quote(s string) string { return strconv.QuoteToASCII(bounded(s)) }
