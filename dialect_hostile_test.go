package fedhttp_test

import (
	"context"
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

// answer is a response as it is on the wire, after which the server ends the
// connection. fields are lines without their ends.
func answer(status int, body string, fields ...string) string {
	fields = append(fields, "Connection: close", fmt.Sprint("Content-Length: ", len(body)))
	return fmt.Sprintf("HTTP/1.1 %d X\r\n%s\r\n\r\n%s", status, strings.Join(fields, "\r\n"), body)
}

// chain are hops that sign in Proxy-Status.
var chain = pinned(fedhttp.DialectProxyStatus, fedhttp.Hop{Name: "inner"}, fedhttp.Hop{Name: "edge"}, fedhttp.Hop{Name: "pep", Policy: true})

const (
	noSignal      = "ambiguous/no_signal"
	contradictory = "ambiguous/contradictory_signals"
	exhausted     = "routing_failed/attempts_exhausted"
	evaluatedIs   = fedtest.HeaderPolicyEvaluated
	inJSON        = "Content-Type: application/json"
	inProblem     = "Content-Type: application/problem+json"
	resetText     = "upstream connect error or disconnect/reset before headers. reset reason: "
	ohttpKey      = `"https://iana.org/assignments/http-problem-types#ohttp-key"`
	noRoute       = `"no Route matched with those values"`
)

// hostileRows are answers that look like a hop's word and are not, and beside them
// some that are. Where a policy engine may have seen the request it is sent once.
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
		want:     noSignal,
	},
	"JSON, no denial": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectDSP)},
		recorded: answer(403, `{"@type":"CatalogError","@type":"ContractNegotiationError","code":"x"}`, inJSON),
		want:     noSignal,
	},
	"JSON, a code that is none": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectDSP)},
		recorded: answer(403, `{"@type":"ContractNegotiationError","code":false}`, inJSON),
		want:     noSignal,
	},
	"Envoy, a reason in the application's words": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectEnvoy)},
		recorded: answer(503, resetText+"connection termination\n\nx\n the app said: connection failure in database"),
		want:     noSignal,
	},
	"Envoy, a reason of the transport": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectIstio)},
		recorded: answer(503, resetText+"connection termination, transport failure reason: connection failure"),
		want:     noSignal,
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
	"a chain in which policy had the request": {
		dialects: []fedhttp.Dialect{chain},
		recorded: answer(502, "x", "Proxy-Status: inner; error=connection_refused, pep; received-status=502"),
		want:     noSignal,
	},
	"a chain in which policy says nothing": {
		dialects: []fedhttp.Dialect{chain},
		recorded: answer(502, "x", "Proxy-Status: inner; error=connection_refused, pep"),
		want:     noSignal,
	},
	"a chain in which policy is not the last": {
		dialects: []fedhttp.Dialect{chain},
		recorded: answer(502, "x", "Proxy-Status: inner; error=dns_error, pep; received-status=502, edge; received-status=502"),
		want:     noSignal,
	},
	"a chain in which policy had the request, and the peer's word": {
		dialects: []fedhttp.Dialect{chain},
		recorded: answer(502, "x", evaluatedIs+": false", "Proxy-Status: inner; error=connection_refused, pep"),
		want:     contradictory, heard: "proxy_status=contradiction",
	},
	"a chain without policy": {
		dialects: []fedhttp.Dialect{chain},
		recorded: answer(502, "x", "Proxy-Status: inner; error=connection_refused, edge; received-status=502"),
		want:     exhausted, heard: "proxy_status=routing", sends: 3,
	},
	"dispatched, and a local reply": {
		dialects: []fedhttp.Dialect{chain, pinned(fedhttp.DialectEnvoy)},
		recorded: answer(503, "no healthy upstream", "Proxy-Status: edge; error=connection_terminated"),
		want:     contradictory, heard: "envoy=routing, proxy_status=contradiction",
	},
	"passed on, and a local reply": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectEnvoy), chain},
		recorded: answer(503, "no healthy upstream", "Proxy-Status: edge; received-status=503"),
		want:     contradictory, heard: "envoy=routing, proxy_status=contradiction",
	},
	"passed on, and the peer's word": {
		dialects: []fedhttp.Dialect{chain},
		recorded: answer(503, "x", evaluatedIs+": false", "Proxy-Status: edge; received-status=503"),
		want:     exhausted, sends: 3,
	},
	"dispatched, and the peer's word": {
		dialects: []fedhttp.Dialect{chain},
		recorded: answer(503, "x", evaluatedIs+": false", "Proxy-Status: edge; error=http_response_incomplete"),
		want:     contradictory, heard: "proxy_status=contradiction",
	},
	"dispatched, in a field that cannot be read": {
		dialects: []fedhttp.Dialect{chain},
		recorded: answer(503, "x", evaluatedIs+": false", "Proxy-Status: \"", "Proxy-Status: edge; error=http_response_incomplete"),
		want:     contradictory, heard: "proxy_status=contradiction",
	},
	"dispatched, says nobody known": {
		dialects: []fedhttp.Dialect{chain},
		recorded: answer(503, "x", evaluatedIs+": false", "Proxy-Status: other; error=http_response_incomplete"),
		want:     exhausted, sends: 3,
	},
	"signed twice": {
		dialects: []fedhttp.Dialect{chain},
		recorded: answer(502, "x", "Proxy-Status: edge; error=connection_refused, edge; received-status=502"),
		want:     contradictory, heard: "proxy_status=contradiction",
	},
	"signed twice, in two lines": {
		dialects: []fedhttp.Dialect{chain},
		recorded: answer(502, "x", "Proxy-Status: edge; error=connection_refused", `Proxy-Status: "edge"`),
		want:     contradictory, heard: "proxy_status=contradiction",
	},
	"signed twice, on an application's answer": {
		dialects: []fedhttp.Dialect{chain},
		recorded: answer(404, "x", "Proxy-Status: edge; received-status=404, edge; received-status=404"),
		want:     captureGood,
	},
	"broken off after a local reply": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectEnvoy)},
		recorded: "HTTP/1.1 503 X\r\nContent-Length: 100\r\n\r\nno healthy upstream",
		want:     noSignal, broken: true,
	},
	"broken off after a denial": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectIstio)},
		recorded: "HTTP/1.1 403 X\r\nContent-Length: 40\r\n\r\nRBAC: access denied",
		want:     noSignal, broken: true,
	},
	"broken off after an object": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectKong)},
		recorded: "HTTP/1.1 404 X\r\n" + inJSON + "\r\nContent-Length: 900\r\n\r\n{\"message\":" + noRoute + "}",
		want:     captureGood, broken: true,
	},
	"broken off in a page": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectNginx)},
		recorded: "HTTP/1.1 400 X\r\nContent-Type: text/html\r\nContent-Length: 1000\r\n\r\n<html>\r\n<head><title>400 The SSL certificate error</title></head>\r\n",
		want:     captureGood, broken: true,
	},
	"of no length, so that nobody knows whether it broke off": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectEnvoy)},
		recorded: "HTTP/1.1 503 X\r\n\r\nno healthy upstream",
		want:     noSignal,
	},
	"longer than what is read": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectEnvoy)},
		recorded: answer(503, resetText+"connection failure, transport failure reason: "+strings.Repeat(" ", 4200)+"retried"),
		want:     noSignal,
	},
	"longer than what is read, after an object": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectKong)},
		recorded: answer(503, `{"message":"name resolution failed"}`+strings.Repeat(" ", 4200)+"{}", inJSON),
		want:     noSignal,
	},
	"a local reply": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectEnvoy)},
		recorded: answer(503, resetText+"connection failure"),
		want:     exhausted, heard: "envoy=routing", sends: 3,
	},
	"Envoy, an upstream's answer": {
		dialects: []fedhttp.Dialect{pinned(fedhttp.DialectEnvoy)},
		recorded: answer(503, "no healthy upstream", "X-Envoy-Upstream-Service-Time: 12"),
		want:     noSignal,
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

// TestDispatchedSaysTheHop: the correlation resolver's word that a request did not
// get through stands only where no hop says that it was dispatched.
func TestDispatchedSaysTheHop(t *testing.T) {
	t.Parallel()
	for says, want := range map[string]struct {
		reason   fedhttp.Reason
		attempts int
	}{
		"edge; received-status=503":         {fedhttp.ReasonAttemptsExhausted, 3},
		"edge; error=connection_terminated": {fedhttp.ReasonContradictorySignals, 1},
	} {
		peer := testPeer("b", stubURL)
		peer.Signals.Dialects = []fedhttp.Dialect{chain}
		tr := newTestTransport(t, fedhttp.Config{
			Base: answering(response(503, "X-Correlation-ID", "17", "Proxy-Status", says)), Peers: []fedhttp.Peer{peer},
			Anchors: fenceEager(), Escalator: fenceQuiet,
			Correlation: resolverFunc(func(context.Context, string, string) (fedhttp.Layer, error) { return fedhttp.LayerRouting, nil }),
		})
		if d, _ := get(t, tr, fedhttp.Task{}); d.Reason != want.reason || d.Attempts != want.attempts {
			t.Errorf("%s: %v after %d attempts %v", says, d.Reason, d.Attempts, d.Evidence)
		}
	}
}
