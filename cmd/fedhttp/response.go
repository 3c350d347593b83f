package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
)

// maxHeader bounds what is read of a response's header.
const maxHeader = 1 << 20

// captured is a response as it was written down, and what had to be done to it.
type captured struct {
	// response is nil where the connection ended without one.
	response *http.Response
	body     []byte
	// broken says that the body broke off, or cannot be decoded, behind its last byte.
	broken bool
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
// An empty text is a connection that ended without an answer, and so is a header
// that net/http does not take. The method is that of the request.
func readResponse(data []byte, method string) (*captured, error) {
	c := &captured{}
	data = bytes.TrimPrefix(data, []byte("\xEF\xBB\xBF"))
	for len(bytes.TrimSpace(data)) > 0 {
		head, rest, err := splitHead(data)
		if err != nil {
			return nil, err
		}
		resp, err := readHead(head, method) //nolint:bodyclose // it has none: the body is what follows
		if err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("no empty line ends its header")
			}
			c.note("net/http takes no such response (%s): it is a connection that ended without one", plain(err.Error()))
			return c, nil
		}
		if resp.StatusCode == http.StatusSwitchingProtocols || !c.before(resp, rest) {
			c.response, c.body = resp, rest
			c.settle(method)
			if resp.StatusCode == http.StatusSwitchingProtocols {
				c.note("this is what a transport does for a program that has asked to switch; get and proxy do not ask, and take it for ambiguous")
			}
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

// splitHead returns the status line with the header, which an empty line ends
// unless it was cut off, and what follows it.
func splitHead(data []byte) (head, rest []byte, err error) {
	if first := firstLine(data); !statusLine.Match(first) {
		return nil, nil, fmt.Errorf("line 1: %s is no status line; want one such as \"HTTP/1.1 403 Forbidden\" or \"HTTP/2 403\"", quote(strings.TrimRight(string(first), "\r\n")))
	}
	for at := 0; at <= maxHeader; {
		end := bytes.IndexByte(data[at:], '\n')
		if end < 0 {
			return data, nil, nil
		}
		line := data[at : at+end]
		at += end + 1
		if len(bytes.TrimSuffix(line, []byte("\r"))) == 0 {
			return data[:at], data[at:], nil
		}
	}
	return nil, nil, fmt.Errorf("the header is longer than %d bytes", maxHeader)
}

// readHead reads a header as net/http does. Of HTTP/2 and later, which have no
// lines, it is what curl makes of it.
func readHead(head []byte, method string) (*http.Response, error) {
	m := statusLine.FindSubmatch(firstLine(head))
	major := int(m[1][0] - '0')
	from := bufio.NewReader(bytes.NewReader(head))
	if major < 2 {
		return http.ReadResponse(from, &http.Request{Method: method})
	}
	lines := textproto.NewReader(from)
	if _, err := lines.ReadLine(); err != nil {
		return nil, err
	}
	header, err := lines.ReadMIMEHeader()
	if err != nil {
		return nil, err
	}
	resp := &http.Response{ProtoMajor: major, Proto: fmt.Sprintf("HTTP/%d.0", major), Header: http.Header(header), Body: http.NoBody, ContentLength: -1}
	resp.StatusCode, _ = strconv.Atoi(string(m[3])) // three digits
	resp.Status = string(m[3]) + " " + string(m[4])
	if lengths := header["Content-Length"]; len(lengths) == 1 { // it frames nothing, and a wrong one is ignored
		if n, err := strconv.ParseUint(lengths[0], 10, 63); err == nil {
			resp.ContentLength = int64(n)
		}
	}
	return resp, nil
}
