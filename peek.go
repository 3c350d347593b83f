package fedhttp

import (
	"bytes"
	"io"
	"net/http"
)

// maxBodyRead is how much of a response's body is read ahead.
const maxBodyRead = 4 << 10

// peek returns the text of the response's body where it is short and there is proof
// that it is whole: of one that broke off, nobody knows what it would have said. It
// leaves the body whole: what is read ahead is put back. It may take AttemptTimeout
// once more; a body that takes longer ends there.
func (c *call) peek(a *attempt) string {
	if a.resp.Body == http.NoBody {
		return ""
	}
	if before, ok := a.resp.Body.(*readAhead); ok {
		return before.text
	}
	c.peer.clocks.start(&a.clock, a)
	ahead, err := io.ReadAll(io.LimitReader(a.resp.Body, maxBodyRead))
	a.clock.stop()
	rest, text := a.resp.Body, ""
	if err == nil && len(ahead) < maxBodyRead && delimited(a.resp) {
		text = string(ahead)
	}
	a.resp.Body = &readAhead{io.MultiReader(bytes.NewReader(ahead), failing{err}, rest), rest, text}
	return text
}

// delimited reports whether the end of the body shows: not where it is the end of
// an HTTP/1 connection, which is also how one breaks off.
func delimited(resp *http.Response) bool {
	return resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.Uncompressed || resp.ProtoMajor > 1
}

// readAhead is a body whose first bytes were read before.
type readAhead struct {
	io.Reader
	io.Closer
	text string
}

// failing gives the error that reading ahead met, once its bytes are read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

// listen adds what the peer's dialects take the answer to say.
func (c *call) listen(a *attempt) {
	signals, status := &c.peer.signals, a.resp.StatusCode
	if status < firstFailure {
		return // an answer of the application, whatever a hop says
	}
	heard := reply{status: status, header: a.resp.Header, newConn: a.fence.fresh()}
	if signals.wantsBody(status) {
		heard.body = c.peek(a)
	}
	signals.readDialects(&a.reading, &heard)
}
