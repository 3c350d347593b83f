package fedhttp

import (
	"io"
	"net/http"
	"sync"
)

// A request's body belongs to the call from the moment RoundTrip is entered:
// it is closed exactly once on every path, and never buffered.
//
// Where the request has a GetBody, the base gets each body as it is. net/http
// knows the types of in-memory bodies and writes them together with the header;
// one that is wrapped costs a second write.
//
// Where it has none, the body can still be sent again as long as nobody has read
// from it. unreadBody finds that out, and keeps the body open while the base
// that gave up on it wants it closed.

type unreadBody struct {
	mu      sync.Mutex
	body    io.ReadCloser
	read    bool // the base has read from it
	closing bool // the base wants it closed
	kept    bool // a resend may still need it
	closed  bool
	failed  bool     // reading from it has failed, and not for being closed meanwhile
	reader  *attempt // whose clock reading moves on
}

func (b *unreadBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	closing := b.closing
	b.read = b.read || !closing
	b.mu.Unlock()
	if closing {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.body.Read(p)
	if n > 0 {
		b.reader.touch()
	}
	if err != nil && err != io.EOF {
		b.mu.Lock()
		b.failed = b.failed || !b.closing // HTTP/2 closes a body while it is read
		b.mu.Unlock()
	}
	return n, err
}

func (b *unreadBody) hasFailed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed
}

func (b *unreadBody) Close() error {
	b.mu.Lock()
	b.closing = true
	shut := !b.kept || b.read
	b.mu.Unlock()
	if shut {
		return b.close()
	}
	return nil
}

func (b *unreadBody) close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	if !first {
		return nil
	}
	return b.body.Close()
}

// abandon closes a body that is being read: on HTTP/1 net/http waits for that read,
// whatever becomes of the attempt's context.
func (b *unreadBody) abandon() {
	b.mu.Lock()
	reading := b.read
	b.closing = b.closing || reading
	b.mu.Unlock()
	if reading {
		go b.close() // which may take its time
	}
}

// again takes the body back from a base that has not read from it, nil where
// one has. The base may still hold b and use it late, so b ends here.
func (b *unreadBody) again() *unreadBody {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.read || b.closed {
		return nil
	}
	b.closing, b.closed = true, true
	return &unreadBody{body: b.body, kept: true}
}

// settle ends the keeping: no resend will come. A close that the base has asked
// for happens now.
func (b *unreadBody) settle() {
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
	unread  *unreadBody   // current, where the request has no GetBody
}

// open takes the body of req over.
func (s *bodySource) open(req *http.Request) {
	s.current = req.Body
	if req.Body == nil || req.Body == http.NoBody || req.GetBody != nil {
		return
	}
	s.unread = &unreadBody{body: req.Body, kept: true}
	s.current = s.unread
}

// take hands the body over to the base of an attempt, which closes it. Reading from
// it moves the attempt's clock on.
func (s *bodySource) take(a *attempt) io.ReadCloser {
	body := s.current
	if s.unread != nil {
		s.unread.reader = a
	}
	if body != http.NoBody {
		s.current = nil
	}
	return body
}

// rewind makes the body ready for another attempt, and reports whether that can
// be done.
func (s *bodySource) rewind(req *http.Request) bool {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return true
	case s.current != nil:
		return true // rewound before
	case s.unread != nil:
		again := s.unread.again()
		if again == nil {
			return false
		}
		s.unread, s.current = again, again
		return true
	default:
		body, err := req.GetBody()
		if err != nil || body == nil {
			return false
		}
		s.current = body
		return true
	}
}

// finish closes what no base has taken, and lets go of what one has.
func (s *bodySource) finish() {
	if s.current != nil && s.current != http.NoBody {
		s.current.Close() // nothing was read, so nothing is lost
		s.current = nil
	}
	if s.unread != nil {
		s.unread.settle()
	}
}

func closeBody(body io.ReadCloser) {
	if body != nil {
		body.Close() // the caller hears of what ended the call, not of this
	}
}
