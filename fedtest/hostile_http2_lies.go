package fedtest

import "strings"

// The hostile servers of HTTP/2 that break the rules of frames and headers, and
// those that send too many of them.

// lie is a server that answers each request with bytes that break a rule.
type lie struct {
	name, doc string
	answer    func(stream uint32) string
}

func http2Liars() []Hostile {
	fields := func(fields ...string) func(uint32) string {
		return func(stream uint32) string { return headers(flagEndStream, stream, fields...) }
	}
	settings := func(values string) func(uint32) string {
		return func(stream uint32) string { return frame(frameSettings, 0, 0, values) + ok2(stream) }
	}
	block := func(block string) func(uint32) string {
		return func(stream uint32) string {
			return frame(frameHeaders, flagEndHeaders|flagEndStream, stream, block)
		}
	}
	lies := []lie{
		// Frames of the wrong size, or in the wrong place.
		{"frame-oversized", "sends a frame larger than the client allows", func(s uint32) string {
			return ok200(0, s) + frame(frameData, flagEndStream, s, strings.Repeat("x", 1<<20))
		}},
		{"frame-unfinished", "begins a frame of 16 MiB and sends no more", func(s uint32) string { return lyingFrame(1<<24-1, frameHeaders, flagEndHeaders, s, "") }},
		{"rst-short", "sends a RST_STREAM that is too short", func(s uint32) string { return frame(frameReset, 0, s, "abc") }},
		{"rst-on-connection", "sends RST_STREAM on stream 0", func(uint32) string { return resetStream(0, 0) }},
		{"ping-short", "sends a PING that is too short", func(s uint32) string { return frame(framePing, 0, 0, "short") + ok2(s) }},
		{"ping-on-stream", "sends a PING on a stream", func(s uint32) string { return frame(framePing, 0, s, "12345678") + ok2(s) }},
		{"settings-odd", "sends SETTINGS of a size that cannot be", func(s uint32) string { return frame(frameSettings, 0, 0, "abcde") + ok2(s) }},
		{"settings-on-stream", "sends SETTINGS on a stream", func(s uint32) string { return frame(frameSettings, 0, s, "") + ok2(s) }},
		{"settings-window", "sets a window that is too large", settings(setting(settingInitialWindow, 1<<31))},
		{"settings-frame", "allows frames of no size", settings(setting(settingMaxFrame, 0))},
		{"settings-ack", "acknowledges SETTINGS that nobody sent", func(s uint32) string {
			return frame(frameSettings, flagAck, 0, "") + frame(frameSettings, flagAck, 0, "") + ok2(s)
		}},
		{"window-short", "sends a WINDOW_UPDATE that is too short", func(s uint32) string { return frame(frameWindowUpdate, 0, s, "ab") + ok2(s) }},
		{"window-nothing", "adds nothing to a stream's window", func(s uint32) string { return frame(frameWindowUpdate, 0, s, uint32s(0)) + ok2(s) }},
		{"window-overflows", "adds to the window of the connection until it overflows", func(s uint32) string {
			return strings.Repeat(frame(frameWindowUpdate, 0, 0, uint32s(1<<31-1)), 2) + ok2(s)
		}},
		// The same on a stream is not here: net/http of Go 1.26 locks up over it, for
		// good, with every call on the connection and whatever their contexts say.
		{"data-padded", "pads a frame by more than its length", func(s uint32) string { return ok200(0, s) + frame(frameData, flagPadded|flagEndStream, s, "\xffab") }},
		{"data-on-connection", "sends DATA on stream 0", func(s uint32) string { return ok200(0, s) + frame(frameData, 0, 0, "ok") }},
		{"data-first", "sends the body before the header", func(s uint32) string { return frame(frameData, 0, s, "ok") + ok2(s) }},
		{"data-after-end", "sends more body after its end", func(s uint32) string { return ok2(s) + frame(frameData, flagEndStream, s, "more") }},
		{"data-beyond-window", "sends more than the client has given a window for", func(s uint32) string {
			return ok200(0, s) + strings.Repeat(frame(frameData, 0, s, strings.Repeat("x", 16<<10)), 512)
		}},
		{"headers-on-connection", "sends a header on stream 0", func(uint32) string { return ok200(flagEndStream, 0) }},
		{"continuation-alone", "sends CONTINUATION without a header before", func(s uint32) string {
			return frame(frameContinuation, flagEndHeaders, s, hpackEncode(":status", "200"))
		}},
		{"continuation-broken", "sends another frame in the middle of a header", func(s uint32) string {
			return frame(frameHeaders, 0, s, hpackEncode(":status", "200")) + frame(framePing, 0, 0, "12345678")
		}},
		{"stream-unopened", "answers on a stream that the client has not opened", func(s uint32) string { return ok2(s + 100) }},
		{"stream-own", "answers on a stream of its own", func(s uint32) string { return ok2(s + 1) }},
		{"push", "pushes a request that the client has forbidden", func(s uint32) string {
			return frame(framePushPromise, flagEndHeaders, s, uint32s(2)+hpackEncode(":method", "GET", ":path", "/", ":scheme", "http", ":authority", "x")) + ok2(s)
		}},

		// Headers that cannot be read.
		{"hpack-index-zero", "refers to index 0 of the table", block("\x80")},
		{"hpack-index-far", "refers to an index beyond the table", block("\xff\x80\x80\x01")},
		{"hpack-index-overflows", "refers to an index that fits no integer", block("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")},
		{"hpack-cut", "ends a header in the middle of a string", block("\x00\x7f\x10abc")},
		{"hpack-huffman", "sends a string that is no Huffman code", block("\x00\x84\xff\xff\xff\xff\x01a")},
		{"hpack-table", "makes its table larger than the client allows", block("\x3f\xff\xff\xff\x07")},
		{"hpack-bomb", "refers to one large field a thousand times", func(s uint32) string {
			large := hpackEncode("x-bomb", strings.Repeat("b", 3000))
			return frame(frameHeaders, 0, s, "\x88\x40"+large[1:]) + frame(frameContinuation, flagEndHeaders|flagEndStream, s, strings.Repeat("\xbe", 16000))
		}},

		// Headers that must not be.
		{"no-status", "answers without a status", fields("content-type", "text/plain")},
		{"two-statuses", "answers with two statuses", fields(":status", "200", ":status", "403")},
		{"status-in-words", "answers with a status that is no number", fields(":status", "fine")},
		{"status-too-high", "answers with a status of five digits", fields(":status", "20000")},
		{"status-late", "gives the status after other fields", fields("content-type", "text/plain", ":status", "200")},
		{"status-switching", "answers 101 Switching Protocols", fields(":status", "101")},
		{"status-unknown", "sends a pseudo-header that there is not", fields(":status", "200", ":hostile", "1")},
		{"name-upper-case", "sends a name in upper case", fields(":status", "200", "X-Hostile", "1")},
		{"name-empty", "sends a field without a name", fields(":status", "200", "", "1")},
		{"name-escapes", "sends terminal escapes as a name", fields(":status", "200", escapes, "1")},
		{"value-escapes", "sends terminal escapes as a value", fields(":status", "403", "x-correlation-id", escapes, "x-federation-policy-evaluated", escapes)},
		{"value-newline", "sends a line break in a value", fields(":status", "200", "x-hostile", "a\r\nb: c")},
		{"connection-field", "sends fields that HTTP/2 forbids", fields(":status", "200", "connection", "close", "transfer-encoding", "chunked")},
		{"length-too-long", "gives a length beyond the end of the body", func(s uint32) string {
			return headers(0, s, ":status", "200", "content-length", "10") + frame(frameData, flagEndStream, s, "ok")
		}},
		{"length-too-short", "sends more body than it said", func(s uint32) string {
			return headers(0, s, ":status", "200", "content-length", "1") + frame(frameData, flagEndStream, s, "ok")
		}},
		{"two-lengths", "gives two different lengths", func(s uint32) string {
			return headers(0, s, ":status", "200", "content-length", "2", "content-length", "3") + frame(frameData, flagEndStream, s, "ok")
		}},
		{"negative-length", "gives a negative length", fields(":status", "200", "content-length", "-2")},
		{"headers-twice", "sends a second header that does not end the stream", func(s uint32) string { return ok200(0, s) + ok200(0, s) }},
		{"forged-trailers", "sends trailers with a status", func(s uint32) string { return ok200(0, s) + headers(flagEndStream, s, ":status", "403") }},
		{"contradicts-itself", "says that policy has evaluated the request, and that it has not", fields(":status", "403", "x-federation-policy-evaluated", "true", "x-federation-policy-evaluated", "false")},
	}
	var all []Hostile
	for _, l := range lies {
		all = append(all, Hostile{Name: "http2/" + l.name, Doc: l.doc, HTTP2: true, serve: http2("", wholes(l.answer, nil))})
	}
	return all
}

// floodFrames is how many small frames a flood has. It ends, and the server
// falls silent, so that a connection that its client keeps does not burn a core.
// Of those that net/http writes a line to the log for, there are fewer.
const (
	floodFrames  = 1 << 14
	loggedFrames = 1 << 6
)

func http2Floods() []Hostile {
	var all []Hostile
	for _, f := range []struct {
		name, doc string
		start     func(stream uint32) string
		over      func(stream uint32) string
		frames    int
	}{
		{"settings", "answers with SETTINGS without end", nil, func(uint32) string { return frame(frameSettings, 0, 0, setting(settingMaxStreams, 100)) }, floodFrames},
		{"settings-acks", "answers with acknowledgements without end", nil, func(uint32) string { return frame(frameSettings, flagAck, 0, "") }, floodFrames},
		{"pings", "answers with PING without end", nil, func(uint32) string { return frame(framePing, 0, 0, "12345678") }, floodFrames},
		{"windows", "answers with WINDOW_UPDATE without end", nil, func(uint32) string { return frame(frameWindowUpdate, 0, 0, uint32s(1)) }, floodFrames},
		{"priorities", "answers with PRIORITY without end", nil, func(s uint32) string { return frame(framePriority, 0, s, uint32s(0)+"\x00") }, loggedFrames},
		{"resets", "answers with RST_STREAM without end", nil, func(s uint32) string { return resetStream(s, 8) }, floodFrames},
		{"goaways", "answers with GOAWAY without end", nil, func(uint32) string { return goAway(0, 0, "") }, floodFrames},
		{"unknown", "answers with frames of a type that there is not", nil, func(uint32) string { return frame(0xfe, 0, 0, "hostile") }, loggedFrames},
		{"empty-data", "answers with a body of empty frames without end", func(s uint32) string { return ok200(0, s) }, func(s uint32) string { return frame(frameData, 0, s, "") }, floodFrames},
		{"early-hints", "answers with 103 without end", nil, func(s uint32) string { return headers(0, s, ":status", "103", "link", "</a>") }, floodFrames},
		{"continuations", "answers with a header that goes on without end", func(s uint32) string { return frame(frameHeaders, 0, s, hpackEncode(":status", "200")) },
			func(s uint32) string {
				return frame(frameContinuation, 0, s, hpackEncode("x-flood", strings.Repeat("f", 8<<10)))
			}, floodBytes / (8 << 10)},
		{"empty-continuations", "answers with a header that goes on without end and says nothing", func(s uint32) string { return frame(frameHeaders, 0, s, hpackEncode(":status", "200")) },
			func(s uint32) string { return frame(frameContinuation, 0, s, "") }, floodFrames},
	} {
		all = append(all, Hostile{Name: "http2/floods-" + f.name, Doc: f.doc, HTTP2: true, serve: http2("", func(c *http2Conn) {
			stream, ok := c.awaitWhole()
			if !ok || f.start != nil && !c.send(f.start(stream)) {
				return
			}
			over := f.over(stream)
			c.whileReading(func() { c.flood(over, f.frames) })
		})})
	}
	return all
}
