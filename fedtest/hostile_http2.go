package fedtest

import (
	"encoding/binary"
	"io"
)

// The hostile servers of HTTP/2 write their frames by hand. This file has the
// connection, and the servers that mistreat it.

// The types of frames (RFC 9113, section 6), their flags, and some settings.
const (
	frameData = iota
	frameHeaders
	framePriority
	frameReset
	frameSettings
	framePushPromise
	framePing
	frameGoAway
	frameWindowUpdate
	frameContinuation

	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20

	settingTableSize     = 1
	settingMaxStreams    = 3
	settingInitialWindow = 4
	settingMaxFrame      = 5
	settingMaxHeaderList = 6
)

const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frame returns the bytes of a frame.
func frame(kind, flags byte, stream uint32, payload string) string {
	return lyingFrame(len(payload), kind, flags, stream, payload)
}

// lyingFrame is a frame that says it is so long.
func lyingFrame(length int, kind, flags byte, stream uint32, payload string) string {
	return string([]byte{byte(length >> 16), byte(length >> 8), byte(length), kind, flags}) + uint32s(stream) + payload
}

func uint32s(values ...uint32) string {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return string(b)
}

func setting(id uint16, value uint32) string {
	return string(binary.BigEndian.AppendUint16(nil, id)) + uint32s(value)
}

func headers(flags byte, stream uint32, fields ...string) string {
	return frame(frameHeaders, flags|flagEndHeaders, stream, hpackEncode(fields...))
}

func ok200(flags byte, stream uint32) string { return headers(flags, stream, ":status", "200") }

func goAway(last, code uint32, debug string) string {
	return frame(frameGoAway, 0, 0, uint32s(last, code)+debug)
}

func resetStream(stream, code uint32) string { return frame(frameReset, 0, stream, uint32s(code)) }

// http2Conn reads the frames of a connection, and answers what has to be
// answered. Another goroutine may write meanwhile: one write is whole frames, and
// a net.Conn keeps writes apart.
type http2Conn struct {
	*hostileConn
	decoder  hpackDecoder
	noCredit bool // give the client no window for its bodies
	noAck    bool // acknowledge no SETTINGS

	requests map[uint32]*HostileRequest // those whose body has not ended
	block    string                     // of a header that goes on
	blockEnd bool                       // and ends its stream
}

// http2 gives each connection to the script once the preface has come, and our
// SETTINGS, with these values, have gone.
func http2(settings string, script func(*http2Conn)) func(*hostileConn) {
	return http2Bare(func(c *http2Conn) {
		if c.send(frame(frameSettings, 0, 0, settings)) {
			script(c)
		}
	})
}

// http2Bare sends no SETTINGS.
func http2Bare(script func(*http2Conn)) func(*hostileConn) {
	return func(hc *hostileConn) {
		c := &http2Conn{hostileConn: hc, requests: make(map[uint32]*HostileRequest)}
		preface := make([]byte, len(http2Preface))
		if _, err := io.ReadFull(c.buf, preface); err == nil && string(preface) == http2Preface {
			script(c)
		}
	}
}

// read reads one frame. It reports the stream of a request whose header, or last
// byte, that frame has brought.
func (c *http2Conn) read() (head, whole uint32, ok bool) {
	var h [9]byte
	if _, err := io.ReadFull(c.buf, h[:]); err != nil {
		return 0, 0, false
	}
	payload := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
	if _, err := io.ReadFull(c.buf, payload); err != nil {
		return 0, 0, false
	}
	kind, flags, stream := h[3], h[4], binary.BigEndian.Uint32(h[5:])
	p := string(payload)
	if flags&flagPadded != 0 && (kind == frameData || kind == frameHeaders) && p != "" {
		pad := int(p[0])
		p = p[1:max(1, len(p)-pad)]
	}
	ok = true
	switch kind {
	case frameSettings:
		if flags&flagAck == 0 && !c.noAck {
			ok = c.send(frame(frameSettings, flagAck, 0, ""))
		}
	case framePing:
		if flags&flagAck == 0 {
			ok = c.send(frame(framePing, flagAck, 0, p))
		}
	case frameReset:
		delete(c.requests, stream)
	case frameHeaders, frameContinuation:
		if kind == frameHeaders {
			if flags&flagPriority != 0 && len(p) >= 5 {
				p = p[5:]
			}
			c.block, c.blockEnd = "", flags&flagEndStream != 0
		}
		c.block += p
		if flags&flagEndHeaders != 0 {
			head, whole = c.header(stream)
		}
	case frameData:
		if flags&flagEndStream != 0 {
			whole = c.end(stream)
		}
		if n := uint32(len(payload)); n > 0 && !c.noCredit {
			ok = c.send(frame(frameWindowUpdate, 0, 0, uint32s(n)) + frame(frameWindowUpdate, 0, stream, uint32s(n)))
		}
	}
	return head, whole, ok
}

// header takes the header block of a request, or of its trailers.
func (c *http2Conn) header(stream uint32) (head, whole uint32) {
	fields := c.decoder.decode(c.block)
	if c.requests[stream] == nil {
		c.requests[stream] = c.server.arrived(HostileRequest{
			Task: fields["x-fedtest-task"], Method: fields[":method"], Path: fields[":path"], Connection: c.number,
		})
		head = stream
	}
	if c.blockEnd {
		whole = c.end(stream)
	}
	return head, whole
}

func (c *http2Conn) end(stream uint32) uint32 {
	r := c.requests[stream]
	if r == nil {
		return 0
	}
	c.server.whole(r)
	delete(c.requests, stream)
	return stream
}

// awaitHead waits for the header of another request, and awaitWhole for the end
// of one.
func (c *http2Conn) awaitHead() (uint32, bool) {
	for {
		head, _, ok := c.read()
		if head != 0 || !ok {
			return head, ok
		}
	}
}

func (c *http2Conn) awaitWhole() (uint32, bool) {
	for {
		_, whole, ok := c.read()
		if whole != 0 || !ok {
			return whole, ok
		}
	}
}

// readOn reads, and notes, what else comes, and answers no request.
func (c *http2Conn) readOn() {
	for {
		if _, _, ok := c.read(); !ok {
			return
		}
	}
}

// whileReading runs the function, and meanwhile reads on.
func (c *http2Conn) whileReading(write func()) {
	c.server.active.Go(write)
	c.readOn()
}

// heads answers each request when its header has come, and wholes when all of it
// has; end, unless it is nil, ends the connection then.
func heads(answer func(stream uint32) string, end func(*http2Conn)) func(*http2Conn) {
	return func(c *http2Conn) { c.answerEach(c.awaitHead, answer, end) }
}

func wholes(answer func(stream uint32) string, end func(*http2Conn)) func(*http2Conn) {
	return func(c *http2Conn) { c.answerEach(c.awaitWhole, answer, end) }
}

func (c *http2Conn) answerEach(await func() (uint32, bool), answer func(uint32) string, end func(*http2Conn)) {
	for {
		stream, ok := await()
		if !ok || answer != nil && !c.send(answer(stream)) {
			return
		}
		if end != nil {
			end(c)
			return
		}
	}
}

func (c *http2Conn) hangUp() { c.hostileConn.hangUp() }
func (c *http2Conn) reset()  { c.hostileConn.reset() }

// ok2 is an answer as it should be.
func ok2(stream uint32) string {
	return ok200(0, stream) + frame(frameData, flagEndStream, stream, "ok")
}

// okStart2 is the start of one.
func okStart2(stream uint32) string {
	return headers(0, stream, ":status", "200", "content-length", "100") + frame(frameData, 0, stream, "0123456789")
}

func http2Hostiles() []Hostile {
	list := []struct {
		name, doc string
		serve     func(*hostileConn)
	}{
		{"close-on-preface", "closes the connection when the client's preface has come", http2Bare((*http2Conn).hangUp)},
		{"reset-on-preface", "resets the connection when the client's preface has come", http2Bare((*http2Conn).reset)},
		{"close-on-head", "closes the connection when it has read a request's header", http2("", heads(nil, (*http2Conn).hangUp))},
		{"reset-on-head", "resets the connection when it has read a request's header", http2("", heads(nil, (*http2Conn).reset))},
		{"close-after-request", "reads a request and closes the connection without an answer", http2("", wholes(nil, (*http2Conn).hangUp))},
		{"reset-after-request", "reads a request and resets the connection", http2("", wholes(nil, (*http2Conn).reset))},
		{"half-close-after-request", "reads a request, closes its half of the connection, and reads on", http2("", wholes(nil, func(c *http2Conn) {
			c.halfClose()
			c.readOn()
		}))},
		{"close-in-body", "closes the connection in the middle of a body", http2("", wholes(okStart2, (*http2Conn).hangUp))},
		{"reset-in-body", "resets the connection in the middle of a body", http2("", wholes(okStart2, (*http2Conn).reset))},
		{"close-in-frame", "closes the connection in the middle of a frame", http2("", wholes(func(stream uint32) string {
			return lyingFrame(100, frameHeaders, flagEndHeaders, stream, hpackEncode(":status", "200"))
		}, (*http2Conn).hangUp))},
		{"close-second", "answers the first request of a connection, reads the second and closes the connection", http2("", func(c *http2Conn) {
			if stream, ok := c.awaitWhole(); ok && c.send(ok2(stream)) {
				c.awaitWhole()
			}
		})},
		{"close-idle", "answers a request and closes the connection", http2("", wholes(ok2, (*http2Conn).hangUp))},
		{"reset-idle", "answers a request and resets the connection", http2("", wholes(ok2, (*http2Conn).reset))},

		{"never-answers", "reads requests and answers none", http2("", (*http2Conn).readOn)},
		{"never-settles", "sends no SETTINGS, acknowledges none, and answers nothing", http2Bare(func(c *http2Conn) {
			c.noAck = true
			c.readOn()
		})},
		{"speaks-http1", "answers the preface in HTTP/1", http2Bare(func(c *http2Conn) {
			if c.send(okFixed) {
				c.readOn()
			}
		})},
		{"speaks-nonsense", "answers the preface with bytes that are no frames", http2Bare(func(c *http2Conn) {
			if c.send("garbage " + escapes + " garbage") {
				c.readOn()
			}
		})},
		{"drips-head", "sends the frame with the header a byte at a time, and ends before its last", http2("", func(c *http2Conn) {
			if stream, ok := c.awaitWhole(); ok {
				c.whileReading(func() { c.drip(lyingFrame(1000, frameHeaders, flagEndHeaders, stream, hpackEncode(":status", "200"))) })
			}
		})},
		{"drips-body", "sends a body a byte at a time, without end", http2("", func(c *http2Conn) {
			stream, ok := c.awaitWhole()
			if ok && c.send(ok200(0, stream)) {
				c.whileReading(func() {
					for c.pause() && c.send(frame(frameData, 0, stream, ".")) {
					}
				})
			}
		})},
		{"stalls-body", "sends a part of the body and nothing more", http2("", wholes(okStart2, nil))},
		{"window-zero", "gives no window for a body, ever, and answers nothing", http2(setting(settingInitialWindow, 0), func(c *http2Conn) {
			c.noCredit = true
			c.readOn()
		})},
		{"window-not-renewed", "gives no window beyond the first, and answers when all of a body has come", http2("", func(c *http2Conn) {
			c.noCredit = true
			wholes(ok2, nil)(c)
		})},
		{"no-streams", "allows no streams (MAX_CONCURRENT_STREAMS 0)", http2(setting(settingMaxStreams, 0), wholes(ok2, nil))},
		{"no-headers", "allows no header (MAX_HEADER_LIST_SIZE 1)", http2(setting(settingMaxHeaderList, 1), wholes(ok2, nil))},
		{"no-table", "allows no dynamic table, and changes its mind with each request", http2(setting(settingTableSize, 0), wholes(func(stream uint32) string {
			return frame(frameSettings, 0, 0, setting(settingTableSize, stream%4096)) + ok2(stream)
		}, nil))},

		{"answers-on-head", "answers when it has read a request's header, and takes no body", http2(setting(settingInitialWindow, 0), func(c *http2Conn) {
			c.noCredit = true
			heads(ok2, nil)(c)
		})},
		{"answers-twice", "answers each request twice", http2("", wholes(func(stream uint32) string { return ok2(stream) + ok2(stream) }, nil))},
		{"answers-after-reset", "resets a stream and then answers on it", http2("", wholes(func(stream uint32) string { return resetStream(stream, 8) + ok2(stream) }, nil))},
	}
	all := []Hostile{{
		Name: "http2/says-routing", Doc: "answers every request as a routing layer that turns it away", HTTP2: true, SaysRouting: true,
		serve: http2("", wholes(func(stream uint32) string {
			return headers(flagEndStream, stream, ":status", "403", "x-federation-policy-evaluated", "false")
		}, nil)),
	}}
	for _, h := range list {
		all = append(all, Hostile{Name: "http2/" + h.name, Doc: h.doc, HTTP2: true, serve: h.serve})
	}
	return all
}
