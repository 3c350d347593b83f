package fedhttp

import (
	"encoding/json"
	"io"
	"mime"
	"strings"
)

// maxBodyRead is how much of a response's body is read ahead.
const maxBodyRead = 4 << 10

// readPolicyReason finds the peer's reason for a rejection: its header, or
// where the peer's Signals say so, the detail of problem details (RFC 9457).
// What is read ahead of the body is put back, so the caller reads it whole. It
// may take AttemptTimeout once more; a body that takes longer ends there.
func (c *call) readPolicyReason(a *attempt) {
	sig := &c.peer.signals
	if reason := a.resp.Header.Get(sig.policyReason); reason != "" {
		c.policyReason = sanitize(reason)
		return
	}
	if !sig.readProblemDetail {
		return
	}
	mediaType, _, err := mime.ParseMediaType(a.resp.Header.Get("Content-Type"))
	if err != nil || mediaType != "application/problem+json" {
		return
	}
	c.peer.clocks.start(&a.clock, a.cancel)
	ahead, err := io.ReadAll(io.LimitReader(a.resp.Body, maxBodyRead))
	a.clock.stop()
	rest := a.resp.Body
	a.resp.Body = &readAhead{Reader: io.MultiReader(strings.NewReader(string(ahead)), failing{err}, rest), Closer: rest}
	var problem struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(ahead, &problem) == nil {
		c.policyReason = sanitize(problem.Detail)
	}
}

// readAhead is a body whose first bytes were read before.
type readAhead struct {
	io.Reader
	io.Closer
}

// failing gives the error that reading ahead met, once its bytes are read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}
