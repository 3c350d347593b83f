package fedtest

import "strings"

// The hostile servers of HTTP/1 that keep the connection and break the message.

// escapes are what moves a terminal's cursor, ends a line, or reads like
// something else.
const escapes = "\x1b[2J\x1b]0;owned\x07\u202e\u2066\xff\xfe\x7f"

func http1Liars() []Hostile {
	all := []Hostile{
		{Name: "http1/says-routing", Doc: "answers every request as a routing layer that turns it away", SaysRouting: true, serve: answers(routed+"\r\n", nil)},
		{Name: "http1/says-routing-then-resets", Doc: "answers as a routing layer that turns a request away, and resets the connection", SaysRouting: true, serve: answers(routed+"\r\n", (*hostileConn).reset)},
		{Name: "http1/truncates-length", Doc: "closes the connection before the end of a body of known length", serve: answers(okStart, (*hostileConn).hangUp)},
		{Name: "http1/resets-body", Doc: "resets the connection before the end of the body", serve: answers(okStart, (*hostileConn).reset)},
		{Name: "http1/truncates-chunks", Doc: "closes the connection before the last chunk", serve: answers(okHead+"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", (*hostileConn).hangUp)},
		{Name: "http1/truncates-head", Doc: "closes the connection in the middle of the header", serve: answers(okHead+"X-Cut: ", (*hostileConn).hangUp)},
		{Name: "http1/truncates-status", Doc: "closes the connection in the middle of the status line", serve: answers("HTTP/1.1 20", (*hostileConn).hangUp)},
		{Name: "http1/truncates-gzip", Doc: "cuts a gzip stream short in a body that is whole", serve: answers(okHead+"Content-Encoding: gzip\r\nContent-Length: 12\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x4a\x4c", nil)},
		{Name: "http1/no-gzip", Doc: "says gzip of a body that is none", serve: answers(okHead+"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok", nil)},
		{Name: "http1/redirects-on", Doc: "redirects to another path of its own, for ever", serve: answers("HTTP/1.1 307 Temporary Redirect\r\nLocation: /on\r\nContent-Length: 0\r\n\r\n", nil)},
		{Name: "http1/no-body-with-length", Doc: "answers 204 with a Content-Length and a body", serve: answers("HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok", nil)},
		{Name: "http1/contradicts-itself", Doc: "says that policy has evaluated the request, and that it has not", serve: answers("HTTP/1.1 403 Forbidden\r\n"+HeaderPolicyEvaluated+": true\r\n"+HeaderPolicyEvaluated+": false\r\nContent-Length: 0\r\n\r\n", nil)},
		{Name: "http1/signs-nonsense", Doc: "signs its answer with values that are no signals, and with terminal escapes", serve: answers("HTTP/1.1 403 Forbidden\r\n"+HeaderPolicyEvaluated+": perhaps\r\n"+HeaderCorrelationID+": "+strings.Repeat("\u202eid", 2000)+"\r\nRetry-After: -1\r\nContent-Length: 0\r\n\r\n", nil)},
		{Name: "http1/signs-often", Doc: "repeats a signal a thousand times", serve: answers("HTTP/1.1 503 Service Unavailable\r\n"+strings.Repeat(HeaderPolicyEvaluated+": false\r\n", 1000)+"Content-Length: 0\r\n\r\n", nil)},
		{Name: "http1/retry-after-for-ever", Doc: "turns a request away as a routing layer, and asks to come back in a million years", SaysRouting: true, serve: answers(routed+"Retry-After: 31536000000000\r\n\r\n", nil)},
		{Name: "http1/forged-trailers", Doc: "sends trailers that would change the message", serve: answers(okHead+"Transfer-Encoding: chunked\r\nTrailer: Content-Length, X-Federation-Policy-Evaluated\r\n\r\n2\r\nok\r\n0\r\nContent-Length: 7\r\n"+HeaderPolicyEvaluated+": false\r\n\r\n", nil)},
	}
	for _, lie := range []struct{ name, doc, answer string }{
		{"length-too-long", "waits with more body to come than it has", okHead + "Content-Length: 10\r\n\r\nok"},
		{"length-too-short", "sends more body than it said", okHead + "Content-Length: 1\r\n\r\nok" + strings.Repeat("x", 100)},
		{"two-lengths", "gives two different lengths", okHead + "Content-Length: 2\r\nContent-Length: 3\r\n\r\nok"},
		{"listed-lengths", "gives a list of different lengths", okHead + "Content-Length: 2, 3\r\n\r\nok"},
		{"negative-length", "gives a negative length", okHead + "Content-Length: -2\r\n\r\nok"},
		{"length-overflows", "gives a length that fits no integer", okHead + "Content-Length: 99999999999999999999999\r\n\r\nok"},
		{"length-in-words", "gives a length that is no number", okHead + "Content-Length: two\r\n\r\nok"},
		{"length-and-chunks", "gives a length for a chunked body", okHead + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
		{"unknown-coding", "names a transfer coding that there is not", okHead + "Transfer-Encoding: hostile\r\n\r\nok"},
		{"coded-twice", "names two transfer codings", okHead + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"},
		{"chunk-in-words", "gives a chunk size that is no number", okHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n0\r\n\r\n"},
		{"chunk-overflows", "gives a chunk size that fits no integer", okHead + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nok\r\n0\r\n\r\n"},
		{"chunk-negative", "gives a negative chunk size", okHead + "Transfer-Encoding: chunked\r\n\r\n-2\r\nok\r\n0\r\n\r\n"},
		{"chunk-too-short", "sends more of a chunk than it said", okHead + "Transfer-Encoding: chunked\r\n\r\n1\r\nok\r\n0\r\n\r\n"},
		{"chunk-extended", "gives a chunk an extension of 64 KiB", okHead + "Transfer-Encoding: chunked\r\n\r\n2;" + strings.Repeat("e", 64<<10) + "\r\nok\r\n0\r\n\r\n"},
		{"no-http", "answers with a line that is no HTTP", "garbage\r\n\r\n"},
		{"empty-line", "answers with empty lines", strings.Repeat("\r\n", 100)},
		{"no-version", "answers with a version that there is not", "HTTP/9.9 200 OK\r\nContent-Length: 2\r\n\r\nok"},
		{"status-in-words", "answers with a status that is no number", "HTTP/1.1 OK OK\r\nContent-Length: 2\r\n\r\nok"},
		{"status-negative", "answers with a negative status", "HTTP/1.1 -20 OK\r\nContent-Length: 2\r\n\r\nok"},
		{"status-too-high", "answers with a status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 2\r\n\r\nok"},
		{"status-zero", "answers with the status 000", "HTTP/1.1 000 Nothing\r\nContent-Length: 2\r\n\r\nok"},
		{"status-escapes", "answers with terminal escapes in the status line", "HTTP/1.1 403 " + escapes + "\r\nContent-Length: 2\r\n\r\nok"},
		{"line-escapes", "answers with a line of terminal escapes", strings.Repeat(escapes, 20) + "\r\n\r\n"},
		{"header-without-colon", "sends a header line without a colon", okHead + "hostile\r\nContent-Length: 2\r\n\r\nok"},
		{"header-with-space", "sends a space in a header's name", okHead + "X Hostile: 1\r\nContent-Length : 2\r\n\r\nok"},
		{"header-escapes", "sends terminal escapes in a header's name", okHead + "X-" + escapes + ": 1\r\nContent-Length: 2\r\n\r\nok"},
		{"header-folded", "folds a header over two lines, and begins with the second", okHead + " folded: 1\r\nContent-Length: 2\r\n\r\nok"},
		{"header-nul", "sends a NUL in a header's value", okHead + "X-Nul: a\x00b\r\nContent-Length: 2\r\n\r\nok"},
		{"bare-newlines", "ends header lines with a bare CR", "HTTP/1.1 200 OK\rX-Bare: 1\rContent-Length: 2\r\rok"},
	} {
		all = append(all, Hostile{Name: "http1/" + lie.name, Doc: lie.doc, serve: answers(lie.answer, nil)})
	}
	return all
}
