package realtest

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// What docs/peers/nginx.md asks a peer's operators for does what it says, with
// the very lines of that page.

const (
	exhausted = "routing_failed/attempts_exhausted"
	denied    = "rejected/denied"
)

// advised returns the page's block of the language, with the address in it.
func advised(t *testing.T, language, addr string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/peers/nginx.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "```"+language+"\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Fatalf("the page has no block of %s", language)
	}
	return strings.ReplaceAll(block, "LISTEN", addr)
}

const advisedNginx = `
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
  proxy_read_timeout 300ms;
  upstream application { server %[2]s; }
  upstream guarded { server %[3]s; }
  %[4]s
  server {
    listen %[5]s;
    location /v1/tasks/ {
      %[6]s
      proxy_pass http://application;
    }
    location = /authorizer {
      internal;
      proxy_pass http://guarded$request_uri;
      proxy_pass_request_body off;
      proxy_set_header Content-Length "";
    }
  }
}
`

func TestAdvisedNginx(t *testing.T) {
	t.Parallel()
	path := binary(t, "nginx")
	trust := newTrust(t)
	app, policies := newApp(t, nil), newApp(t, nil)
	guard, _ := newGuarded(t, policies)
	addrs := start(t, path, 2, func(file string, _ []string) []string { return []string{"-c", file, "-e", "stderr"} },
		func(dir string, addrs []string) string {
			return fmt.Sprintf(advisedNginx, dir, app.addr, strings.TrimPrefix(guard, "http://"),
				advised(t, "nginx", addrs[0]), addrs[1], advised(t, "nginx-location", ""))
		})
	unsent := []string{exhausted}
	s := &site{server: "advised", url: "http://" + addrs[0], app: app, trust: trust}
	s.play(t, []situation{
		{name: "good", path: "/v1/tasks", app: 1, want: []string{good}},
		{name: "unknown-host", host: "unknown.example", sends: 3, want: unsent},
		{name: "unknown-route", sends: 3, want: unsent},
		{name: "refused", path: "/refused/x", sends: 3, want: unsent},
		{name: "closed", path: "/v1/upstream-closed", app: 1, want: []string{ambiguous}},
		{name: "reset", path: "/v1/upstream-rst", app: 1, want: []string{ambiguous}},
		{name: "garbage", path: "/v1/upstream-garbage", app: 1, want: []string{ambiguous}},
		{name: "timeout", path: "/v1/upstream-timeout", app: 1, want: []string{ambiguous}},
		{name: "app-503", path: "/v1/app-503-passthrough", app: 1, want: []string{ambiguous}},
	})
	authorized := &site{server: "authorized", url: "http://" + addrs[1], app: app, trust: trust, prefix: "/v1/tasks"}
	authorized.play(t, []situation{
		{name: "permit", app: 1, want: []string{good}},
		{name: "deny", want: []string{denied}},
		{name: "undefined", want: []string{denied}},
	})
}

const advisedHAProxy = `
defaults
  mode http
  timeout connect 2s
  timeout client 20s
  timeout server 300ms
%[1]s
backend application
  server one %[2]s
`

func TestAdvisedHAProxy(t *testing.T) {
	t.Parallel()
	path := binary(t, "haproxy")
	trust := newTrust(t)
	app := newApp(t, nil)
	addrs := start(t, path, 1, func(file string, _ []string) []string { return []string{"-db", "-f", file} },
		func(_ string, addrs []string) string {
			return fmt.Sprintf(advisedHAProxy, advised(t, "haproxy", addrs[0]), app.addr)
		})
	unsent := []string{exhausted}
	s := &site{server: "advised", url: "http://" + addrs[0], app: app, trust: trust}
	s.play(t, []situation{
		{name: "good", path: "/v1/tasks", app: 1, want: []string{good}},
		{name: "unknown-host", host: "unknown.example", path: "/v1/tasks", sends: 3, want: unsent},
		{name: "unknown-route", sends: 3, want: unsent},
		{name: "closed", path: "/v1/upstream-closed", app: 1, want: []string{ambiguous}},
	})
}
