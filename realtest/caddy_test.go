package realtest

import (
	"crypto/tls"
	"encoding/json"
	"testing"

	"github.com/caddyserver/caddy/v2"

	// The modules that the configuration names.
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/requestbody"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/caddyserver/caddy/v2/modules/caddytls"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
)

type object = map[string]any

// caddyRoutes are the routes of a host, by path.
func caddyRoutes(app *app, trust *trust) []object {
	proxy := func(addr string, transport object) object {
		transport["protocol"] = "http"
		transport["response_header_timeout"] = "300ms"
		return object{"handler": "reverse_proxy", "upstreams": []object{{"dial": addr}}, "transport": transport}
	}
	application := proxy(app.addr, object{})
	route := func(path string, handle ...object) object {
		return object{"match": []object{{"path": []string{path}}}, "handle": handle, "terminal": true}
	}
	return []object{
		route("/deny-403", object{"handler": "static_response", "status_code": 403}),
		route("/deny-403-error", object{"handler": "error", "status_code": 403}),
		route("/deny-403-body", object{"handler": "static_response", "status_code": 403, "body": "Access denied"}),
		route("/body-too-large-413", object{"handler": "request_body", "max_size": 1}, application),
		route("/forward-auth-down", proxy("127.0.0.1:1", object{})),
		route("/upstream-refused", proxy("127.0.0.1:1", object{})),
		route("/upstream-tls-untrusted", proxy(app.secure, object{"tls": object{
			"ca": object{"provider": "file", "pem_files": []string{trust.file("other.pem")}},
		}})),
		route("/app-*", application),
		route("/upstream-*", application),
		route("/mtls-*", application),
	}
}

func caddyConfig(addrs []string, dir string, app *app, trust *trust) object {
	routes := caddyRoutes(app, trust)
	server := func(addr string, routes []object, policies ...object) object {
		s := object{"listen": []string{addr}, "automatic_https": object{"disable": true}, "routes": routes, "protocols": []string{"h1", "h2"}}
		if policies != nil {
			s["tls_connection_policies"] = policies
			s["strict_sni_host"] = false // an address has no SNI; Caddy would answer 421
		}
		return s
	}
	return object{
		"admin":   object{"disabled": true, "config": object{"persist": false}},
		"logging": object{"logs": object{"default": object{"writer": object{"output": "discard"}}}},
		"storage": object{"module": "file_system", "root": dir},
		"apps": object{
			"http": object{"servers": object{
				"plain": server(addrs[0], []object{{
					"match":  []object{{"host": []string{"127.0.0.1"}}},
					"handle": []object{{"handler": "subroute", "routes": routes}}, "terminal": true,
				}}),
				"secure": server(addrs[1], routes, object{"client_authentication": object{
					"mode": "require_and_verify",
					"ca":   object{"provider": "file", "pem_files": []string{trust.file("ca.pem")}},
				}}),
			}},
			"tls": object{"certificates": object{"load_files": []object{{
				"certificate": trust.file("cert.pem"), "key": trust.file("key.pem"),
			}}}},
		},
	}
}

// TestCaddy runs the one Caddy that a process can have.
func TestCaddy(t *testing.T) {
	t.Parallel()
	trust := newTrust(t)
	app := newApp(t, &tls.Config{Certificates: []tls.Certificate{trust.server}})
	addrs := freePorts(t, 2)
	config, err := json.Marshal(caddyConfig(addrs, t.TempDir(), app, trust))
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(config, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	secure := "https://" + addrs[1]
	refused := []string{distrusted, ambiguous} // the alert, or a reset that has overtaken it
	s := &site{server: "caddy", url: "http://" + addrs[0], app: app, trust: trust}
	s.gateway = newGateway(t, trust, "http://"+addrs[0], secure, "http://"+addrs[1])
	s.play(t, []situation{
		{name: "app-403-passthrough", app: 1},
		{name: "app-503-passthrough", app: 1, want: []string{ambiguous}},
		{name: "upstream-refused"},
		{name: "upstream-closed", app: 1},
		{name: "upstream-rst", app: 1},
		{name: "upstream-garbage", app: 1},
		{name: "upstream-truncated-body", app: 1, want: []string{good}},
		{name: "upstream-timeout", app: 1},
		{name: "upstream-tls-untrusted"},
		{name: "unknown-route", want: []string{good}},
		{name: "unknown-host", host: "unknown.example"},
		{name: "deny-403"},
		{name: "deny-403-error"},
		{name: "deny-403-body"},
		{name: "body-too-large-413"},
		{name: "forward-auth-down"},
		{name: "mtls-good", url: secure, client: &trust.good, app: 1},
		{name: "mtls-nocert-handshake", url: secure, want: refused},
		{name: "mtls-wrongca-handshake", url: secure, client: &trust.wrong, want: refused},
		{name: "mtls-expired-handshake", url: secure, client: &trust.stale, want: refused},
		{name: "plain-http-to-https-400", url: "http://" + addrs[1]},
	})
}
