package fedhttp

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
)

// A request's body belongs to the call from the moment RoundTrip is entered:
// it is closed exactly once on every path, and never buffered.
//
// The base gets a body that is watched: how far it has been read, so that a long upload
// is not taken for a peer that hangs, and what went wrong with it, which is not the
// peer's failure. Where the request has no GetBody, the body can still be sent again as
// long as nobody has read from it. So it is kept open while the base that gave up on it
// wants it closed.
//
// One is not watched: a small body in memory that can be had again. net/http knows such
// types and writes them together with the header, where any other costs a second
// write. It cannot fail, has the length that the request says, and the buffers of a
// connection take it at once, so there is nothing to be learned from watching it.

// smallBody is how many bytes are sent at once, whoever reads them.
const smallBody = 64 << 10

// inMemory is the type of what http.NewRequest makes of a reader in memory.
var inMemory = reflect.TypeOf(io.NopCloser(new(bytes.Reader)))

// needsNoWatch reports whether there is nothing to be learned from the reading of a body
// that can be had again. The length is that of the request.
func needsNoWatch(body io.ReadCloser, length int64) bool {
	if reflect.TypeOf(body) != inMemory {
		return false
	}
	var has int
	switch r := reflect.ValueOf(body).Field(0).Interface().(type) { // as net/http looks at it
	case *bytes.Reader:
		has = r.Len()
	case *bytes.Buffer:
		has = r.Len()
	case *strings.Reader:
		has = r.Len()
	default:
		return false
	}
	return has <= smallBody && (length <= 0 || length == int64(has))
}

type watchedBody struct {
	mu      sync.Mutex
	body    io.ReadCloser
	length  int64 // that it should have; not positive: any
	n       int64 // bytes that were read
	fault   error // what is wrong with it; not that it was closed meanwhile
	read    bool  // the base has read from it
	closing bool  // the base wants it closed
	kept    bool  // a resend may still need it
	closed  bool
	reader  *attempt // whose clock reading moves on
	// Where net/http has asked for another, the attempt's first and its last; else nil.
	first, last *watchedBody
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	closing := b.closing
	b.read = b.read || !closing
	b.mu.Unlock()
	if closing {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.body.Read(p)
	if fault := b.seen(n, err); fault != nil {
		b.fail(fault)
	} else if n > 0 {
		b.reader.touch()
	}
	return n, err
}

// seen takes down what a read has given, and returns what is wrong with it.
func (b *watchedBody) seen(n int, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n += int64(n)
	switch {
	case b.closing: // HTTP/2 closes a body while it is read
		return nil
	case b.length > 0 && b.n > b.length:
		return fmt.Errorf("the request's body is longer than its ContentLength, %d", b.length)
	case err == io.EOF && b.n < b.length: //nolint:errorlint // as io.Reader has it
		return fmt.Errorf("the request's body has %d bytes, and its ContentLength is %d", b.n, b.length)
	case err == io.EOF: //nolint:errorlint // see above
		return nil
	}
	return err
}

// fail notes the first fault of the attempt's bodies.
func (b *watchedBody) fail(fault error) {
	if b.first != nil {
		b = b.first
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == nil {
		b.fault = fault
	}
}

// failed is what was wrong with the attempt's body, nil where nothing was.
func (b *watchedBody) failed() error {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fault
}

// another is the attempt's GetBody. net/http asks for a body where it sends by itself
// again, because nothing has left.
func (b *watchedBody) another(getBody func() (io.ReadCloser, error)) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) {
		body, err := getBody()
		if err != nil || body == nil || body == http.NoBody {
			return body, err
		}
		last := &watchedBody{body: body, length: b.length, reader: b.reader, first: b}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.last = last
		return last, nil
	}
}

func (b *watchedBody) Close() error {
	b.mu.Lock()
	b.closing = true
	shut := !b.kept || b.read
	b.mu.Unlock()
	if shut {
		return b.close()
	}
	return nil
}

func (b *watchedBody) close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	if !first {
		return nil
	}
	return b.body.Close()
}

// abandon closes a body that is being read, and has no other read begin: on HTTP/1
// net/http waits for that read, whatever becomes of the attempt's context.
func (b *watchedBody) abandon() {
	b.mu.Lock()
	reading, last := b.read, b.last
	b.closing = true // nor is it read from now on
	b.mu.Unlock()
	if reading {
		go func() { // it may take its time
			defer func() { _ = recover() }() // what panics here nobody could contain
			b.close()
		}()
	}
	if last != nil {
		last.abandon()
	}
}

// again takes the body back from a base that has not read from it, nil where
// one has. The base may still hold b and use it late, so b ends here.
func (b *watchedBody) again() *watchedBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.read || b.closed {
		return nil
	}
	b.closing, b.closed = true, true
	return &watchedBody{body: b.body, length: b.length, kept: true}
}

// settle ends the keeping: no resend will come. A close that the base has asked
// for happens now.
func (b *watchedBody) settle() {
	b.mu.Lock()
	b.kept = false
	shut := b.closing
	b.mu.Unlock()
	if shut {
		b.close() // there is nobody left to tell
	}
}

// bodySource gives each attempt of a call its request body.
type bodySource struct {
	current io.ReadCloser // what the next attempt sends; owned by the call until it is handed over
	watched *watchedBody  // current, or the last that was; nil: it is not watched
}

// open takes the body of req over.
func (s *bodySource) open(req *http.Request) { s.set(req, req.Body) }

// set makes body the one of the next attempt.
func (s *bodySource) set(req *http.Request, body io.ReadCloser) {
	s.current, s.watched = body, nil
	again := req.GetBody != nil
	if body == nil || body == http.NoBody || again && needsNoWatch(body, req.ContentLength) {
		return
	}
	s.watched = &watchedBody{body: body, length: req.ContentLength, kept: !again}
	s.current = s.watched
}

// hand gives the body to the base of the attempt, which closes it.
func (s *bodySource) hand(a *attempt) {
	a.request.Body = s.current
	if s.watched != nil {
		s.watched.reader = a
		if a.request.GetBody != nil {
			a.request.GetBody = s.watched.another(a.request.GetBody)
		}
	}
	if s.current != http.NoBody {
		s.current = nil
	}
}

// rewind makes the body ready for another attempt, and reports whether that can
// be done.
func (s *bodySource) rewind(req *http.Request) bool {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return true
	case req.GetBody == nil:
		again := s.watched.again()
		if again == nil {
			return false
		}
		s.watched, s.current = again, again
		return true
	default:
		body, err := req.GetBody()
		if err != nil || body == nil {
			return false
		}
		s.set(req, body)
		return true
	}
}

// finish closes what no base has taken, and lets go of what one has.
func (s *bodySource) finish() {
	if s.current != nil && s.current != http.NoBody {
		s.current.Close() // nothing was read, so nothing is lost
		s.current = nil
	}
	if s.watched != nil {
		s.watched.settle()
	}
}

func closeBody(body io.ReadCloser) {
	if body != nil {
		body.Close() // the caller hears of what ended the call, not of this
	}
}
