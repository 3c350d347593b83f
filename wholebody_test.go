package fedhttp_test

import (
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
)

// wholeBody is a body that can be had again, of a call that is not ended while somebody
// reads it.
//
// Where an HTTP/2 stream is refused, and its context ends at the same time, net/http
// looks whether its body was read, to send it again, and still reads it: a race of its
// own (readTrackingBody.didRead), harmless, that a test would be failed for.
type wholeBody struct {
	text string

	mu   sync.Mutex
	last *wholeReader // that was given out; of those before it net/http wants no more
	over bool
}

var errWholeBodyOver = errors.New("the call has been ended")

// get is the body, and the function for GetBody.
func (b *wholeBody) get() (io.ReadCloser, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return nil, errWholeBodyOver
	}
	b.last = &wholeReader{text: strings.NewReader(b.text)}
	return b.last, nil
}

// end has the function end the call, unless somebody reads, or is about to; from then
// on there is no other body.
func (b *wholeBody) end(call func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.last == nil || b.last.done.Load() {
		b.over = true
		call()
	}
}

type wholeReader struct {
	text *strings.Reader
	done atomic.Bool // it was read to its end
}

func (r *wholeReader) Read(p []byte) (int, error) {
	n, err := r.text.Read(p)
	if err != nil {
		r.done.Store(true)
	}
	return n, err
}

// Close says nothing of who still reads.
func (r *wholeReader) Close() error { return nil }
