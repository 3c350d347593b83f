package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf16"
)

// writeLine writes v as a line of JSON in printable ASCII, as plain is: what others
// have written stays within its string, on a terminal too.
func writeLine(w io.Writer, v any) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	line := make([]byte, 0, b.Len())
	for _, r := range b.String() { // what is not ASCII stands in strings alone
		switch {
		case r < 0x7f:
			line = append(line, byte(r))
		case r <= 0xffff:
			line = fmt.Appendf(line, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			line = fmt.Appendf(line, `\u%04x\u%04x`, high, low)
		}
	}
	_, err := w.Write(line)
	return err
}

// instant is a time, and how long ago that is.
func instant(t, now time.Time) string {
	text := t.UTC().Format(time.RFC3339)
	if age := now.Sub(t); age >= 0 {
		return text + ", " + roughly(age) + " ago"
	}
	return text + ", in " + roughly(t.Sub(now))
}

// roughly is a duration in its largest unit that is there twice.
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%dd", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
