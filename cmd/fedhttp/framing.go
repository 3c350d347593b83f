package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"regexp"
	"strings"
)

// maxBody bounds what is kept of a response's body, which is more than anybody
// looks at.
const maxBody = 1 << 20

// settle makes of what follows the header the body that net/http would have handed
// over. It may have been decoded already: curl takes chunks away, and with
// --compressed the encoding.
func (c *captured) settle(method string) {
	r := c.response
	zipped := bytes.HasPrefix(c.body, []byte("\x1f\x8b"))
	switch {
	case c.bodiless(method):
	case len(r.TransferEncoding) > 0:
		c.unchunk()
	case isGzip(r.Header) && !zipped && r.ContentLength >= 0: // decoded, it has another length
	case r.ContentLength >= 0:
		c.measure()
	case r.ProtoMajor < 2 && len(c.body) > 0 && r.StatusCode >= 400:
		c.note("the body ends with the connection, which is also how one breaks off: no dialect reads it")
	}
	c.unzip()
	c.bound()
}

// bodiless takes away what cannot be the body of such an answer.
func (c *captured) bodiless(method string) bool {
	status := c.response.StatusCode
	if method != http.MethodHead && status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified {
		return false
	}
	if len(bytes.TrimSpace(c.body)) > 0 {
		c.note("what follows the header is left out: such an answer has no body")
	}
	c.body = nil
	return true
}

// measure holds the body to its Content-Length.
func (c *captured) measure() {
	n := c.response.ContentLength
	switch {
	case int64(len(c.body)) < n:
		c.broken = true
		c.note("the body is shorter than Content-Length says: it is taken for one that broke off, and no dialect reads it")
	case int64(len(c.body)) > n:
		c.body = c.body[:n]
		c.broken = c.response.ProtoMajor >= 2 // where net/http makes an error of it
		c.note("the body is longer than Content-Length says: the rest is left out")
	}
}

// chunkStart is how a body begins whose chunks are still there.
var chunkStart = regexp.MustCompile(`^[0-9A-Fa-f]{1,16}[ \t]*(;[^\r\n]*)?\r?\n`)

// unchunk decodes a body whose chunks are still there, and its trailer.
func (c *captured) unchunk() {
	if !chunkStart.Match(c.body) {
		return
	}
	from := bufio.NewReader(bytes.NewReader(c.body))
	decoded, err := io.ReadAll(io.LimitReader(httputil.NewChunkedReader(from), maxBody+1))
	if len(decoded) <= maxBody && err == nil {
		// The reader stops behind the last chunk. Nothing in the trailer is evidence.
		_, err = textproto.NewReader(from).ReadMIMEHeader()
	}
	c.body, c.broken = decoded, err != nil
	if c.broken {
		c.note("the body breaks off between its chunks, or has them wrong: no dialect reads it")
		return
	}
	c.note("the body was decoded from its chunks")
}

func isGzip(h http.Header) bool { return strings.EqualFold(h.Get("Content-Encoding"), "gzip") }

// unzip decodes gzip, as net/http does where it has asked for it by itself.
func (c *captured) unzip() {
	r := c.response
	if !isGzip(r.Header) || len(c.body) == 0 {
		return
	}
	if bytes.HasPrefix(c.body, []byte("\x1f\x8b")) {
		decoded, err := gunzip(c.body)
		c.body, c.broken = decoded, c.broken || err != nil
	}
	delete(r.Header, "Content-Encoding")
	delete(r.Header, "Content-Length")
	r.Uncompressed, r.ContentLength = true, -1
	c.note("gzip is taken as decoded, as net/http does where it has asked for it by itself; get and proxy do not ask, and no dialect reads what a peer compresses all the same")
}

func gunzip(body []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxBody+1))
}

func (c *captured) bound() {
	if len(c.body) > maxBody {
		c.body = c.body[:maxBody]
		c.note("only the first %d bytes of the body were kept; no more than 4096 are ever looked at", maxBody)
	}
}
