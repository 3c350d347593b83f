package fedhttp

import (
	"io"
	"net/http"
	"strings"
)

// maxBodyRead is how much of a response's body is read ahead.
const maxBodyRead = 4 << 10

// peek returns the first bytes of the response's body and leaves the body whole:
// what is read ahead is put back. It may take AttemptTimeout once more; a body
// that takes longer ends there.
func (c *call) peek(a *attempt) string {
	if a.resp.Body == http.NoBody {
		return ""
	}
	if before, ok := a.resp.Body.(*readAhead); ok {
		return before.text
	}
	c.peer.clocks.start(&a.clock, a.fence.cancel)
	ahead, err := io.ReadAll(io.LimitReader(a.resp.Body, maxBodyRead))
	a.clock.stop()
	rest, text := a.resp.Body, string(ahead)
	a.resp.Body = &readAhead{io.MultiReader(strings.NewReader(text), failing{err}, rest), rest, text}
	return text
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
