package fedhttp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// pinned is a dialect of which the hops are believed.
func pinned(kind fedhttp.DialectKind, hops ...fedhttp.Hop) fedhttp.Dialect {
	if hops == nil {
		hops = []fedhttp.Hop{{Name: "edge"}}
	}
	return fedhttp.Dialect{Kind: kind, Hops: hops}
}

// answer is a response as it is on the wire. fields are lines without their ends.
func answer(status int, body string, fields ...string) string {
	fields = append(fields, fmt.Sprint("Content-Length: ", len(body)))
	return fmt.Sprintf("HTTP/1.1 %d X\r\n%s\r\n\r\n%s", status, strings.Join(fields, "\r\n"), body)
}

const (
	evaluatedIs = fedtest.HeaderPolicyEvaluated
	inJSON      = "Content-Type: application/json"
	inProblem   = "Content-Type: application/problem+json"
	resetText   = "upstream connect error or disconnect/reset before headers. reset reason: "
	ohttpKey    = `"https://iana.org/assignments/http-problem-types#ohttp-key"`
	noRoute     = `"no Route matched with those values"`
)

// hostileRows are answers that look like a hop's word and are not. Each is sent
// once: a policy engine may have seen it.
var hostileRows = map[string]struct {
	dialects []fedhttp.Dialect
	recorded string
	want     string // outcome/reason
	heard    string // evidence of dialects
	sends    int64
	broken   bool
}{
	"JSON, a name twice": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectKong)},
		recorded: answer(404, `{"message":"denied","message":`+noRoute+`}`, inJSON),
		want:     captureGood,
	},
	"JSON, another letter case": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectKong)},
		recorded: answer(404, `{"message":"denied","Message":`+noRoute+`}`, inJSON),
		want:     captureGood,
	},
	"JSON, a letter that folds": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectKong)},
		recorded: answer(404, "{\"message\":\"denied\",\"me\u017f\u017fage\":"+noRoute+`}`, inJSON),
		want:     captureGood,
	},
	"JSON, two types": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectProblem)},
		recorded: answer(401, `{"type":"about:blank","TYPE":`+ohttpKey+`}`, inProblem),
		want:     "ambiguous/no_signal",
	},
	"JSON, no denial": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectDSP)},
		recorded: answer(403, `{"@type":"CatalogError","@type":"ContractNegotiationError","code":"x"}`, inJSON),
		want:     "ambiguous/no_signal",
	},
	"JSON, a code that is none": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectDSP)},
		recorded: answer(403, `{"@type":"ContractNegotiationError","code":false}`, inJSON),
		want:     "ambiguous/no_signal",
	},
	"Envoy, a reason in the application's words": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectEnvoy)},
		recorded: answer(503, resetText+"connection termination\n\nx\n the app said: connection failure in database"),
		want:     "ambiguous/no_signal",
	},
	"Envoy, a reason of the transport": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectIstio)},
		recorded: answer(503, resetText+"connection termination, transport failure reason: connection failure"),
		want:     "ambiguous/no_signal",
	},
	"Proxy-Status, a rejection that a hop passed on": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectProxyStatus)},
		recorded: answer(403, "x", evaluatedIs+": true", "Proxy-Status: a, edge; error=connection_terminated; received-status=403"),
		want:     captureRejected,
	},
	"Proxy-Status, an application's answer that came late": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectProxyStatus)},
		recorded: answer(404, "x", "Proxy-Status: a, edge; error=http_response_timeout; received-status=404"),
		want:     captureGood,
	},
	"Envoy, an upstream's answer": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectEnvoy)},
		recorded: answer(503, "no healthy upstream", "X-Envoy-Upstream-Service-Time: 12"),
		want:     "ambiguous/no_signal",
	},
}

// TestHostileDialects serves each to a transport that would gladly send again.
func TestHostileDialects(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for name, row := range hostileRows {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playCapture(t, capture{Sends: row.sends, Broken: row.broken}, []byte(row.recorded), row.want, row.heard, row.dialects)
		})
	}
}
