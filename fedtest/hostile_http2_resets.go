package fedtest

import (
	"strings"
)

// The hostile servers of HTTP/2 that give up streams and connections by the
// book: RST_STREAM and GOAWAY, with every code and at every stage.

var http2Codes = []string{
	"no-error", "protocol-error", "internal-error", "flow-control-error", "settings-timeout", "stream-closed",
	"frame-size-error", "refused-stream", "cancel", "compression-error", "connect-error", "enhance-your-calm",
	"inadequate-security", "http-1-1-required", "code-unknown",
}

// http2Code is the number of the code at that place of http2Codes.
func http2Code(i int) uint32 {
	if i == len(http2Codes)-1 {
		return 0xdeadbeef
	}
	return uint32(i)
}

// http2Resets has a server for each code and each stage of a request.
func http2Resets() []Hostile {
	var all []Hostile
	for i, name := range http2Codes {
		code := http2Code(i)
		reset := func(stream uint32) string { return resetStream(stream, code) }
		for _, stage := range []struct {
			name, doc string
			script    func(*http2Conn)
		}{
			{"on-head", "when its header has come", heads(reset, nil)},
			{"after-request", "when all of it has come", wholes(reset, nil)},
			{"after-head", "after the header of the answer", wholes(func(stream uint32) string { return ok200(0, stream) + reset(stream) }, nil)},
			{"in-body", "in the middle of the answer's body", wholes(func(stream uint32) string { return okStart2(stream) + reset(stream) }, nil)},
		} {
			all = append(all, Hostile{
				Name:  "http2/rst-" + name + "-" + stage.name,
				Doc:   "resets each stream with " + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + " " + stage.doc,
				HTTP2: true, serve: http2("", stage.script),
			})
		}
	}
	return all
}

// http2GoAways has the shapes of a GOAWAY.
func http2GoAways() []Hostile {
	const lastOfAll = 1<<31 - 1
	debug := strings.Repeat(escapes, 1000)
	list := []struct {
		name, doc string
		script    func(*http2Conn)
	}{
		{"first", "sends GOAWAY before any request, and reads on", func(c *http2Conn) {
			if c.send(goAway(0, 0, "")) {
				c.readOn()
			}
		}},
		{"on-head", "disowns a request when its header has come, and reads on", heads(func(uint32) string { return goAway(0, 0, "") }, (*http2Conn).readOn)},
		{"below", "disowns a request that it has read, and reads on", wholes(func(uint32) string { return goAway(0, 0, "") }, (*http2Conn).readOn)},
		{"below-close", "disowns a request that it has read, and closes the connection", wholes(func(uint32) string { return goAway(0, 0, "") }, (*http2Conn).hangUp)},
		{"below-reset", "disowns a request that it has read, and resets the connection", wholes(func(uint32) string { return goAway(0, 0, "") }, (*http2Conn).reset)},
		{"below-answer", "disowns a request that it has read, and answers it", wholes(func(stream uint32) string { return goAway(0, 0, "") + ok2(stream) }, nil)},
		{"this-silent", "goes away, keeps the request, and never answers it", wholes(func(stream uint32) string { return goAway(stream, 0, "") }, (*http2Conn).readOn)},
		{"this-close", "goes away, keeps the request, and closes the connection", wholes(func(stream uint32) string { return goAway(stream, 0, "") }, (*http2Conn).hangUp)},
		{"this-then-below", "goes away, keeps the request, and then disowns it", wholes(func(stream uint32) string { return goAway(stream, 0, "") + goAway(0, 0, "") }, (*http2Conn).readOn)},
		{"rising", "sends a second GOAWAY whose last stream is higher", wholes(func(uint32) string { return goAway(0, 0, "") + goAway(lastOfAll, 0, "") }, (*http2Conn).readOn)},
		{"graceful", "goes away as it should, and answers", wholes(func(stream uint32) string { return goAway(lastOfAll, 0, "") + ok2(stream) }, nil)},
		{"after-head", "disowns a request after the header of its answer", wholes(func(stream uint32) string { return ok200(0, stream) + goAway(0, 0, "") }, (*http2Conn).readOn)},
		{"in-body", "goes away in the middle of a body, and closes the connection", wholes(func(stream uint32) string { return okStart2(stream) + goAway(stream, 0, "") }, (*http2Conn).hangUp)},
		{"debug", "goes away with debug data of terminal escapes", wholes(func(uint32) string { return goAway(0, 2, debug) }, (*http2Conn).hangUp)},
		{"on-stream", "sends GOAWAY on the request's stream", wholes(func(stream uint32) string { return frame(frameGoAway, 0, stream, uint32s(0, 0)) }, (*http2Conn).readOn)},
		{"short", "sends a GOAWAY that is too short", wholes(func(uint32) string { return frame(frameGoAway, 0, 0, uint32s(0)) }, (*http2Conn).readOn)},
		{"even", "sends a GOAWAY whose last stream is none of the client's", wholes(func(uint32) string { return goAway(2, 0, "") }, (*http2Conn).readOn)},
	}
	for i, name := range http2Codes {
		list = append(list, struct {
			name, doc string
			script    func(*http2Conn)
		}{
			"code-" + name, "disowns a request that it has read with " + strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + ", and closes the connection",
			wholes(func(uint32) string { return goAway(0, http2Code(i), "") }, (*http2Conn).hangUp),
		})
	}
	var all []Hostile
	for _, h := range list {
		all = append(all, Hostile{Name: "http2/goaway-" + h.name, Doc: h.doc, HTTP2: true, serve: http2("", h.script)})
	}
	return all
}
