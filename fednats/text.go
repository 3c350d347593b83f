package fednats

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxQuoted bounds what of a foreign string enters errors and logs.
const maxQuoted = 256

func quote(s string) string {
	if len(s) <= maxQuoted {
		return strconv.QuoteToASCII(s)
	}
	return strconv.QuoteToASCII(s[:maxQuoted]) + "..."
}

// bounded is quote without the quotes.
func bounded(s string) string {
	s = quote(s)
	return s[1:strings.LastIndexByte(s, '"')]
}

// text is a string of any bytes: JSON has room for UTF-8 alone.
type text string

const binaryMark = "\x00base64:"

// MarshalText returns the string, in base64 behind a mark where it has to be.
func (t text) MarshalText() ([]byte, error) {
	if utf8.ValidString(string(t)) && !strings.HasPrefix(string(t), binaryMark) {
		return []byte(t), nil
	}
	return []byte(binaryMark + base64.StdEncoding.EncodeToString([]byte(t))), nil
}

// UnmarshalText is the opposite of MarshalText.
func (t *text) UnmarshalText(b []byte) error {
	rest, marked := bytes.CutPrefix(b, []byte(binaryMark))
	if !marked {
		*t = text(b)
		return nil
	}
	s, err := base64.StdEncoding.DecodeString(string(rest))
	*t = text(s)
	return err
}

// maxValue bounds a value of a bucket, here and at the server.
const maxValue = 64 << 10

var errOversized = fmt.Errorf("the value is longer than %d bytes", maxValue)

// decode reads a value that anybody may have written. A field that is not known is
// an error: it could say less than what would be read without it.
func decode(b []byte, v any) error {
	if len(b) > maxValue {
		return errOversized
	}
	d := decoders.Get().(*decoder)
	d.value.Reset(b)
	if err := d.json.Decode(v); err != nil {
		return fmt.Errorf("the value is malformed: %s", quote(err.Error()))
	}
	if _, err := d.json.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the value is malformed: there is more after it")
	}
	decoders.Put(d) // not after an error, which it would remember
	return nil
}

// decoder keeps its buffer from one value to the next: a replica that starts reads
// a hundred thousand.
type decoder struct {
	value bytes.Reader
	json  *json.Decoder
}

var decoders = sync.Pool{New: func() any {
	d := new(decoder)
	d.json = json.NewDecoder(&d.value)
	d.json.DisallowUnknownFields()
	return d
}}

// encode is the opposite of decode, for what this side writes.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err == nil && len(b) > maxValue {
		err = errOversized
	}
	return b, err
}
