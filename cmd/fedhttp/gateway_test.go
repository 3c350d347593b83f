package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fedhttp/fedhttp"
)

func TestTargets(t *testing.T) {
	t.Parallel()
	targets := targetsOf([]fedhttp.Peer{{ID: "org-b", Origins: []string{"https://b.example/", "https://b2.example:8443"}}, {ID: "a/b c", Origins: []string{"http://127.0.0.1:1"}}})
	for path, want := range map[string]string{ // "": refused
		"/org-b":                      "https://b.example/",
		"/org-b/":                     "https://b.example/",
		"/org-b/v1/tasks":             "https://b.example/v1/tasks",
		"/org-b/a%2Fb":                "https://b.example/a%2Fb",
		"/org-b/a%2fb%20c":            "https://b.example/a%2fb%20c",
		"/org-b//a//b/":               "https://b.example//a//b/",
		"/org-b/...":                  "https://b.example/...",
		"/org-b/a..b/.c":              "https://b.example/a..b/.c",
		"/org-b/%252e%252e/x":         "https://b.example/%252e%252e/x",
		"/a%2Fb%20c/x":                "http://127.0.0.1:1/x",
		"/org%2Db/x":                  "https://b.example/x",
		"/org-b/https://evil.example": "https://b.example/https://evil.example",
		"/org-b/@evil.example/":       "https://b.example/@evil.example/",
		"/org-b/../a":                 "",
		"/org-b/..":                   "",
		"/org-b/.":                    "",
		"/org-b/./a":                  "",
		"/org-b/a/..":                 "",
		"/org-b/%2e%2e/a":             "",
		"/org-b/.%2E/a":               "",
		"/org-b/a%2f..%2fb":           "",
		"/org-b/a%5c..%5cb":           "",
		"/org-b/a\\..\\b":             "",
		"/org-b/..;x/b":               "",
		"/org-b/%00":                  "",
		"/org-b/a%0d%0ab":             "",
		"/org-b/%7f":                  "",
		"//org-b/x":                   "",
		"/":                           "",
		"/org-c/x":                    "",
		"/org-b%00/x":                 "",
		"/..%2forg-b/x":               "",
		"/../org-b/x":                 "",
	} {
		id, rest, ok := split(path)
		got := ""
		if target := targets[id]; ok && target != nil {
			if u, ok := target.at(rest, ""); ok {
				got = u.String()
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestLocation(t *testing.T) {
	t.Parallel()
	target := targetsOf([]fedhttp.Peer{{ID: "org b", Origins: []string{"https://b.example", "https://b2.example"}}})["org b"]
	asked, _ := url.Parse("https://b.example/v1/tasks?x=1")
	local := here{"127.0.0.1:8642", "8642", false}
	for in, want := range map[string]string{ // "": taken away
		"https://b.example/v2?a=b#c":           "/org%20b/v2?a=b#c",
		"HTTPS://B.example:443/v2":             "/org%20b/v2",
		"/v2":                                  "/org%20b/v2",
		"/v2?":                                 "/org%20b/v2?",
		"/v2#%C3%A9":                           "/org%20b/v2#%C3%A9",
		"/org-c/x":                             "/org%20b/org-c/x",
		"7":                                    "/org%20b/v1/7",
		"../../../org-c":                       "/org%20b/org-c",
		"?y=2":                                 "/org%20b/v1/tasks?y=2",
		"//b.example/a%2Fb":                    "/org%20b/a%2Fb",
		"/%2e%2e/org-c/x":                      "",
		"/.%2E/org-c/x":                        "",
		"/a%5c%2e%2e%5corg-c":                  "",
		"https://b.example/%2e%2e/org-c/x":     "",
		"https://b2.example/x":                 "https://b2.example/x",
		"https://elsewhere.example/x":          "https://elsewhere.example/x",
		"http://elsewhere.example:8642/x":      "http://elsewhere.example:8642/x",
		"http://10.0.0.1:8642/x":               "http://10.0.0.1:8642/x",
		"http://localhost:9000/x":              "http://localhost:9000/x",
		"mailto:x@b.example":                   "mailto:x@b.example",
		"http://127.0.0.1:8642/org-c":          "",
		"http://localhost:8642/org-c":          "",
		"http://LOCALHOST.:8642/org-c":         "",
		"http://foo.localhost:8642/org-c":      "",
		"//localhost:8642/org-c":               "",
		"http://[::ffff:127.0.0.1]:8642/org-c": "",
		"http://[::1]:8642/org-c":              "",
		"http://[::]:8642/org-c":               "",
		"http://0.0.0.0:8642/org-c":            "",
		"http://127.0.0.1.:8642/org-c":         "",
		"http://127.0.0.1:08642/org-c":         "",
		"http://127.1:8642/org-c":              "",
		"http://0x7f.1:8642/org-c":             "",
		"http://2130706433:8642/org-c":         "",
		"http://\uff4cocalhost:8642/org-c":     "",
		"http://127\u30020.0.1:8642/org-c":     "",
		"http://user:pw@127.0.0.1:8642/org-c":  "",
		"http:/org-c/x":                        "",
		"http:org-c/x":                         "",
		"http:\\\\localhost:8642\\org-c":       "",
		"http:///localhost:8642/org-c":         "",
		"http://[":                             "",
	} {
		if got, ok := target.location(asked, []string{in}, local); ok != (want != "") || ok && got != want {
			t.Errorf("%s: got %q, %t, want %q", in, got, ok, want)
		}
	}
	if _, ok := target.location(asked, []string{"/a", "/b"}, local); ok {
		t.Error("of two, one is taken")
	}
	for at, here := range map[string]here{ // from other machines
		"http://elsewhere.example:8642/x": {"gateway.example:8642", "8642", true},
		"https://Gateway.example/org-c":   {"gateway.example", "8642", true}, // with something before it
		"http://gateway.example:0443/x":   {"gateway.example:443", "8642", true},
		"http://127.0.0.1/x":              {"127.0.0.1", "80", false},
	} {
		if got, ok := target.location(asked, []string{at}, here); ok {
			t.Errorf("%s leads to %+v: %s", at, here, got)
		}
	}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	target := targetsOf([]fedhttp.Peer{{ID: "org b", Origins: []string{"https://b.example"}}})["org b"]
	asked, _ := url.Parse("https://b.example/v1/tasks?x=1")
	local := here{"127.0.0.1:8642", "8642", false}
	for in, want := range map[string]string{ // "": taken away
		"</v1/tasks?page=2>; rel=next":                        "</org%20b/v1/tasks?page=2>; rel=next",
		"<?page=2>; rel=\"next\", <https://x.example/>;rel=a": "</org%20b/v1/tasks?page=2>; rel=\"next\", <https://x.example/>;rel=a",
		"</org-c/x>; rel=next":                                "</org%20b/org-c/x>; rel=next",
		`<>; title="<a>, \"</b>", </c>`:                       `</org%20b/v1/tasks?x=1>; title="<a>, \"</b>", </org%20b/c>`,
		"":                                                    "",
		"</a>; rel=next, <http://localhost:8642/org-c>": "",
		"</%2e%2e/org-c/x>; rel=next":                   "",
		"</a; rel=next":                                 "",
		"</a>; title=\"x":                               "",
	} {
		if got, ok := target.links(asked, in, local); ok != (want != "") || got != want {
			t.Errorf("%s: got %q, %t, want %q", in, got, ok, want)
		}
	}
}

func TestCookie(t *testing.T) {
	t.Parallel()
	target := targetsOf([]fedhttp.Peer{{ID: "org b", Origins: []string{"https://b.example"}}})["org b"]
	for in, want := range map[string]string{ // "": taken away
		"a=b":                               "a=b; Path=/org%20b/v1",
		"a=b; Path=/":                       "a=b; Path=/org%20b/",
		"a=b; PATH = /v1 ; secure":          "a=b; secure; Path=/org%20b/v1",
		"a=b; Path=/x; Path=/y":             "a=b; Path=/org%20b/y",
		"a=b; Path=x":                       "a=b; Path=/org%20b/v1",
		"a=b; Domain=b.example; domain =x;": "a=b; Path=/org%20b/v1",
		`a={"x":1}; Path=/`:                 `a={"x":1}; Path=/org%20b/`,
		`a="q v"; Path=/`:                   `a="q v"; Path=/org%20b/`,
		"a=x y":                             "a=x y; Path=/org%20b/v1",
		"a=b,c":                             "a=b,c; Path=/org%20b/v1",
		"=x":                                "=x; Path=/org%20b/v1",
		"novalue":                           "novalue; Path=/org%20b/v1",
		"":                                  "; Path=/org%20b/v1",
		"a=b; Priority=High; Partitioned; Secure; SameSite=Lax; Max-Age=5": "a=b; Priority=High; Partitioned; Secure; SameSite=Lax; Max-Age=5; Path=/org%20b/v1",
		"a=b; Expires=Wed, 21-Oct-2026 07:28:00 GMT":                       "a=b; Expires=Wed, 21-Oct-2026 07:28:00 GMT; Path=/org%20b/v1",
		"__Secure-a=b; Secure; Path=/":                                     "__Secure-a=b; Secure; Path=/org%20b/",
		"__Host-a=b; Secure; Path=/":                                       "",
		" __hOST-a=b; Secure; Path=/":                                      "",
		"=__Host-a; Secure; Path=/":                                        "",
		"a=b; Path=/../org-c":                                              "",
		"a=b; Path=/%2e%2e/org-c":                                          "",
	} {
		asked, _ := url.Parse("https://b.example/v1/tasks?x=/y/z")
		if got, ok := target.cookie(asked, in); ok != (want != "") || got != want {
			t.Errorf("%s: got %q, %t, want %q", in, got, ok, want)
		}
	}
	for path, want := range map[string]string{"": "/", "/": "/", "/v1": "/", "/v1/": "/v1", "/a%2Fb/c": "/a%2Fb"} {
		asked, _ := url.Parse("https://b.example" + path)
		if got, _ := target.cookie(asked, "a=b"); got != "a=b; Path=/org%20b"+want {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestIsLoopback(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:80": true, "localhost.": true, "a.localhost:1": true, "127.0.0.1:8642": true, "127.9.9.9": true, "[::1]:80": true, "[::1]": true,
		"::1": true, "[::ffff:127.0.0.1]:1": true,
		"": false, ":80": false, "0.0.0.0:80": false, "[::]:80": false, "evil.example:8642": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "10.0.0.1": false,
	} {
		if got := isLoopback(host); got != want {
			t.Errorf("%q: %t", host, got)
		}
	}
}

func TestReadTask(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	got, given, err := readTask(http.Header{
		"Fedhttp-Capability": {"summarize"}, "Fedhttp-Scope": {"dataset 12"}, "fedhttp-task": {"task-7"}, "Fedhttp-Policy-Wait": {"30s"},
		"Fedhttp-Obligations": {`residency=eu, retention="30d"`, "copies=3, signed, logged=?0"}, "Other": {"x"},
	}, now)
	want := fedhttp.Task{ID: "task-7", Capability: "summarize", Scope: "dataset 12", PolicyDeadline: now.Add(30 * time.Second),
		Obligations: fedhttp.Terms{"residency": "eu", "retention": "30d", "copies": "3", "signed": "true", "logged": "false"}}
	if diff := cmp.Diff(want, got); diff != "" || !given || err != nil {
		t.Errorf("-want +got\n%s%t, %v", diff, given, err)
	}
	if _, given, err := readTask(http.Header{"X": {"y"}}, now); given || err != nil {
		t.Errorf("%t, %v", given, err)
	}
	for name, values := range map[string][]string{
		"Fedhttp-Capability": {"a", "b"}, "Fedhttp-Scope": {""}, "Fedhttp-Task": {"\x01"}, "Fedhttp-Policy-Wait": {"soon"}, "Fedhttp-Obligation": {"residency=eu"}, "Fedhttp_obligations": {"residency=eu"},
		"Fedhttp-Obligations": {"retention=30d"}, "Fedhttp-Decision": {"outcome=delivered"},
	} {
		if task, _, err := readTask(http.Header{name: values}, now); err == nil {
			t.Errorf("%s: %q is taken for %+v", name, values, task)
		}
	}
	if terms, err := readObligations([]string{`a="x,\"y,z", b`, `c="\\", d=e`}); err != nil || len(terms) != 4 || terms["a"] != `x,"y,z` {
		t.Errorf("%v, %v", terms, err)
	}
	if terms, err := readObligations([]string{`a="040", b="x\"=01", c=0, d=-10, e=100`}); err != nil || terms["a"] != "040" || terms["c"] != "0" || terms["d"] != "-10" {
		t.Errorf("%v, %v", terms, err)
	}
	if terms, err := readObligations([]string{"a=b", "a=c"}); err == nil {
		t.Errorf("two lines with one key are taken for %v", terms)
	}
	for _, value := range []string{"a=(b)", "a=1.5", "a=:YQ==:", "A=b", "a=b;c d", "a=b;c=d", "a;b", "a=b, a=c", "a=b, c, a=b", `a="x,y", b, a="\\","`, "", " ", "a=b,", "a=040", "a=-0", `a="\"=1", b=00`} {
		if terms, err := readObligations([]string{value}); err == nil {
			t.Errorf("%s is taken for %v", value, terms)
		}
	}
}

// TestProblems looks at the answer for every outcome.
func TestProblems(t *testing.T) {
	t.Parallel()
	statuses := map[fedhttp.Outcome]int{
		fedhttp.OutcomeRejected: 403, fedhttp.OutcomeRoutingFailed: 502, fedhttp.OutcomeAmbiguous: 502, fedhttp.OutcomePolicyUnresolved: 503,
		fedhttp.OutcomeScopeDenied: 403, fedhttp.OutcomePeerUnavailable: 503, fedhttp.OutcomeUnknownPeer: 404, fedhttp.OutcomeTaskRequired: 400,
		fedhttp.OutcomePolicyMismatch: 502, fedhttp.OutcomeCanceled: 502,
	}
	for o := fedhttp.OutcomeRejected; ; o++ {
		if _, err := o.MarshalText(); err != nil {
			break
		}
		p := problemOf(&fedhttp.Error{Decision: fedhttp.Decision{Outcome: o, Peer: "org-b"}})
		if p.Status != statuses[o] || p.Title == "" || p.Outcome != o.String() || p.Sent != "no" || !p.SafeToResend {
			t.Errorf("%v: %+v", o, p)
		}
	}
	for want, d := range map[string]fedhttp.Decision{
		"502 no true":       {Outcome: fedhttp.OutcomeRoutingFailed, Attempts: 2, Delivery: fedhttp.DeliveryPossible},
		"502 perhaps false": {Outcome: fedhttp.OutcomeAmbiguous, Attempts: 1, Delivery: fedhttp.DeliveryPossible},
		"502 yes false":     {Outcome: fedhttp.OutcomePolicyMismatch, Attempts: 1, Delivery: fedhttp.DeliveryAnswered},
		"503 no true":       {Outcome: fedhttp.OutcomeCanceled, Reason: fedhttp.ReasonClosed},
		"400 perhaps false": {Outcome: fedhttp.OutcomeCanceled, Reason: fedhttp.ReasonBodyFailed, Attempts: 1, Delivery: fedhttp.DeliveryPossible},
	} {
		p := problemOf(&fedhttp.Error{Decision: d})
		if got := sprint(p.Status, p.Sent, p.SafeToResend); got != want {
			t.Errorf("%+v: %s, want %s", d, got, want)
		}
	}
	if got := field("routing_failed", "attempts_exhausted", `a"\b`, 2, "rt-\u00e9"); got != `outcome=routing_failed, reason=attempts_exhausted, peer="a\"\\b", resends=2, correlation-id="rt-\\u00e9"` {
		t.Error(got)
	}
}

// TestStatusPage: other machines do not see who our partners are.
func TestStatusPage(t *testing.T) {
	t.Parallel()
	transport, err := fedhttp.NewTransport(fedhttp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close()
	g := newGateway(transport, nil, "0", true, slog.New(slog.DiscardHandler), &client{})
	for from, want := range map[string]int{"127.0.0.1:1234": 200, "[::1]:1234": 200, "10.0.0.1:1234": 403, "[2001:db8::1]:1234": 403} {
		r := httptest.NewRequest("GET", statusPath, nil)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", from, w.Code, want)
		}
	}
	for _, path := range []string{healthPath, statusPath} {
		r := httptest.NewRequest("GET", path, nil)
		r.RemoteAddr = "127.0.0.1:1234"
		r.Header.Set("Sec-Fetch-Dest", "document") // which these are for
		w := httptest.NewRecorder()
		if g.ServeHTTP(w, r); w.Code != 200 || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %q", path, w.Code, w.Header())
		}
	}
}
