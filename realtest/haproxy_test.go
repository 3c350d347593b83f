package realtest

import (
	"crypto/tls"
	"fmt"
	"testing"
)

const haproxyConfig = `
global
  maxconn 200
defaults
  mode http
  retries 1
  timeout connect 2s
  timeout client 20s
  timeout server 300ms
frontend front
  bind %[1]s
  http-request deny if { path /deny-403 }
  http-request auth realm h4 if { path /basic-401 }
  http-request return status 413 default-errorfiles if { path /body-too-large-413 }
  http-request track-sc0 src if { path /ratelimit-429 }
  http-request deny deny_status 429 if { path /ratelimit-429 } { sc0_http_req_rate gt 1 }
  stick-table type ip size 100 expire 10m store http_req_rate(10m)
  use_backend refused if { hdr(host) -m beg 127.0.0.1 } { path /upstream-refused }
  use_backend checked if { hdr(host) -m beg 127.0.0.1 } { path /upstream-down-healthcheck }
  use_backend untrusted if { hdr(host) -m beg 127.0.0.1 } { path /upstream-tls-untrusted }
  use_backend application if { hdr(host) -m beg 127.0.0.1 } { path_beg /app- /upstream- /ratelimit- }
frontend secure
  bind %[2]s ssl crt %[5]s/both.pem ca-file %[5]s/ca.pem verify required
  default_backend application
frontend lenient
  bind %[3]s ssl crt %[5]s/both.pem ca-file %[5]s/ca.pem verify optional
  http-request deny unless { ssl_c_used }
  default_backend application
backend application
  server one %[4]s
backend refused
  server one 127.0.0.1:1
backend checked
  server one 127.0.0.1:1 check inter 1s fall 1
backend untrusted
  server one %[6]s ssl verify required ca-file %[5]s/other.pem
`

func TestHAProxy(t *testing.T) {
	t.Parallel()
	path := binary(t, "haproxy")
	trust := newTrust(t)
	app := newApp(t, &tls.Config{Certificates: []tls.Certificate{trust.server}})
	addrs := start(t, path, 3, func(file string, _ []string) []string { return []string{"-db", "-f", file} },
		func(_ string, addrs []string) string {
			return fmt.Sprintf(haproxyConfig, addrs[0], addrs[1], addrs[2], app.addr, trust.dir, app.secure)
		})
	secure, lenient := "https://"+addrs[1], "https://"+addrs[2]
	refused := []string{distrusted, ambiguous} // the alert, or a reset that has overtaken it
	s := &site{server: "haproxy", url: "http://" + addrs[0], app: app, trust: trust}
	s.gateway = newGateway(t, trust, "http://"+addrs[0], secure, "http://"+addrs[1])
	s.play(t, []situation{
		{name: "app-403-passthrough", app: 1, want: []string{ambiguous}},
		{name: "app-503-passthrough", app: 1},
		{name: "upstream-refused"},
		{name: "upstream-closed", app: 1},
		{name: "upstream-rst", app: 1},
		{name: "upstream-garbage", app: 1},
		{name: "upstream-truncated-body", app: 1},
		{name: "upstream-timeout", app: 1, want: []string{ambiguous}},
		{name: "upstream-tls-untrusted", want: []string{ambiguous}},
		{name: "upstream-down-healthcheck"},
		{name: "unknown-route"},
		{name: "unknown-host", host: "unknown.example"},
		{name: "deny-403"},
		{name: "basic-401"},
		{name: "body-too-large-413"},
		{name: "ratelimit-429", limit: true, want: []string{ambiguous}},
		{name: "mtls-good", url: secure, client: &trust.good, app: 1},
		{name: "mtls-nocert-handshake", url: secure, want: refused},
		{name: "mtls-wrongca-handshake", url: secure, client: &trust.wrong, want: refused},
		{name: "mtls-expired-handshake", url: secure, client: &trust.stale, want: refused},
		{name: "mtls-optional-nocert-403", url: lenient},
		{name: "plain-http-to-https", url: "http://" + addrs[1]},
	})
}
