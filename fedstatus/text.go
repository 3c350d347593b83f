package fedstatus

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/fedhttp/fedhttp/internal/redact"
)

const (
	// maxText bounds, in bytes before they are escaped, what is shown of a value.
	maxText = 256
	// maxRead bounds what is looked at: a URL must be seen whole to be redacted.
	maxRead = 4096
	// cutMark ends a value of which something was left out, by the library too.
	cutMark = "..."
)

// shown returns s as it may be seen: without the secrets of its URLs, cut to
// maxText bytes with cutMark after them, and with every character escaped that is
// not printable ASCII. The library has done most of this before; nothing here
// relies on it.
func shown(s string) string {
	if len(s) > maxRead {
		s = s[:maxRead] + cutMark
	}
	s, cut := strings.CutSuffix(redact.Text(s), cutMark)
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
		s += cutMark
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
