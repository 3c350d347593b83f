package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxShown bounds what is shown of a text that came from elsewhere, in bytes.
const maxShown = 256

// plain returns s in printable ASCII, bounded: nothing in it can move a cursor,
// end a line or look like another. What is plain already stays as it is.
func plain(s string) string {
	cut := len(s) > maxShown
	if cut {
		s = s[:maxShown]
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if ' ' <= r && r <= '~' {
			b.WriteByte(s[0])
		} else {
			quoted := strconv.QuoteToASCII(s[:size])
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		s = s[size:]
	}
	if cut {
		b.WriteString("...")
	}
	return b.String()
}

// quote is plain, in double quotes.
func quote(s string) string { return `"` + plain(s) + `"` }

// rows are lines of a key and its values, one below the other.
type rows struct {
	lines [][2]string
}

// add adds a row. Further values stand below the first.
func (r *rows) add(key string, values ...string) {
	for i, value := range values {
		if i > 0 {
			key = ""
		}
		r.lines = append(r.lines, [2]string{key, value})
	}
}

// write writes the rows with their values aligned.
func (r *rows) write(w io.Writer, indent string) {
	width := 0
	for _, line := range r.lines {
		width = max(width, len(line[0]))
	}
	for _, line := range r.lines {
		fmt.Fprintf(w, "%s%-*s  %s\n", indent, width, line[0], line[1])
	}
}

// sorted returns the entries of a map as "key=value", in the order of the keys.
func sorted[K cmp.Ordered, V any](m map[K]V) []string {
	var entries []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		entries = append(entries, plain(fmt.Sprintf("%v=%v", key, m[key])))
	}
	return entries
}

// short writes a duration without the zeros at its end: 20m and not 20m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
