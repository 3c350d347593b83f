package fedconfig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// corpus is what is tried in fields, where %s stands for each of the values.
var corpus = []struct {
	fields []string
	values []string
}{
	{[]string{`"origins": [%s]`}, quotedAll(
		"https://a", "HTTPS://a", "hTTp://localhost", "https://A.example", "https://a.", "https://a..", "https://a/", "https://a//", "https://a?", "https://a#", "https://a/#b",
		"https://a b", "https://a:99999", "https://a:65535", "https://a:65536", "https://a:0", "https://a:00", "https://a:080", "https://a:", "https://a:b", "https://é.example",
		"https://xn--a.example", "http://127.0.0.1", "http://a.localhost:8080", "http://b.example", "https://[::1]", "https://[::1]:443", "https://[::1", "https://[fe80::1%25eth0]", "https://[1::2::3]",
		"https://[a]", "https://u@a", "https://@a", "https://u:p@a", " https://a", "https://a ", "https://a\n", "https://%61", "https://a..b", "https://.a", "https://-", "https://a_b",
		"https://*", "https://"+strings.Repeat("a", 254), "", "a", "https://", "https:///", "https:a", "//a", "https://a\\b", "https://1.2.3.256", "ftp://a",
		"https://${H}", "${H}://a", "https://${H", "https://a$$", "https://${h-}", "$${H}",
	)},
	{[]string{`"id": %s`}, quotedAll(
		"", "a b", "é", "a\x00", strings.Repeat("x", 256), strings.Repeat("x", 257), strings.Repeat("$$", 128), strings.Repeat("${H}", 100), " ", "a\tb", "a/b",
		"${H", "$H", "$", "$$", "$$$", "$${H", "$$${H", "$$${H}", "\"", "\\", "~",
	)},
	{[]string{
		`"hold": {"max_wait": %s}`, `"retry": {"attempt_timeout": %s}`, `"denial": {"hold_off": %s}`, `"denial": {"window": %s}`, `"breaker": {"open_for": %s}`, `"retry": {"min_backoff": "1ns", "max_backoff": %s}`,
		`"retry": {"min_refresh_interval": %s}`,
	}, append(quotedAll(
		"1s", "1h30m", ".5s", "1.s", ".s", "5", "0", "0s", "-0s", "+1s", "-1s", "1d", "1S", " 1s", "1s ", "1µs", "1μs", "1us", "1m1m", "9223372036854775807ns", "9223372036854775808ns", "99999999h",
		"1e3s", "", "1s30", "0.5ns", "10ns", "1.5h", "0h0m0s", "0h0m10s", "00s", "01s", "1s-1s", "${S}", "1${UNIT}", "$${S}", "1s$$", "${S",
	), "5", "null", "true", "[]", "{}")},
	{[]string{
		`"retry": {"max_attempts": %s}`, `"breaker": {"failures": %s}`, `"breaker": {"trials": %s}`, `"hold": {"max": %s}`, `"denial": {"budget": %s}`, `"signals": {"failure_statuses": [%s]}`,
		`"retry": {"budget_ratio": %s}`, `"hold": {"release_rate": %s}`, `"version": %s`,
	}, strings.Fields(`0 1 -1 1.0 1e2 1.5 500 1048576 1048577 99999999999999999999 9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 -0 -0.0 0.1 -0.1
		1e-400 1e400 1e308 -1e400 0.0000001 "1" "" "x" "${ONE}" "$${ONE}" "${ONE" null true [] {}`)},
	{[]string{
		`"signals": {"policy_evaluated": %s}`, `"signals": {"correlation_id": %s}`, `"signals": {"anchor_issued_at": %s}`, `"signals": {"policy_reason": %s}`, `"signals": {"receipt": %s}`,
		`"signals": {"degraded": %s}`, `"signals": {"policy_digest": %s}`, `"signals": {"negotiation_epoch": %s}`, `"signals": {"anchor_version": %s}`,
	}, append(quotedAll("X-A", "", "x y", "é", "a:b", "a\n", "a\x00", "Host", "a,b", "$$", "a$$b", "a$b", "a$", "(a)", "!#%&'*+.^_`|~", "${H}", "X-${H}", "${H", "X {H}", "$${H}"), "1", "null", "true")},
	{[]string{`"routes": [{"pattern": %s}]`}, append(quotedAll(
		"/", "", "x", "GET /", "get /", "GET  /", "GET\t/", "GET", "GET ", "/{a}", "/{a}/", "/{a}/{a}", "/{a}/b/{b}", "/{a...}", "/{...}", "/{a...}/b", "/{$}", "/a/{$}", "/{$}/", "/{$...}", "/{", "/}", "/a}",
		"/{a", "/a{", "/{a}{b}", "/{{a}}", "/{1}", "/{a1}", "/{é}", "/{a-b}", "/{_}", "example.com/", "GET example.com/", "GET /a b", "/a b", "/a//b", "/a/../b", "GET /a//b", "GET /a/../b",
		"CONNECT /a//b", "é /", "/é", "CONNECT /", " /", "/ ", "/{a b}", "/{}", "POST /v1/tasks/{id}", "/%zz", "/%2f", "/{a}x", "/x{a}", "/a?b", "G@T /", "G!T /", "GET /\n", "//", "*", "${P}", "GET ${P}",
		"/${H}", "/${H", "/$$", "/$", "/{$", "/$${H}", "/{$${H}}",
	), "1")},
	{[]string{`"signals": {"correlation_prefixes": {%s: "policy"}}`, `"default_terms": {%s: "v"}`}, quotedAll("", "a", "a,", ",", " a", "a ", "\t", "é", "a b", "${H}", "x${", "$$", "$", "\x01", "a,b")},
	{[]string{
		`"default_terms": {"k": %s}`, `"routes": [{"pattern": "/", "task": {"capability": %s}}]`, `"routes": [{"pattern": "/", "task": {"scope": %s, "id": %[1]s}}]`,
		`"routes": [{"pattern": "/", "task": {"capability": "c", "obligations": {"a": %s}}}]`, `"routes": [{"pattern": "/", "task": {"obligations": {"a": "b"}, "capability": %s}}]`,
		`"signals": {"dialects": [{"kind": "kong", "hops": [{"name": %s}]}]}`, `"signals": {"dialects": [{"kind": "proxy-status", "hops": [{"name": %s}]}]}`,
	}, append(quotedAll("", "a", "é", "a\n", "${H}", "${H", "a${", "$", "$$", "$$$", "$a", "$$${H}"), "1", "null", "true", "[]")},
	{[]string{`"routes": [{"pattern": "/", "task": {"policy_deadline": %s}}]`}, append(quotedAll(
		"2027-01-31T12:00:00Z", "2027-01-31t12:00:00Z", "2027-01-31T12:00:00z", "2027-01-31T12:00:00+01:00", "2027-01-31T12:00:00-23:59", "2027-01-31", "2027-01-31T24:00:00Z", "2027-01-31T12:00:60Z",
		"2016-12-31T23:59:60Z", "2027-01-31T12:00:00.5Z", "2027-01-31T12:00:00,5Z", "2027-01-31T12:00:00.Z", "2027-02-30T12:00:00Z", "2027-13-01T12:00:00Z", "2028-02-29T12:00:00Z", "2027-01-31 12:00:00Z", "2027-01-31T12:00:00",
		"2027-01-31T12:00:00+25:00", "2027-01-31T12:00:00+24:00", "2027-01-31T12:00:00+01:60", "2027-01-31T12:00:00+0100", "1990-01-01T00:00:00Z", "12027-01-31T12:00:00Z", "2027-1-31T12:00:00Z", "2027-01-31T1:00:00Z",
		"", "${T}", "${T", "${H}T${T}",
	), "1", "null")},
	{[]string{`"receipt": %s`, `"propagation": %s`, `"signals": {"correlation_prefixes": {"a": %s}}`, `"signals": {"dialects": [{"kind": %s}]}`, `"require_task": %s`}, append(quotedAll(
		"verify", "Verify", "require", "all", "trace_context", "policy", "routing", "unknown", "kong", "proxy-status", "", "true", "false", "${RECEIPT}", "${RECEIPT}$$", "$${RECEIPT}", "${RECEIPT",
	), "0", "1", "true", "false", "null")},
	{[]string{"%s"}, []string{
		`"signals": {}`, `"signals": {"dialects": []}`, `"signals": {"dialects": [{"kind": "kong", "hops": []}]}`, `"signals": {"dialects": [{"kind": "kong", "hops": [{"name": "a", "envoy": true}]}]}`,
		`"signals": {"dialects": [{"kind": "kong", "hops": [{"name": "a", "envoy": false}]}]}`, `"signals": {"dialects": [{"kind": "proxy-status", "hops": [{"name": "a", "envoy": true, "policy": true}, {"name": "a"}]}]}`,
		`"signals": {"dialects": [{"kind": "kong"}, {"kind": "kong"}]}`, `"routes": []`, `"routes": [{"pattern": "/"}, {"pattern": "/"}]`, `"routes": [{"pattern": "/", "task": {"obligations": {}}}]`,
		`"routes": [{"pattern": "/", "task": {"obligations": {"a": "b"}}}]`, `"require_anchor": true`, `"base": null`, `"hold": {}`, `"retry": {"min_backoff": "10s", "max_backoff": "1s"}`, `"retry": {"min_backoff": "10s"}`,
		`"default_terms": {}`, `"signals": {"failure_statuses": [503, 503]}`, `"signals": {"failure_statuses": []}`,
	}},
}

// onlyParse is where Parse refuses what the schema takes, as Schema says.
var onlyParse = []string{
	`["http://b.example"]`, `"https://aaaa`, `"https://[1::2::3]"`, `"https://[a]"`,
	`"${H}://a"`, `"failure_statuses": ["${ONE}"]`, `"${H}T${T}"`, `"${RECEIPT}"`, `"${RECEIPT}$$"`,
	`"9223372036854775808ns"`, `"99999999h"`, `"0.5ns"`,
	`: 1.0}`, `: 1e2}`, `: 1e-400}`, `: -0.0}`, `"version": 1.0,`,
	`"/{a}/{a}"`, `"GET /a//b"`, `"GET /a/../b"`, `{"pattern": "/"}, {"pattern": "/"}`,
	`{"name": "a", "envoy": true, "policy": true}, {"name": "a"}`, `{"kind": "kong"}, {"kind": "kong"}`, `"min_backoff": "10s", "max_backoff"`,
}

func quotedAll(values ...string) []string {
	all := make([]string, len(values))
	for i, v := range values {
		quoted, _ := json.Marshal(v) // of a string
		all[i] = strings.NewReplacer(`\u0026`, "&", `\u003c`, "<", `\u003e`, ">").Replace(string(quoted))
	}
	return all
}

// TestSchemaAndParse: the schema takes what Parse takes, and refuses what it
// refuses, with the exceptions that it names.
func TestSchemaAndParse(t *testing.T) {
	for name, value := range map[string]string{"H": "h", "S": "1s", "UNIT": "s", "ONE": "1", "P": "/p", "T": "2027-01-31T12:00:00Z", "RECEIPT": "verify"} {
		t.Setenv(name, value)
	}
	compiled := compile(t)
	var surprises, exceptions []string
	tried := 0
	for _, c := range corpus {
		for _, field := range c.fields {
			for _, value := range c.values {
				file := fileWith(fmt.Sprintf(field, value))
				parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(file))
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				tried++
				bySchema := compiled.Validate(parsed)
				_, byParse := Parse("p.json", []byte(file))
				if (bySchema == nil) == (byParse == nil) {
					continue
				}
				if i := slices.IndexFunc(onlyParse, func(what string) bool { return strings.Contains(file, what) }); i >= 0 && byParse != nil {
					exceptions = append(exceptions, onlyParse[i])
					continue
				}
				surprises = append(surprises, fmt.Sprintf("%s\nthe schema: %v\nthe loader: %v", file, bySchema, byParse))
			}
		}
	}
	for _, s := range surprises[:min(len(surprises), 20)] {
		t.Error(s)
	}
	slices.Sort(exceptions)
	if diff := cmp.Diff(slices.Sorted(slices.Values(onlyParse)), slices.Compact(exceptions)); diff != "" {
		t.Errorf("exceptions that are none any more:\n%s", diff)
	}
	if tried < 900 {
		t.Errorf("only %d files", tried)
	}
}

// fileWith is a file of one peer that has the member, in the place of its own
// where it is of that name.
func fileWith(member string) string {
	const id, origins = `"id": "a"`, `"origins": ["https://a.example"]`
	switch {
	case strings.HasPrefix(member, `"id"`):
		return `{"peers": [{` + origins + `, ` + member + `}]}`
	case strings.HasPrefix(member, `"origins"`):
		return `{"peers": [{` + id + `, ` + member + `}]}`
	case strings.HasPrefix(member, `"version"`):
		return `{` + member + `, "peers": [{` + id + `, ` + origins + `}]}`
	}
	return `{"peers": [{` + id + `, ` + origins + `, ` + member + `}]}`
}
