package realtest

import (
	"crypto/tls"
	"fmt"
	"testing"
)

// nginxConfig is an nginx with one port of HTTP and one of TLS that wants a
// certificate of its clients.
const nginxConfig = `
daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr;
events { worker_connections 256; }
http {
  access_log off;
  client_body_temp_path %[1]s/body;
  proxy_temp_path %[1]s/proxy;
  fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi;
  scgi_temp_path %[1]s/scgi;
  limit_req_zone $server_name zone=slow:1m rate=1r/m;
  proxy_read_timeout 300ms;
  upstream application { server %[4]s; }
  upstream down { server 127.0.0.1:1 down; server 127.0.0.1:2 down; }
  server {
    listen %[2]s default_server;
    return 404;
  }
  server {
    listen %[2]s;
    server_name 127.0.0.1;
    location / { return 404; }
    location /app-403-passthrough { proxy_pass http://application; }
    location /app-503-passthrough { proxy_pass http://application; }
    location /upstream- { proxy_pass http://application; }
    location /upstream-refused { proxy_pass http://127.0.0.1:1; }
    location /upstream-tls-untrusted-502 {
      proxy_pass https://%[5]s;
      proxy_ssl_verify on;
      proxy_ssl_trusted_certificate %[6]s/other.pem;
    }
    location /no-live-upstreams { proxy_pass http://down; }
    location /deny-403 { deny all; proxy_pass http://application; }
    location /basic-401 { auth_basic h4; auth_basic_user_file %[1]s/users; proxy_pass http://application; }
    location /auth-request-down-500 { auth_request /authorizer; proxy_pass http://application; }
    location /authorizer { internal; proxy_pass http://127.0.0.1:1; }
    location /body-too-large-413 { client_max_body_size 1; proxy_pass http://application; }
    location /ratelimit-429 { limit_req zone=slow; limit_req_status 429; proxy_pass http://application; }
  }
  server {
    listen %[3]s ssl;
    ssl_certificate %[6]s/cert.pem;
    ssl_certificate_key %[6]s/key.pem;
    ssl_client_certificate %[6]s/ca.pem;
    ssl_verify_client on;
    location / { proxy_pass http://application; }
  }
}
`

func TestNginx(t *testing.T) {
	t.Parallel()
	path := binary(t, "nginx")
	trust := newTrust(t)
	app := newApp(t, &tls.Config{Certificates: []tls.Certificate{trust.server}})
	addrs := start(t, path, 2, func(file string, _ []string) []string { return []string{"-c", file, "-e", "stderr"} },
		func(dir string, addrs []string) string {
			return fmt.Sprintf(nginxConfig, dir, addrs[0], addrs[1], app.addr, app.secure, trust.dir)
		})
	secure := "https://" + addrs[1]
	s := &site{server: "nginx", url: "http://" + addrs[0], app: app, trust: trust}
	s.gateway = newGateway(t, trust, "http://"+addrs[0], secure, "http://"+addrs[1])
	s.play(t, []situation{
		{name: "app-403-passthrough", app: 1, want: []string{ambiguous}},
		{name: "app-503-passthrough", app: 1},
		{name: "upstream-refused"},
		{name: "upstream-closed", app: 1},
		{name: "upstream-rst", app: 1},
		{name: "upstream-garbage", app: 1, want: []string{ambiguous}},
		{name: "upstream-truncated-body", app: 1, want: []string{good}},
		{name: "upstream-timeout", app: 1},
		{name: "upstream-tls-untrusted-502"},
		{name: "no-live-upstreams"},
		{name: "unknown-route"},
		{name: "unknown-host-404", host: "unknown.example"},
		{name: "deny-403"},
		{name: "basic-401"},
		{name: "auth-request-down-500"},
		{name: "body-too-large-413"},
		{name: "ratelimit-429", limit: true},
		{name: "mtls-good", url: secure, client: &trust.good, app: 1},
		{name: "mtls-nocert-400", url: secure},
		{name: "mtls-wrongca-400", url: secure, client: &trust.wrong},
		{name: "plain-http-to-https-400", url: "http://" + addrs[1]},
	})
}
