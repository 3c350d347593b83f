package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
)

// The bounds of what is read of a response: its header, and of its body more
// than anybody looks at.
const (
	maxHeader = 1 << 20
	maxBody   = 1 << 20
)

// captured is a response as it was written down, and what had to be done to it.
type captured struct {
	// response is nil where the connection ended without one.
	response *http.Response
	body     []byte
	// method and url are the request's, "" where they are not known.
	method, url string
	// reused says that it came over a connection that had served others before.
	reused bool
	notes  []string
}

func (c *captured) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// statusLine is the first line of a response, as servers write it and as curl
// prints it for HTTP/2 and HTTP/3.
var statusLine = regexp.MustCompile(`^HTTP/([0-9])(?:\.([0-9]))? ([1-9][0-9]{2})(?: ([^\r\n]*))?\r?\n?$`)

// readResponse reads a response as curl -i prints it: interim responses, and the
// answer of a forward proxy to CONNECT, come before it. Lines end with CRLF or LF.
// An empty text is a connection that ended without an answer.
func readResponse(data []byte) (*captured, error) {
	c := &captured{}
	data = bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF"))
	for len(bytes.TrimSpace(data)) > 0 {
		resp, rest, err := readHead(data) //nolint:bodyclose // it has none: the body is what follows
		if err != nil {
			return nil, err
		}
		if resp.StatusCode == http.StatusSwitchingProtocols || !c.before(resp, rest) {
			c.response, c.body = resp, rest
			c.settle()
			return c, nil
		}
		data = rest
	}
	c.note("there is no response: it is taken for a connection that ended without one")
	return c, nil
}

// before reports whether the response only came before the one that counts.
func (c *captured) before(resp *http.Response, rest []byte) bool {
	follows := statusLine.Match(firstLine(rest))
	switch {
	case resp.StatusCode < 200:
		c.note("skipped an interim response, status %d", resp.StatusCode)
		return true
	case follows && resp.StatusCode == http.StatusOK && len(resp.Header) <= 2 &&
		strings.EqualFold(strings.TrimSpace(resp.Status), "200 connection established"):
		c.note("skipped the answer of a forward proxy to CONNECT")
		return true
	case follows:
		c.note("the body begins like another response: if curl printed several, give the one that is meant alone")
	}
	return false
}

func firstLine(data []byte) []byte {
	line, _, found := bytes.Cut(data[:min(len(data), 1024)], []byte("\n"))
	if !found {
		return line
	}
	return append(bytes.Clone(line), '\n')
}

// readHead reads a status line and the header below it, as strictly as net/http
// does, and returns what follows.
func readHead(data []byte) (resp *http.Response, rest []byte, err error) {
	first := firstLine(data)
	m := statusLine.FindSubmatch(first)
	if m == nil {
		return nil, nil, fmt.Errorf("line 1: %s is no status line; want one such as \"HTTP/1.1 403 Forbidden\" or \"HTTP/2 403\"", quote(strings.TrimRight(string(first), "\r\n")))
	}
	resp = &http.Response{Body: http.NoBody}
	resp.ProtoMajor, resp.ProtoMinor = int(m[1][0]-'0'), 0
	if len(m[2]) > 0 {
		resp.ProtoMinor = int(m[2][0] - '0')
	} else if resp.ProtoMajor == 1 {
		resp.ProtoMinor = 1
	}
	resp.Proto = fmt.Sprintf("HTTP/%d.%d", resp.ProtoMajor, resp.ProtoMinor)
	resp.StatusCode, _ = strconv.Atoi(string(m[3])) // three digits
	resp.Status = string(m[3]) + " " + string(m[4])

	head, rest, err := splitHead(data[len(first):])
	if err != nil {
		return nil, nil, err
	}
	header, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(head))).ReadMIMEHeader()
	if err != nil {
		return nil, nil, fmt.Errorf("the header below %q is malformed, and net/http would refuse it: %s", m[3], plain(err.Error()))
	}
	resp.Header = http.Header(header)
	return resp, rest, nil
}

// splitHead returns the header, ended by an empty line, and what follows it.
func splitHead(data []byte) (head, rest []byte, err error) {
	for at := 0; at < len(data); {
		if at > maxHeader {
			return nil, nil, fmt.Errorf("the header is longer than %d bytes", maxHeader)
		}
		end := bytes.IndexByte(data[at:], '\n')
		if end < 0 {
			break
		}
		line := data[at : at+end]
		at += end + 1
		if len(bytes.TrimSuffix(line, []byte("\r"))) == 0 {
			return data[:at], data[at:], nil
		}
	}
	if len(data) > maxHeader {
		return nil, nil, fmt.Errorf("the header is longer than %d bytes", maxHeader)
	}
	return append(bytes.TrimRight(bytes.Clone(data), "\r\n"), "\r\n\r\n"...), nil, nil
}

// settle makes of the response what net/http would have handed over.
func (c *captured) settle() {
	r := c.response
	if encodings := r.Header["Transfer-Encoding"]; len(encodings) > 0 {
		if decoded, err := unchunk(c.body); err == nil && strings.EqualFold(encodings[0], "chunked") {
			c.body = decoded
			c.note("the body was decoded from its chunks")
		}
		delete(r.Header, "Transfer-Encoding")
		r.TransferEncoding = []string{"chunked"}
	}
	if e := r.Header["Content-Encoding"]; len(e) == 1 && strings.EqualFold(e[0], "gzip") {
		if decoded, err := gunzip(c.body); err == nil {
			c.body = decoded
		}
		delete(r.Header, "Content-Encoding")
		delete(r.Header, "Content-Length")
		r.Uncompressed = true
		c.note("gzip is taken as decoded: net/http asks for it by itself, and decodes it")
	}
	if len(c.body) > maxBody {
		c.body = c.body[:maxBody]
		c.note("only the first %d bytes of the body were kept; no more than 4096 are ever looked at", maxBody)
	}
	r.ContentLength = int64(len(c.body))
}

// unchunk decodes a body that is chunked to its last byte.
func unchunk(body []byte) ([]byte, error) {
	from := bufio.NewReader(bytes.NewReader(body))
	decoded, err := io.ReadAll(io.LimitReader(httputil.NewChunkedReader(from), maxBody+1))
	if err != nil {
		return nil, err
	}
	// The reader stops behind the last chunk; the trailer is what is left.
	trailer, err := io.ReadAll(from)
	if err != nil || len(bytes.TrimSpace(trailer)) > 0 {
		return nil, errors.New("not chunked")
	}
	return decoded, nil
}

func gunzip(body []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxBody+1))
}
