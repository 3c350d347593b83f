package fedhttp

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// maxBodyRead is how much of a response's body is read ahead.
const maxBodyRead = 4 << 10

// listen adds what the peer's dialects take the answer to say.
func (c *call) listen(a *attempt) {
	signals, status := &c.peer.signals, a.resp.StatusCode
	if status < firstFailure {
		return // an answer of the application, whatever a hop says
	}
	heard := reply{status: status, header: a.resp.Header, newConn: a.fence.fresh()}
	if signals.wantsBody(&heard) {
		heard.body = c.peek(a)
	}
	signals.readDialects(&a.reading, &heard)
}

// peek returns the text of the response's body where it is short and there is proof
// that it is whole: of one that broke off, nobody knows what it would have said. It
// waits for it as long as the attempt has time left, and leaves the body as it is
// for the caller.
func (c *call) peek(a *attempt) string {
	if before, ok := a.resp.Body.(*readAhead); ok {
		return before.text
	}
	if a.bodyless() || a.resp.ContentLength >= maxBodyRead || !delimited(a.resp) {
		return ""
	}
	ahead := newReadAhead(a.resp.Body, a.cancel)
	a.resp.Body = ahead
	patience, done := context.WithTimeout(c, a.timeLeft())
	defer done()
	ahead.listen(patience)
	return ahead.text
}

// delimited reports whether the end of the body shows: not where it is the end of
// an HTTP/1 connection, which is also how one breaks off. That of one which net/http
// has decompressed may be: the length is not known any more, and what gzip ends may
// be one of several members. The connection goes on where it is not.
func delimited(resp *http.Response) bool {
	return resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.Uncompressed && !resp.Close || resp.ProtoMajor > 1
}

// readAhead is a body whose beginning is read before its reader asks for it, by a
// goroutine that goes on until the buffer is full, or the body ends or is closed.
// So nothing of the body depends on how long anybody listens.
type readAhead struct {
	body   io.ReadCloser
	cancel func()        // ends the attempt, and a read of body that is at hand
	text   string        // the whole body, where it was heard in time
	over   chan struct{} // closed when nothing more is read ahead

	buf [maxBodyRead]byte

	mu       sync.Mutex
	news     sync.Cond
	got      int  // bytes in buf
	given    int  // of them to the reader
	ended    bool // nothing more is read ahead
	closed   bool
	err      error // what ended the body
	panicked any   // what reading it panicked with
}

func newReadAhead(body io.ReadCloser, cancel func()) *readAhead {
	r := &readAhead{body: body, cancel: cancel, over: make(chan struct{})}
	r.news.L = &r.mu
	go r.fill()
	return r
}

func (r *readAhead) fill() {
	defer func() {
		panicked := recover() // it is the reader's, who can guard against it
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ended, r.panicked = true, panicked
		r.news.Signal()
		close(r.over)
	}()
	for {
		n, err := r.body.Read(r.buf[r.got:])
		if !r.more(n, err) {
			return
		}
	}
}

// more takes note of what was read, and reports whether to read on.
func (r *readAhead) more(n int, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got, r.err = r.got+n, err
	r.news.Signal()
	return err == nil && r.got < len(r.buf) && !r.closed
}

// listen waits for the whole body, until the context ends.
func (r *readAhead) listen(ctx context.Context) {
	select {
	case <-r.over:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.panicked != nil {
		panic(r.panicked)
	}
	if r.ended && r.err == io.EOF { //nolint:errorlint // as io.Reader has it
		r.text = string(r.buf[:r.got])
	}
}

func (r *readAhead) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if n, err := r.readBuffered(p); n > 0 || err != nil {
		return n, err
	}
	return r.body.Read(p)
}

// readBuffered gives out what was read ahead, and then what ended it. It returns
// nothing where the body itself is next.
func (r *readAhead) readBuffered(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.given == r.got && !r.ended {
		r.news.Wait()
	}
	switch {
	case r.closed:
		return 0, http.ErrBodyReadAfterClose
	case r.given < r.got:
		n := copy(p, r.buf[r.given:r.got])
		r.given += n
		return n, nil
	case r.panicked != nil:
		panic(r.panicked)
	}
	return 0, r.err
}

// Close closes the body at once, also while it is being read ahead.
func (r *readAhead) Close() error {
	r.mu.Lock()
	r.closed = true
	reading := !r.ended
	r.mu.Unlock()
	if reading {
		r.cancel() // a body may have its Close wait for a Read
	}
	return r.body.Close()
}
