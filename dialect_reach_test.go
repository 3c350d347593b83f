package fedhttp

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestReach: how far the hops that are believed say that a request got.
func TestReach(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]reach{
		"":                                    reachUnknown,
		"hop":                                 reachUnknown,
		"hop; error=connection_refused":       reachUnknown,
		"hop; error=http_request_denied":      reachUnknown,
		"hop; error=http_request_error":       reachUnknown,
		"other; received-status=503":          reachUnknown,
		"other; error=connection_terminated":  reachUnknown,
		"envoy; error=connection_timeout":     reachUnknown,
		"pep; error=http_request_denied":      reachUnknown,
		"hop; received-status=503":            reachAnswered,
		"x, hop":                              reachAnswered,
		"(x), hop":                            reachAnswered,
		"hop; error=connection_refused, edge": reachUnknown,
		"hop; error=dns_error, envoy; received-status=502": reachAnswered,

		"hop; error=connection_terminated":               reachDispatched,
		"hop; error=http_response_timeout":               reachDispatched,
		"hop; error=tls_alert_received":                  reachDispatched,
		"x, hop; error=http_response_body_size":          reachDispatched,
		"hop, envoy; error=connection_terminated":        reachDispatched,
		"hop; error=connection_terminated, envoy":        reachDispatched,
		"hop; error=connection_refused; received-status": reachDispatched,
		// Nobody knows that these were not.
		"hop; error=no_such_type":                       reachDispatched,
		`hop; error="connection_refused"`:               reachDispatched,
		"hop; received-status=503, ;":                   reachDispatched,
		"hop; error=connection_refused, \"":             reachDispatched,
		strings.Repeat("x", maxProxyStatus+1):           reachDispatched,
		`envoy; error=connection_timeout; details="UT"`: reachDispatched,

		// A hop that enforces policy may have decided before it did anything else, and
		// has decided where it passed the request on.
		"pep":                                reachAnswered,
		"pep; error=connection_refused":      reachAnswered,
		"pep; received-status=503":           reachDispatched,
		"x, pep":                             reachDispatched,
		"hop; error=connection_refused, pep": reachDispatched,
	} {
		_, got := readProxyStatus(&reply{header: http.Header{"Proxy-Status": {field}}}, dialectHops)
		if got != want {
			t.Errorf("%.80q: reach %d, want %d", field, got, want)
		}
		if _, got = readProxyStatus(&reply{header: http.Header{"Proxy-Status": {field}}}, nil); got != reachUnknown {
			t.Errorf("%.80q, unpinned: reach %d", field, got)
		}
	}
}

// TestWeigh: whom such a word contradicts.
func TestWeigh(t *testing.T) {
	t.Parallel()
	routing := func(s Source) Evidence { return Evidence{Source: s, Layer: LayerRouting} }
	for _, row := range []struct {
		says Evidence
		from reach // the least that contradicts it; 0: none does
	}{
		{routing(SourceHeader), reachDispatched},
		{routing(SourceCorrelationPrefix), reachDispatched},
		{routing(SourceCorrelationResolver), reachDispatched},
		{routing(SourceAnchorIssuedAt), reachDispatched},
		{routing(SourceEnvoy), reachAnswered},
		{routing(SourceHTTP), reachAnswered},
		{routing(SourceDSP), reachAnswered},
		{routing(SourceProxyStatus), 0}, // weighed in the field
		{Evidence{Source: SourceEnvoy, Layer: LayerRouting, Ignored: IgnoredUnpinned}, 0},
		{Evidence{Source: SourceHeader, Layer: LayerPolicy}, 0},
		{Evidence{Source: SourceEnvoy}, 0},
	} {
		for _, far := range []reach{reachUnknown, reachAnswered, reachDispatched} {
			r := reading{reach: far, evidence: []Evidence{row.says, row.says}}
			r.weigh()
			want := []Evidence{row.says, row.says}
			if row.from != 0 && far >= row.from {
				want = append(want, Evidence{Source: SourceProxyStatus})
			}
			if !slices.Equal(r.evidence, want) {
				t.Errorf("%v at reach %d: %v", row.says, far, r.evidence)
			}
		}
	}
}
