package fedtest

import (
	"io"
	"net/http"
	"strings"
)

// The hostile servers of HTTP/1: those that mistreat the connection. The answers
// are written byte by byte; net/http only reads the requests.

// readHead reads the header of the next request, and notes it.
func (c *hostileConn) readHead() (*http.Request, *HostileRequest) {
	r, err := http.ReadRequest(c.buf)
	if err != nil {
		return nil, nil
	}
	return r, c.server.arrived(HostileRequest{
		Task: r.Header.Get(HeaderTask), Method: r.Method, Path: r.URL.Path, Connection: c.number,
	})
}

func (c *hostileConn) readBody(r *http.Request, noted *HostileRequest) bool {
	_, err := io.Copy(io.Discard, r.Body)
	if err == nil {
		c.server.whole(noted)
	}
	return err == nil
}

// readRequest reads the whole of the next request, and notes it.
func (c *hostileConn) readRequest() bool {
	r, noted := c.readHead()
	return r != nil && c.readBody(r, noted)
}

// readOn reads, and notes, what else comes, and answers nothing.
func (c *hostileConn) readOn() {
	for c.readRequest() {
	}
}

// answers sends the text for each request, and then ends the connection, unless
// end is nil.
func answers(text string, end func(*hostileConn)) func(*hostileConn) {
	return func(c *hostileConn) {
		for c.readRequest() && c.send(text) {
			if end != nil {
				end(c)
				return
			}
		}
	}
}

const (
	okHead  = "HTTP/1.1 200 OK\r\n"
	okFixed = okHead + "Content-Length: 2\r\n\r\nok"
	// ok, and the start of a body of 100 bytes.
	okStart = okHead + "Content-Length: 100\r\n\r\n0123456789"
	// routed is what a routing layer says, and refused what a policy engine does.
	routed  = "HTTP/1.1 403 Forbidden\r\n" + HeaderPolicyEvaluated + ": false\r\nContent-Length: 0\r\n"
	refusal = "HTTP/1.1 403 Forbidden\r\n" + HeaderPolicyEvaluated + ": true\r\nContent-Length: 0\r\n"
)

// firstThen answers the first request of each connection as it should be, and
// does as it is told with the next.
func firstThen(next func(*hostileConn)) func(*hostileConn) {
	return func(c *hostileConn) {
		if c.readRequest() && c.send(okFixed) {
			next(c)
		}
	}
}

// afterNext reads a whole request, and then ends the connection.
func afterNext(end func(*hostileConn)) func(*hostileConn) {
	return func(c *hostileConn) {
		if c.readRequest() {
			end(c)
		}
	}
}

// onHead ends the connection, or answers, as soon as a request's header was read.
func onHead(then func(*hostileConn)) func(*hostileConn) {
	return func(c *hostileConn) {
		if r, _ := c.readHead(); r != nil {
			then(c)
		}
	}
}

func (c *hostileConn) halfCloseAndReadOn() {
	c.halfClose()
	c.readOn()
}

func http1Hostiles() []Hostile {
	return []Hostile{
		// What happens to the connection.
		{Name: "http1/close-on-accept", Doc: "closes each connection at once", serve: (*hostileConn).hangUp},
		{Name: "http1/reset-on-accept", Doc: "resets each connection at once (TCP RST)", serve: (*hostileConn).reset},
		{Name: "http1/reset-on-first-byte", Doc: "resets the connection when the first byte of a request comes", serve: func(c *hostileConn) {
			_, _ = c.buf.Peek(1)
			c.reset()
		}},
		{Name: "http1/close-on-head", Doc: "closes the connection when it has read a request's header, and not the body", serve: onHead((*hostileConn).hangUp)},
		{Name: "http1/reset-on-head", Doc: "resets the connection when it has read a request's header, and not the body", serve: onHead((*hostileConn).reset)},
		{Name: "http1/close-after-request", Doc: "reads a request and closes the connection without an answer", serve: afterNext((*hostileConn).hangUp)},
		{Name: "http1/reset-after-request", Doc: "reads a request and resets the connection", serve: afterNext((*hostileConn).reset)},
		{Name: "http1/half-close-after-request", Doc: "reads a request, closes its half of the connection, and reads on", serve: afterNext((*hostileConn).halfCloseAndReadOn)},
		{Name: "http1/close-second", Doc: "answers the first request of a connection, reads the second and closes the connection", serve: firstThen(afterNext((*hostileConn).hangUp))},
		{Name: "http1/reset-second", Doc: "answers the first request of a connection, reads the second and resets the connection", serve: firstThen(afterNext((*hostileConn).reset))},
		{Name: "http1/close-idle", Doc: "answers a request, offers to keep the connection, and closes it", serve: firstThen((*hostileConn).hangUp)},
		{Name: "http1/reset-idle", Doc: "answers a request, offers to keep the connection, and resets it", serve: firstThen((*hostileConn).reset)},
		{Name: "http1/half-close-idle", Doc: "answers a request, closes its half of the connection, and reads on", serve: firstThen((*hostileConn).halfCloseAndReadOn)},

		// No answer, or a slow one.
		{Name: "http1/never-answers", Doc: "reads requests and answers none", serve: (*hostileConn).readOn},
		{Name: "http1/sips", Doc: "reads a little at a time, slowly, and answers nothing", serve: func(c *hostileConn) {
			for buf := make([]byte, 256); c.pause(); {
				if _, err := c.Read(buf); err != nil {
					return
				}
			}
		}},
		{Name: "http1/drips-head", Doc: "answers with a header that comes a byte at a time and never ends", serve: func(c *hostileConn) {
			if c.readRequest() && c.drip(okHead) {
				for c.drip("X-Drip: drop\r\n") {
				}
			}
		}},
		{Name: "http1/drips-body", Doc: "answers with a body that comes a byte at a time and never ends", serve: func(c *hostileConn) {
			if c.readRequest() && c.send(okHead+"Content-Length: 1000000000\r\n\r\n") {
				for c.drip(".") {
				}
			}
		}},
		{Name: "http1/stalls-head", Doc: "sends half a header and nothing more", serve: answers(okHead+"X-Half: ", (*hostileConn).readOn)},
		{Name: "http1/stalls-body", Doc: "sends a part of the body and nothing more", serve: answers(okStart, (*hostileConn).readOn)},

		// Too much.
		{Name: "http1/floods-headers", Doc: "sends header lines without end", serve: func(c *hostileConn) {
			if c.readRequest() && c.send(okHead) {
				c.floodLong("X-Flood: " + strings.Repeat("f", 100) + "\r\n")
			}
		}},
		{Name: "http1/floods-line", Doc: "sends a header line without end", serve: func(c *hostileConn) {
			if c.readRequest() && c.send(okHead+"X-Flood: ") {
				c.floodLong(strings.Repeat("f", 100))
			}
		}},
		{Name: "http1/floods-status", Doc: "sends a status line without end", serve: func(c *hostileConn) {
			if c.readRequest() && c.send("HTTP/1.1 200 ") {
				c.floodLong(strings.Repeat("O", 100))
			}
		}},
		{Name: "http1/floods-early-hints", Doc: "sends 103 answers without end", serve: func(c *hostileConn) {
			if c.readRequest() {
				c.floodLong("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
			}
		}},
		{Name: "http1/floods-continue", Doc: "sends 100 answers without end", serve: func(c *hostileConn) {
			if c.readRequest() {
				c.floodLong("HTTP/1.1 100 Continue\r\n\r\n")
			}
		}},
		{Name: "http1/floods-body", Doc: "sends a chunked body without end", serve: func(c *hostileConn) {
			if c.readRequest() && c.send(okHead+"Transfer-Encoding: chunked\r\n\r\n") {
				c.floodLong("400\r\n" + strings.Repeat("b", 1024) + "\r\n")
			}
		}},
		{Name: "http1/floods-trailers", Doc: "ends a chunked body with trailers without end", serve: func(c *hostileConn) {
			if c.readRequest() && c.send(okHead+"Transfer-Encoding: chunked\r\nTrailer: X-Flood\r\n\r\n2\r\nok\r\n0\r\n") {
				c.floodLong("X-Flood: " + strings.Repeat("f", 100) + "\r\n")
			}
		}},

		// Out of turn.
		{Name: "http1/answers-on-head", Doc: "answers when it has read a request's header, and closes the connection without reading the body", serve: onHead(func(c *hostileConn) {
			c.send(okFixed)
			c.hangUp()
		})},
		{Name: "http1/refuses-on-head", Doc: "refuses a request by policy when it has read its header, and resets the connection", serve: onHead(func(c *hostileConn) {
			c.send(refusal + "\r\n")
			c.reset()
		})},
		{Name: "http1/answers-unasked", Doc: "answers before there is a request, and reads on", serve: func(c *hostileConn) {
			if c.send(okFixed) {
				c.readOn()
			}
		}},
		{Name: "http1/answers-twice", Doc: "answers each request twice", serve: answers(okFixed+okFixed, nil)},
		{Name: "http1/answers-late-again", Doc: "answers each request, and once more when the next one has begun", serve: func(c *hostileConn) {
			for c.readRequest() && c.send(okFixed) {
				if _, err := c.buf.Peek(1); err != nil || !c.send(okFixed) {
					return
				}
			}
		}},
		{Name: "http1/switches-unasked", Doc: "answers 101 Switching Protocols to a request that did not ask for it", serve: answers("HTTP/1.1 101 Switching Protocols\r\nUpgrade: hostile\r\nConnection: Upgrade\r\n\r\n", (*hostileConn).hangUp)},
		{Name: "http1/speaks-http2", Doc: "answers in HTTP/2 to a client that speaks HTTP/1", serve: answers("\x00\x00\x00\x04\x00\x00\x00\x00\x00", (*hostileConn).hangUp)},
		{Name: "http1/speaks-tls", Doc: "sends a TLS alert in the middle of whatever is spoken", serve: answers("\x15\x03\x03\x00\x02\x02\x28", (*hostileConn).hangUp)},
	}
}
