package fedhttp

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxQuoted bounds, in bytes of the original, what is kept of a string that a
// peer sent.
const maxQuoted = 256

// bounded cuts s to maxQuoted bytes, at a rune's start, and reports whether it
// did. What is cut is copied: it would keep all of a peer's header alive.
func bounded(s string) (text string, cut bool) {
	if len(s) <= maxQuoted {
		return s, false
	}
	end := maxQuoted
	for end > maxQuoted-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return strings.Clone(s[:end]), true
}

// cutMark ends what was cut, so that nobody asks a peer about half an id.
const cutMark = "..."

// shortened returns s bounded, with cutMark where it was cut. What is as its caller named it
// is not escaped; without the mark nobody could tell where a URL's secrets end that was cut.
func shortened(s string) string {
	s, cut := bounded(s)
	if cut {
		s += cutMark
	}
	return s
}

// sanitize returns s bounded, with cutMark where it was cut, and with every
// character escaped that could end a line, move a cursor or look like another:
// the form in which a peer's words enter decisions, spans, logs and errors. It
// does not allocate for plain text.
func sanitize(s string) string {
	if s = shortened(s); !isPlain(s) {
		s = escape(s)
	}
	return s
}

func escape(s string) string {
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
func quote(s string) string {
	s, cut := bounded(s)
	s = strconv.QuoteToASCII(s)
	if cut {
		s += cutMark
	}
	return s
}
