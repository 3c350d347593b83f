package fedconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode"
	"unicode/utf8"
)

// maxSize is how large a file may be, in bytes: room for thousands of peers.
const maxSize = 1 << 20

var errSize = fmt.Errorf("is larger than %d bytes", maxSize)

// read returns what is in the file, which is not opened where opening it could
// block.
func read(path string) ([]byte, error) {
	data, err := readRegular(path)
	if err != nil {
		return nil, fmt.Errorf("fedconfig: %w", err)
	}
	return data, nil
}

func readRegular(path string) ([]byte, error) {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &os.PathError{Op: "read", Path: path, Err: errors.New("is no regular file")}
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// One byte more than is allowed tells that there is more.
	return io.ReadAll(io.LimitReader(f, maxSize+1))
}

var byteOrderMark = []byte("\xEF\xBB\xBF")

// plain returns the text without a byte order mark, and reports whether it can
// be parsed at all: it is neither too large nor anything but text in UTF-8.
func plain(data []byte, found *faults) ([]byte, bool) {
	if len(data) > maxSize {
		found.add(place{}, "", "%v; split it, or write it shorter", errSize)
		return nil, false
	}
	data = bytes.TrimPrefix(data, byteOrderMark)
	pos := cursor{text: data}
	for pos.at < len(data) {
		r, size := utf8.DecodeRune(data[pos.at:])
		switch {
		case r == utf8.RuneError && size == 1:
			found.add(pos.place(), "", "byte 0x%02X is not UTF-8; want text in UTF-8", data[pos.at])
			return nil, false
		case r == '\n' || r == '\r' || r == '\t':
		// A parser may take these for line ends, or nobody sees them.
		case unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control) || r == '\uFEFF':
			found.add(pos.place(), "", "control character U+%04X; want printable text, or an escape in double quotes", r)
			return nil, false
		}
		pos.advance(pos.at + size)
	}
	return data, true
}

// cursor walks through a text and knows the line and column that it is at.
type cursor struct {
	text         []byte
	at           int // a byte
	line, column int // from 0
}

func (c *cursor) place() place { return place{c.line + 1, c.column + 1} }

func (c *cursor) advance(to int) {
	for ; c.at < to; c.at++ {
		switch b := c.text[c.at]; {
		case b == '\n', b == '\r' && (c.at+1 == len(c.text) || c.text[c.at+1] != '\n'):
			c.line, c.column = c.line+1, 0
		case utf8.RuneStart(b):
			c.column++
		}
	}
}
