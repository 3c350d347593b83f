package fedhttp

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strconv"
)

// errorType is the semantic conventions' error.type of an attempt; "" for one
// that did not fail.
func (c *call) errorType(a *attempt) string {
	switch {
	case a.resp != nil && a.verdict == VerdictNone && a.resp.StatusCode < 400:
		return ""
	case a.resp != nil:
		return strconv.Itoa(a.resp.StatusCode)
	case a.expired:
		return "attempt_timeout" // a.err is only how the attempt was ended
	case errors.Is(c.Err(), context.DeadlineExceeded):
		return "deadline_exceeded"
	case c.Err() != nil:
		return "canceled"
	case errors.Is(a.err, io.EOF), errors.Is(a.err, io.ErrUnexpectedEOF):
		return "eof"
	}
	return typeOf(a.err)
}

// typeOf is the type of err, or of what its wrappers wrap: types are a closed set,
// while an error may say anything of itself.
func typeOf(err error) string {
	for range 8 { // deeper than any sane chain
		inner := wrappedIn(err)
		if inner == nil {
			break
		}
		err = inner
	}
	return reflect.TypeOf(err).String()
}

// wrappedIn is the error in one whose type says nothing, nil in any other.
func wrappedIn(err error) error {
	if both, ok := err.(*joined); ok { //nolint:errorlint // of err itself
		return both.err
	}
	switch reflect.TypeOf(err).String() {
	case "*url.Error", "*fmt.wrapError":
		return errors.Unwrap(err)
	}
	return nil
}
