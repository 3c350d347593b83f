package fedhttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const (
	envoyText = "upstream connect error or disconnect/reset before headers"
	nginxPage = "<html>\r\n<head><title>400 %s</title></head>\r\n<body>\r\n<center><h1>400 Bad Request</h1></center>\r\n<center>%[1]s</center>\r\n<hr><center>nginx/1.22.1</center>\r\n</body>\r\n</html>\r\n"
)

// dialectRows are the tables of the dialects, row by row; an empty want is a row
// that proves nothing.
var dialectRows = []struct {
	kind   DialectKind
	status int
	header string // "Name: value|Name: value"
	body   string
	old    bool // on a connection that was used before
	want   string
}{
	{kind: DialectHTTP, status: 421, want: "http=routing"},
	{kind: DialectHTTP, status: 421, old: true},
	{kind: DialectHTTP, status: 425, want: "http=routing"},
	{kind: DialectHTTP, status: 425, old: true, want: "http=routing"},
	{kind: DialectHTTP, status: 407},
	{kind: DialectHTTP, status: 511},
	{kind: DialectHTTP, status: 429, header: "Retry-After: 1"},
	{kind: DialectHTTP, status: 503, header: "Retry-After: 1"},
	{kind: DialectHTTP, status: 404},

	{kind: DialectBearer, status: 403, header: `WWW-Authenticate: Bearer error="insufficient_scope"`, want: "bearer=policy"},
	{kind: DialectBearer, status: 403, header: `WWW-Authenticate: bearer realm="a \"b\", c" , error=insufficient_scope, scope="x y"`, want: "bearer=policy"},
	{kind: DialectBearer, status: 401, header: `WWW-Authenticate: Bearer error="insufficient_scope"`},
	{kind: DialectBearer, status: 401, header: `WWW-Authenticate: Bearer error="invalid_token"`},
	{kind: DialectBearer, status: 403, header: `WWW-Authenticate: Bearer error="invalid_token"`},
	{kind: DialectBearer, status: 403, header: `WWW-Authenticate: Bearer error="invalid_token", error="insufficient_scope"`},
	{kind: DialectBearer, status: 403, header: `WWW-Authenticate: Bearer realm="error=insufficient_scope"`},
	{kind: DialectBearer, status: 403, header: `WWW-Authenticate: Basic realm="x", Bearer error="insufficient_scope"`},
	{kind: DialectBearer, status: 403, header: `WWW-Authenticate: Bearer error="insufficient_scope"|WWW-Authenticate: Basic realm="x"`},
	{kind: DialectBearer, status: 403, header: `WWW-Authenticate: Bearer error="insufficient_scope`},
	{kind: DialectBearer, status: 403, header: `WWW-Authenticate: Bearer`},

	{kind: DialectProblem, status: 400, header: "Content-Type: application/problem+json; charset=utf-8", body: `{"type":"https://iana.org/assignments/http-problem-types#ohttp-key"}`, want: "problem=routing"},
	{kind: DialectProblem, status: 400, header: "Content-Type: application/problem+json", body: `{"type":"https://www.iana.org/assignments/http-problem-types#ohttp-key"}`, want: "problem=routing"},
	{kind: DialectProblem, status: 400, header: "Content-Type: application/json", body: `{"type":"https://iana.org/assignments/http-problem-types#ohttp-key"}`},
	{kind: DialectProblem, status: 400, header: "Content-Type: application/problem+json", body: `{"type":"https://evil.example/assignments/http-problem-types#ohttp-key"}`},
	{kind: DialectProblem, status: 400, header: "Content-Type: application/problem+json", body: `{"type":"https://iana.org/assignments/http-problem-types#date"}`},
	{kind: DialectProblem, status: 400, header: "Content-Type: application/problem+json", body: `{"detail":"https://iana.org/assignments/http-problem-types#ohttp-key"}`},
	{kind: DialectProblem, status: 400, header: "Content-Type: application/problem+json", body: `{"type":`},
	{kind: DialectProblem, status: 401, header: "Content-Type: application/problem+json", body: `{"type":"about:blank","type":"https://iana.org/assignments/http-problem-types#ohttp-key"}`},
	{kind: DialectProblem, status: 401, header: "Content-Type: application/problem+json", body: `{"type":"about:blank","TYPE":"https://iana.org/assignments/http-problem-types#ohttp-key"}`},
	{kind: DialectProblem, status: 401, header: "Content-Type: application/problem+json", body: `{"TYPE":"https://iana.org/assignments/http-problem-types#ohttp-key"}`},
	{kind: DialectProblem, status: 400, header: "Content-Type: application/problem+json|Content-Encoding: br", body: `{"type":"https://iana.org/assignments/http-problem-types#ohttp-key"}`},

	{kind: DialectEnvoy, status: 403, body: "RBAC: access denied", want: "envoy=policy"},
	{kind: DialectIstio, status: 403, body: "RBAC: access denied", want: "istio=policy"},
	{kind: DialectEnvoy, status: 401, body: "RBAC: access denied"},
	{kind: DialectEnvoy, status: 403},
	{kind: DialectEnvoy, status: 403, body: "our RBAC: access denied"},
	{kind: DialectEnvoy, status: 503, body: "no healthy upstream", want: "envoy=routing"},
	{kind: DialectEnvoy, status: 503, body: "there is no healthy upstream"},
	{kind: DialectEnvoy, status: 502, body: "no healthy upstream"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ". reset reason: connection failure", want: "envoy=routing"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ". reset reason: remote connection failure, transport failure reason: delayed connect error: 111", want: "envoy=routing"},
	{kind: DialectIstio, status: 503, body: envoyText + ". reset reason: connection failure, transport failure reason: TLS error: 268435581:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED", want: "istio=routing"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ". reset reason: local connection failure", want: "envoy=routing"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ". transport failure reason: CERTIFICATE_VERIFY_FAILED"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ". reset reason: connection termination, transport failure reason: CERTIFICATE_VERIFY_FAILED"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ". reset reason: connection termination, transport failure reason: connection failure"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ". reset reason: connection termination\n\nx\n the app said: connection failure in database"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ". reset reason: connection failure\nthe app said more"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ". reset reason: connection failure, and the app said more"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ". reset reason: remote local connection failure"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ", reset reason: connection failure"},
	{kind: DialectEnvoy, status: 503, header: "x-envoy-upstream-service-time: 12", body: "no healthy upstream"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ". retried and the latest reset reason: connection failure"},
	{kind: DialectEnvoy, status: 503, body: envoyText + ". reset reason: connection termination"},
	{kind: DialectEnvoy, status: 503, body: envoyText},
	{kind: DialectEnvoy, status: 503, body: "app: " + envoyText + ". reset reason: connection failure"},
	{kind: DialectEnvoy, status: 503, header: "x-envoy-overloaded: true", body: "no healthy upstream"},
	{kind: DialectEnvoy, status: 503, header: "x-envoy-ratelimited: true", body: "no healthy upstream"},
	{kind: DialectEnvoy, status: 503, header: "x-envoy-attempt-count: 1", body: "no healthy upstream", want: "envoy=routing"},
	{kind: DialectEnvoy, status: 503, header: "x-envoy-attempt-count: 2", body: "no healthy upstream"},
	{kind: DialectEnvoy, status: 503, header: "x-envoy-attempt-count: 1|x-envoy-attempt-count: 2", body: "no healthy upstream"},
	{kind: DialectIstio, status: 503, header: "x-envoy-attempt-count: 3", body: envoyText + ". reset reason: connection failure"},

	{kind: DialectLinkerd, status: 403, header: "l5d-proxy-error: unauthorized request on route", want: "linkerd=policy"},
	{kind: DialectLinkerd, status: 404, header: "l5d-proxy-error: no route found for request", want: "linkerd=routing"},
	{kind: DialectLinkerd, status: 503, header: "l5d-proxy-error: service in fail-fast"},
	{kind: DialectLinkerd, status: 504, header: "l5d-proxy-error: service in fail-fast"},
	{kind: DialectLinkerd, status: 404},
	{kind: DialectLinkerd, status: 404, header: "l5d-proxy-error: a|l5d-proxy-error: b"},

	{kind: DialectKong, status: 404, header: "Content-Type: application/json", body: `{"message":"no Route matched with those values","request_id":"x"}`, want: "kong=routing"},
	{kind: DialectKong, status: 503, header: "Content-Type: application/json; charset=utf-8", body: `{"message":"name resolution failed"}`, want: "kong=routing"},
	{kind: DialectKong, status: 503, header: "Content-Type: application/json", body: `{"message":"failure to get a peer from the ring-balancer"}`, want: "kong=routing"},
	{kind: DialectKong, status: 503, header: "Content-Type: application/json|X-Kong-Upstream-Latency: 3", body: `{"message":"name resolution failed"}`},
	{kind: DialectKong, status: 404, header: "Content-Type: application/json", body: `{"message":"name resolution failed"}`},
	{kind: DialectKong, status: 404, header: "Content-Type: application/json", body: `{"note":"no Route matched with those values"}`},
	{kind: DialectKong, status: 404, header: "Content-Type: application/json", body: `{"message":""}`},
	{kind: DialectKong, status: 404, header: "Content-Type: application/json", body: `{"message":"denied","message":"no Route matched with those values"}`},
	{kind: DialectKong, status: 404, header: "Content-Type: application/json", body: `{"message":"denied","Message":"no Route matched with those values"}`},
	{kind: DialectKong, status: 404, header: "Content-Type: application/json", body: "{\"message\":\"denied\",\"me\u017f\u017fage\":\"no Route matched with those values\"}"},
	{kind: DialectKong, status: 404, header: "Content-Type: application/json", body: `{"Message":"no Route matched with those values"}`},
	{kind: DialectKong, status: 404, header: "Content-Type: application/json", body: `{"message":"no Route matched with those values"}{}`},
	{kind: DialectKong, status: 403, header: "Content-Type: application/json", body: `{"message":""}`},
	{kind: DialectKong, status: 503, header: "Content-Type: text/plain", body: `{"message":"name resolution failed"}`},

	{kind: DialectAWSAPIGateway, status: 403, header: "x-amzn-ErrorType: MissingAuthenticationTokenException", want: "aws_apigateway=routing"},
	{kind: DialectAWSAPIGateway, status: 403, header: "x-amzn-ErrorType: AccessDeniedException:http://internal.amazon.com/", want: "aws_apigateway=policy"},
	{kind: DialectAWSAPIGateway, status: 403, header: "x-amzn-ErrorType: ExpiredTokenException"},
	{kind: DialectAWSAPIGateway, status: 403, header: "x-amzn-ErrorType: InvalidSignatureException"},
	{kind: DialectAWSAPIGateway, status: 504, header: "x-amzn-ErrorType: MissingAuthenticationTokenException"},
	{kind: DialectAWSAPIGateway, status: 500, header: "x-amzn-ErrorType: AuthorizerConfigurationException"},
	{kind: DialectAWSAPIGateway, status: 403, header: "x-amzn-ErrorType: AccessDeniedException|x-amzn-ErrorType: MissingAuthenticationTokenException"},

	{kind: DialectCloudflare, status: 521, want: "cloudflare=routing"},
	{kind: DialectCloudflare, status: 522}, // also where a request that was sent is not acknowledged
	{kind: DialectCloudflare, status: 523, want: "cloudflare=routing"},
	{kind: DialectCloudflare, status: 525, want: "cloudflare=routing"},
	{kind: DialectCloudflare, status: 526, want: "cloudflare=routing"},
	{kind: DialectCloudflare, status: 520},
	{kind: DialectCloudflare, status: 524},
	{kind: DialectCloudflare, status: 403, header: "cf-mitigated: challenge"},

	{kind: DialectNginx, status: 400, header: "Content-Type: text/html", body: fmt.Sprintf(nginxPage, "The SSL certificate error"), want: "nginx=routing"},
	{kind: DialectNginx, status: 400, header: "Content-Type: text/html", body: fmt.Sprintf(nginxPage, "No required SSL certificate was sent"), want: "nginx=routing"},
	{kind: DialectNginx, status: 400, header: "Content-Type: text/html", body: fmt.Sprintf(nginxPage, "The plain HTTP request was sent to HTTPS port")},
	{kind: DialectNginx, status: 400, header: "Content-Type: text/html", body: "x" + fmt.Sprintf(nginxPage, "The SSL certificate error")},
	{kind: DialectNginx, status: 403, header: "Content-Type: text/html", body: fmt.Sprintf(nginxPage, "The SSL certificate error")},

	{kind: DialectDSP, status: 400, header: "Content-Type: application/json", body: `{"@type":"ContractNegotiationError","code":"400"}`, want: "dsp=policy"},
	{kind: DialectDSP, status: 403, header: "Content-Type: application/ld+json", body: `{"@type":"dspace:ContractNegotiationError","dspace:code":"x"}`, want: "dsp=policy"},
	{kind: DialectDSP, status: 400, header: "Content-Type: application/json", body: `{"@type":"ContractNegotiationError"}`},
	{kind: DialectDSP, status: 400, header: "Content-Type: application/json", body: `{"@type":"CatalogError","code":"400"}`},
	{kind: DialectDSP, status: 403, header: "Content-Type: application/json", body: `{"@type":"CatalogError","@type":"ContractNegotiationError","code":"x"}`},
	{kind: DialectDSP, status: 403, header: "Content-Type: application/json", body: `{"@Type":"ContractNegotiationError","CODE":"x"}`},
	{kind: DialectDSP, status: 403, header: "Content-Type: application/json", body: `{"@type":"ContractNegotiationError","code":""}`},
	{kind: DialectDSP, status: 403, header: "Content-Type: application/json", body: `{"@type":"ContractNegotiationError","code":400}`},
	{kind: DialectDSP, status: 403, header: "Content-Type: application/json", body: `{"@type":"ContractNegotiationError","code":false}`},
	{kind: DialectDSP, status: 403, header: "Content-Type: application/json", body: `{"@type":"ContractNegotiationError","code":[]}`},
	{kind: DialectDSP, status: 403, header: "Content-Type: application/json", body: `{"@type":"ContractNegotiationError","code":{}}`},
	{kind: DialectDSP, status: 403, header: "Content-Type: application/json", body: `{"@type":["ContractNegotiationError"],"code":"x"}`},
	{kind: DialectDSP, status: 404},

	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop; error=connection_refused", want: "proxy_status=routing"},
	{kind: DialectProxyStatus, status: 502, header: `Proxy-Status: "hop"; error=dns_error; rcode=NXDOMAIN`, want: "proxy_status=routing"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: other; error=connection_refused", want: "proxy_status=routing ignored=unpinned"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop; error=connection_refused; received-status=502"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: origin-side, hop; error=connection_refused", want: "proxy_status=contradiction"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: origin-side|Proxy-Status: hop; error=connection_refused", want: "proxy_status=contradiction"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: origin-side, other; error=connection_refused", want: "proxy_status=contradiction ignored=unpinned"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop; error=connection_refused, edge", want: "proxy_status=routing"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop; error=connection_refused|Proxy-Status: "},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: |Proxy-Status: hop; error=connection_refused"},
	{kind: DialectProxyStatus, status: 400, header: "Proxy-Status: origin-side, hop; error=http_request_error", want: "proxy_status=contradiction"},
	{kind: DialectProxyStatus, status: 400, header: "Proxy-Status: hop; error=http_request_error, edge"},
	{kind: DialectProxyStatus, status: 404, header: "Proxy-Status: origin-side, hop; error=http_response_timeout; received-status=404"},
	{kind: DialectProxyStatus, status: 403, header: "Proxy-Status: origin-side, hop; error=connection_terminated"},
	{kind: DialectProxyStatus, status: 403, header: "Proxy-Status: hop; error=http_request_denied"},
	{kind: DialectProxyStatus, status: 403, header: "Proxy-Status: pep; error=http_request_denied", want: "proxy_status=policy"},
	{kind: DialectProxyStatus, status: 503, header: "Proxy-Status: pep; error=destination_unavailable"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop; error=connection_refused, pep"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop; error=connection_refused, pep; received-status=502, edge"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop; error=connection_refused, envoy; error=connection_terminated"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop; error=connection_refused, envoy; received-status=502", want: "proxy_status=routing"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop; error=connection_refused, hop", want: "proxy_status=contradiction"},
	{kind: DialectProxyStatus, status: 403, header: "Proxy-Status: pep; error=http_request_denied, hop; received-status=403", want: "proxy_status=policy"},
	{kind: DialectProxyStatus, status: 403, header: `Proxy-Status: pep; error=http_request_denied, "pep"`, want: "proxy_status=contradiction"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop; error=no_such_type"},
	{kind: DialectProxyStatus, status: 502, header: `Proxy-Status: hop; error="connection_refused"`},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: (hop); error=connection_refused"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop; error=connection_refused, ;"},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: hop; error=connection_refused|Proxy-Status: " + strings.Repeat("x", maxProxyStatus)},
	{kind: DialectProxyStatus, status: 502, header: "Proxy-Status: HOP; error=connection_refused", want: "proxy_status=routing ignored=unpinned"},
	{kind: DialectProxyStatus, status: 503, header: `Proxy-Status: envoy; error=connection_timeout; details="response_timeout; UT"`},
	{kind: DialectProxyStatus, status: 503, header: `Proxy-Status: envoy; error=connection_timeout; details="upstream_reset{connection_timeout}; UF"`, want: "proxy_status=routing"},
	{kind: DialectProxyStatus, status: 503, header: `Proxy-Status: envoy; error=destination_unavailable; details="no_healthy_upstream; UH"`, want: "proxy_status=routing"},
	{kind: DialectProxyStatus, status: 503, header: `Proxy-Status: envoy; error=destination_unavailable; details="upstream_reset; UF,URX"`},
	{kind: DialectProxyStatus, status: 503, header: `Proxy-Status: envoy; error=destination_unavailable; details="no_healthy_UH"`},
	{kind: DialectProxyStatus, status: 503, header: "Proxy-Status: envoy; error=connection_limit_reached"},
	{kind: DialectProxyStatus, status: 503, header: "Proxy-Status: envoy; error=connection_refused", want: "proxy_status=routing"},
	{kind: DialectProxyStatus, status: 503, header: "Proxy-Status: envoy; error=connection_refused|X-Envoy-Attempt-Count: 2"},
	{kind: DialectProxyStatus, status: 503, header: "Proxy-Status: hop; error=connection_refused, envoy|X-Envoy-Attempt-Count: 2"},
	{kind: DialectProxyStatus, status: 503, header: `Proxy-Status: envoy; error=destination_unavailable; details="no_healthy_upstream; UH"|X-Envoy-Attempt-Count: 2`},
	{kind: DialectProxyStatus, status: 503, header: `Proxy-Status: envoy; error=destination_unavailable; details="no_healthy_upstream; UH"|X-Envoy-Attempt-Count: 1`, want: "proxy_status=routing"},
	{kind: DialectProxyStatus, status: 503, header: `Proxy-Status: envoy; error=destination_unavailable; details="upstream_reset; UF,UR"`},
	{kind: DialectProxyStatus, status: 503, header: `Proxy-Status: envoy; error=destination_unavailable; details="ext_authz_denied; UAEX,UH"`},
	{kind: DialectProxyStatus, status: 503, header: `Proxy-Status: envoy; error=connection_timeout; details="UF; UPE"`},
	{kind: DialectProxyStatus, status: 503, header: "Proxy-Status: hop; error=connection_limit_reached", want: "proxy_status=routing"},
}

// dialectHops are the hops that the rows of Proxy-Status know.
var dialectHops = []Hop{{Name: "hop"}, {Name: "pep", Policy: true}, {Name: "envoy", Envoy: true}}

func TestDialects(t *testing.T) {
	t.Parallel()
	seen := map[DialectKind]bool{}
	for _, row := range dialectRows {
		name := fmt.Sprintf("%v %d %.60s %.60s", row.kind, row.status, row.header, row.body)
		header := http.Header{}
		for field := range strings.SplitSeq(row.header, "|") {
			if key, value, ok := strings.Cut(field, ": "); ok {
				header.Add(key, value)
			}
		}
		hops := []Hop{{Name: "hop"}}
		if row.kind == DialectProxyStatus {
			hops = dialectHops
		}
		read := func(hops []Hop) string {
			table := Signals{Dialects: []Dialect{{Kind: row.kind, Hops: hops}}}.compile(func(field, format string, args ...any) {
				t.Errorf(field+": "+format, args...)
			})
			a := &reply{status: row.status, header: header, newConn: !row.old}
			if table.wantsBody(a) {
				a.body = row.body
			}
			var r reading
			table.readDialects(&r, a)
			var got []string
			for _, e := range r.evidence {
				got = append(got, e.String())
			}
			return strings.Join(got, ", ")
		}
		if got := read(hops); got != row.want {
			t.Errorf("%s: %q, want %q", name, got, row.want)
		}
		// Of a hop that nobody has named nothing counts.
		if got := read(nil); got != "" && !strings.HasSuffix(got, "ignored=unpinned") {
			t.Errorf("%s, unpinned: %q", name, got)
		} else if got == "" && row.want != "" {
			t.Errorf("%s, unpinned: nothing is recorded", name)
		}
		seen[row.kind] = true
	}
	for i := range dialectNames[1:] {
		if kind := DialectKind(i + 1); !seen[kind] {
			t.Errorf("no row for %v", kind)
		}
		if v := vocabularies[i+1]; v.read == nil || v.source.String() != strings.ReplaceAll(dialectNames[i+1], "-", "_") {
			t.Errorf("%s has the source %v", dialectNames[i+1], v.source)
		}
	}
}

// TestProxyErrors: every error type of RFC 9209, section 2.3 is in the table, with
// what the section says of who makes the answer.
func TestProxyErrors(t *testing.T) {
	t.Parallel()
	routing := []string{
		"dns_timeout", "dns_error", "destination_not_found", "destination_unavailable", "destination_ip_unroutable", "connection_refused",
		"connection_timeout", "connection_limit_reached", "tls_certificate_error",
	}
	anybody := []string{
		"connection_terminated", "connection_read_timeout", "connection_write_timeout", "tls_protocol_error", "tls_alert_received", "http_protocol_error",
	}
	for kind, proves := range proxyErrors {
		if want := !slices.Contains(anybody, kind) && !strings.HasPrefix(kind, "http_response_"); want != proves.onlyIntermediary {
			t.Errorf("%s: only an intermediary makes such an answer: %v", kind, proves.onlyIntermediary)
		}
		if want := slices.Contains(routing, kind); want != (proves.word == wordRefused) {
			t.Errorf("%s says %d", kind, proves.word)
		}
		if want := kind == "http_request_denied"; want != (proves.word == wordDenied) {
			t.Errorf("%s says %d", kind, proves.word)
		}
	}
	if n := len(proxyErrors); n != 32 {
		t.Errorf("%d error types, and the RFC has 32", n)
	}
}

func TestDialectFaults(t *testing.T) {
	t.Parallel()
	var got []string
	Signals{Dialects: []Dialect{
		{}, {Kind: 200}, {Kind: DialectKong}, {Kind: DialectKong}, {Kind: DialectEnvoy, Hops: []Hop{{}, {Name: "x", Policy: true}}},
		{Kind: DialectProxyStatus, Hops: []Hop{{Name: "pep"}, {Name: "pep", Policy: true}, {Name: "é "}, {Name: "a\nb"}, {Name: "a b \"c\""}}},
		{Kind: DialectDSP, Hops: []Hop{{Name: "é"}, {Name: "é"}}},
	}}.compile(func(field, format string, args ...any) { got = append(got, field+": "+fmt.Sprintf(format, args...)) })
	want := []string{
		"Signals.Dialects[0].Kind: is missing", "Signals.Dialects[1].Kind: 200 is no dialect", "Signals.Dialects[3].Kind: kong is there twice",
		"Signals.Dialects[4].Hops[0].Name: is empty", "Signals.Dialects[4].Hops[1]: Envoy and Policy are for proxy-status only",
		`Signals.Dialects[5].Hops[1].Name: "pep" is there twice`, `Signals.Dialects[5].Hops[2].Name: "\u00e9 " is no identifier`,
		`Signals.Dialects[5].Hops[3].Name: "a\nb" is no identifier`, `Signals.Dialects[6].Hops[1].Name: "\u00e9" is there twice`,
	}
	if len(got) != len(want) {
		t.Fatalf("faults: %q", got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}
