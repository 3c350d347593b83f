package fedhttp

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestDialectDecides sends one task to a peer whose hop fails it in its own words.
func TestDialectDecides(t *testing.T) {
	kong := fedtest.Raw(503, http.Header{"Content-Type": {"application/json"}}, `{"message":"name resolution failed"}`)
	hop := []Hop{{Name: "edge"}}
	for name, row := range map[string]struct {
		dialects []Dialect
		step     fedtest.Step
		advances bool // a refresh brings a newer anchor
		outcome  Outcome
		reason   Reason
		sends    int
		evidence string
	}{
		"no dialect": {step: kong, outcome: OutcomeAmbiguous, reason: ReasonNoSignal, sends: 1, evidence: "[]"},
		"unpinned": {
			dialects: []Dialect{{Kind: DialectKong}}, step: kong, outcome: OutcomeAmbiguous, reason: ReasonNoSignal, sends: 1,
			evidence: `["kong=routing ignored=unpinned"]`,
		},
		"pinned": {dialects: []Dialect{{Kind: DialectKong, Hops: hop}}, step: kong, outcome: OutcomeDelivered, sends: 2, evidence: `["kong=routing"]`},
		"policy": {
			dialects: []Dialect{{Kind: DialectEnvoy, Hops: hop}}, step: fedtest.Raw(403, nil, "RBAC: access denied"),
			outcome: OutcomeRejected, reason: ReasonDenied, sends: 1, evidence: `["envoy=policy"]`,
		},
		"two that differ": {
			dialects: []Dialect{{Kind: DialectLinkerd, Hops: hop}, {Kind: DialectBearer, Hops: hop}},
			step:     fedtest.Raw(403, http.Header{"L5d-Proxy-Error": {"x"}, "Www-Authenticate": {`Bearer error="insufficient_scope"`}}, ""),
			outcome:  OutcomeRejected, reason: ReasonDenied, sends: 1, evidence: `["linkerd=policy","bearer=policy"]`,
		},
		"a hop against the peer": {
			dialects: []Dialect{{Kind: DialectKong, Hops: hop}},
			step:     fedtest.Raw(503, http.Header{"Content-Type": {"application/json"}, fedtest.HeaderPolicyEvaluated: {"true"}}, `{"message":"name resolution failed"}`),
			outcome:  OutcomeAmbiguous, reason: ReasonContradictorySignals, sends: 1, evidence: `["header=policy","kong=routing"]`,
		},
		"the peer distrusts us": {
			dialects: []Dialect{{Kind: DialectNginx, Hops: hop}},
			step:     fedtest.Raw(400, http.Header{"Content-Type": {"text/html"}}, fmt.Sprintf(nginxPage, "The SSL certificate error")),
			outcome:  OutcomeRoutingFailed, reason: ReasonPeerDistrustsUs, sends: 1, evidence: `["nginx=routing"]`,
		},
		"a stale key, and no newer one": {
			dialects: []Dialect{{Kind: DialectProblem, Hops: hop}},
			step:     fedtest.Raw(400, http.Header{"Content-Type": {"application/problem+json"}}, `{"type":"https://iana.org/assignments/http-problem-types#ohttp-key"}`),
			outcome:  OutcomeRoutingFailed, reason: ReasonAnchorUnchanged, sends: 1, evidence: `["problem=routing"]`,
		},
		"a stale key": {
			dialects: []Dialect{{Kind: DialectProblem, Hops: hop}}, advances: true,
			step:    fedtest.Raw(400, http.Header{"Content-Type": {"application/problem+json"}}, `{"type":"https://iana.org/assignments/http-problem-types#ohttp-key"}`),
			outcome: OutcomeDelivered, sends: 2, evidence: `["problem=routing"]`,
		},
		"a success": {
			dialects: []Dialect{{Kind: DialectProxyStatus, Hops: hop}},
			step:     fedtest.Raw(200, http.Header{"Proxy-Status": {"edge; error=connection_refused"}}, ""), outcome: OutcomeDelivered, sends: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				spans := newSpans()
				r := vtTraceRig(t, spans, func(_ *Config, p *Peer) { p.Signals.Dialects = row.dialects })
				r.get(t.Context(), Task{})
				time.Sleep(time.Hour)
				if row.advances {
					r.peer.Rotate()
				}
				spans.recorder.Reset()
				r.peer.On("t", row.step)
				res := r.get(t.Context(), Task{ID: "t", Capability: "cap"})
				vtWant(t, "outcome", res.d.Outcome, row.outcome)
				vtWant(t, "reason", res.d.Reason, row.reason)
				vtWant(t, "sends", r.peer.Sends("t"), row.sends)
				got := strings.TrimPrefix(vtAttrs(spans.named("GET")[0])["federation.evidence"], "STRINGSLICE ")
				vtWant(t, "evidence", got, row.evidence)
			})
		})
	}
}
