package fedconfig_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fedhttp/fedhttp/fedconfig"
)

// faultsOf returns the faults as "line:column: field: problem".
func faultsOf(t *testing.T, name, content string) []string {
	t.Helper()
	peers, err := fedconfig.Parse(name, []byte(content))
	if err == nil {
		return nil
	}
	var faults *fedconfig.Error
	if !errors.As(err, &faults) || peers != nil {
		t.Fatalf("want an *Error and no peers; got %v, %v", peers, err)
	}
	var lines []string
	for line := range strings.Lines(err.Error()) {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), name+":")
		if !ok {
			t.Errorf("%q does not begin with the file's name", line)
		}
		lines = append(lines, rest)
	}
	if len(lines) != len(faults.Faults) {
		t.Errorf("%d lines for %d faults", len(lines), len(faults.Faults))
	}
	return lines
}

const manyFaults = `version: 2
peers:
  - id: org-b
    origins: [https://b.example, "http://c.example:80", "ftp://x", "https://u:hunter2@x"]
    require_tsk: yes
    require_task: yes
    require_anchor: true
    receipt: requir
    propagation: 3
    retry:
      max_attempts: -1
      max_attempts: 4
      min_backoff: 10s
      max_backoff: 5s
      budget_ratio: .inf
      attempt_timeout: 150
      min_refresh_interval: 0s
    breaker: {failures: 1.5, open_for: -3s, trials: 99999999999999999999}
    hold:
    denial: [budget, 5]
    signals:
      policy_evaluated: "bad header"
      degraded: ""
      correlation_prefixes: {"": policy, "r,": routing, pe-: polcy, x: unknown}
      failure_statuses: [403, 200, 200, "x", 0x1F]
      dialects:
        - {kind: kong, hops: [{name: ""}, {}, {name: a, envoy: true}]}
        - {kind: kong}
        - {kind: kongo}
        - {hops: a}
    routes:
      - pattern: "GET /a/{x"
        task: {obligations: {a: b, c: 3, 4: x, a: c}}
      - task: {capability: q, policy_deadline: 2026-01-01}
  - id: org-b
    origins: [HTTPS://B.example.:443/, "https://d.example"]
    default_terms: {a: [1], "${X}": y}
    routes:
      - {pattern: /a}
      - {pattern: /a, host: b.example}
  - 7
  - {}
`

// TestManyFaults: one error with all of it.
func TestManyFaults(t *testing.T) {
	t.Parallel()
	want := []string{
		`1:10: version: 2 is not known; want 1`,
		`4:34: peers[0].origins[1]: http://c.example is plain http beyond loopback; use https or set allow_plaintext`,
		`4:57: peers[0].origins[2]: scheme "ftp" is not http or https; want scheme://host or scheme://host:port`,
		`4:68: peers[0].origins[3]: has more than scheme, host and port; want scheme://host or scheme://host:port`,
		`5:5: peers[0]: unknown key "require_tsk"; did you mean require_task?`,
		`6:19: peers[0].require_task: "yes" does not fit; want true or false`,
		`8:14: peers[0].receipt: "requir" is not known; did you mean require? want one of verify, require, ignore`,
		`9:18: peers[0].propagation: 3 does not fit; want one of trace_context, all, none`,
		`11:21: peers[0].retry.max_attempts: -1 is negative; 1 resends nothing`,
		`12:7: peers[0].retry: key "max_attempts" is there twice, first on line 11; want it once`,
		`13:20: peers[0].retry.min_backoff: 10s is longer than max_backoff, 5s`,
		`15:21: peers[0].retry.budget_ratio: .inf does not fit; want a number such as 0.1`,
		`16:24: peers[0].retry.attempt_timeout: 150 has no unit; want a duration such as 150ms, 30s or 1h30m`,
		`17:29: peers[0].retry.min_refresh_interval: would mean the default, 1s; want another value, or the key left out`,
		`18:25: peers[0].breaker.failures: 1.5 does not fit; want a whole number`,
		`18:40: peers[0].breaker.open_for: -3s is negative; want a positive one, or none for the default`,
		`18:53: peers[0].breaker.trials: 99999999999999999999 does not fit; want a whole number`,
		`19:5: peers[0].hold: has no value; want a mapping of max, max_wait, release_rate, or the key left out for the default`,
		`20:13: peers[0].denial: is a list; want a mapping of hold_off, budget, window`,
		`22:25: peers[0].signals.policy_evaluated: "bad header" is no header name`,
		`23:17: peers[0].signals.degraded: would mean the default, X-Federation-Degraded; want another value, or the key left out`,
		`24:34: peers[0].signals.correlation_prefixes[""]: an empty prefix would fit every id`,
		`24:48: peers[0].signals.correlation_prefixes["r,"]: the prefix has a comma or outer blanks, which no id has`,
		`24:62: peers[0].signals.correlation_prefixes["pe-"]: "polcy" is not known; did you mean policy? want one of policy, routing`,
		`24:72: peers[0].signals.correlation_prefixes["x"]: "unknown" does not fit; want one of policy, routing`,
		`25:31: peers[0].signals.failure_statuses[1]: 200 is not from 400 to 599`,
		`25:36: peers[0].signals.failure_statuses[2]: 200 is not from 400 to 599`,
		`25:41: peers[0].signals.failure_statuses[3]: "x" does not fit; want a whole number`,
		`25:46: peers[0].signals.failure_statuses[4]: 0x1F does not fit; want a whole number`,
		`27:38: peers[0].signals.dialects[0].hops[0].name: is empty; want the name of the hop`,
		`27:43: peers[0].signals.dialects[0].hops[1].name: is missing; want the name of a hop`,
		`27:47: peers[0].signals.dialects[0].hops[2]: envoy and policy are for proxy-status only`,
		`28:18: peers[0].signals.dialects[1].kind: kong is there twice; name all hops in one`,
		`29:18: peers[0].signals.dialects[2].kind: "kongo" is not known; did you mean kong? want one of proxy-status, bearer, problem, http, envoy, istio, linkerd, kong, aws-apigateway, cloudflare, nginx, dsp`,
		`30:11: peers[0].signals.dialects[3].kind: is missing; want one of proxy-status, bearer, problem, http, envoy, istio, linkerd, kong, aws-apigateway, cloudflare, nginx, dsp`,
		`30:18: peers[0].signals.dialects[3].hops: is text; want a list`,
		`32:18: peers[0].routes[0].pattern: "GET /a/{x" is not usable: parsing "GET /a/{x": at offset 7: bad wildcard segment (must end with '}'); want [METHOD ]/path, without a host`,
		`33:15: peers[0].routes[0].task.capability: is empty, and obligations need one`,
		`33:39: peers[0].routes[0].task.obligations["c"]: 3 is a number; want text: put it in quotes`,
		`33:42: peers[0].routes[0].task.obligations: key is a number; want text: put it in quotes`,
		`33:48: peers[0].routes[0].task.obligations: key "a" is there twice, first on line 33; want it once`,
		`34:9: peers[0].routes[1].pattern: is missing; want a pattern such as "POST /v1/tasks/{id}"`,
		`34:48: peers[0].routes[1].task.policy_deadline: "2026-01-01" does not fit; want a time such as 2027-01-31T12:00:00Z (RFC 3339)`,
		`35:9: peers[1].id: is that of peers[0] (line 3) too`,
		`36:15: peers[1].origins[0]: https://b.example is claimed by peer "org-b" too`,
		`37:24: peers[1].default_terms["a"]: is a list; want text`,
		`37:29: peers[1].default_terms: key "${X}" has a reference; want references in values only`,
		`40:19: peers[1].routes[1].pattern: "/a" conflicts with peers[1].routes[0].pattern (line 39): /a matches the same requests as /a`,
		`40:23: peers[1].routes[1]: unknown key "host"; want one of pattern, task`,
		`41:5: peers[2]: is a number; want a mapping of id, origins, default_terms, routes, require_task, signals, retry, breaker, hold, denial, receipt, propagation, allow_plaintext, require_anchor`,
		`42:5: peers[3].id: is missing; want a name such as org-b`,
		`42:5: peers[3].origins: is missing; want a list of origins such as https://registry.b.example`,
	}
	for range 20 { // no Go map decides on the order
		if diff := cmp.Diff(want, faultsOf(t, "peers.yaml", manyFaults)); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	const ok = "{id: b, origins: [https://b.example]}"
	for name, test := range map[string]struct {
		file, content string
		want          []string
	}{
		"empty":     {"p.yaml", "", []string{"1:1: is empty; want peers"}},
		"null":      {"p.yaml", "null", []string{"1:1: is empty; want peers"}},
		"JSON null": {"p.json", "\nnull", []string{"1:1: is empty; want peers"}},
		"misplaced keys": {"p.yaml", "peers:\n- id: a\n  origins: [https://a.example]\n  max_atempts: 1\n  policyEvaluated: x\n  routes: [{pattern: /, capability: c}]\n  hold: {receipt: verify}", []string{
			`4:3: peers[0]: unknown key "max_atempts"; did you mean retry.max_attempts?`,
			`5:3: peers[0]: unknown key "policyEvaluated"; did you mean signals.policy_evaluated?`,
			`6:25: peers[0].routes[0]: unknown key "capability"; did you mean task.capability?`,
			`7:10: peers[0].hold: unknown key "receipt"; want one of max, max_wait, release_rate`,
		}},
		"blank JSON":        {"p.json", " \n", []string{"1:1: is empty; want peers"}},
		"comment":           {"p.yaml", "# none\n", []string{"1:1: is empty; want peers"}},
		"no peers key":      {"p.yaml", "version: 1\n", []string{"1:1: peers: is missing; want a list"}},
		"no peers":          {"p.yaml", "peers: []", []string{"1:8: peers: has no peer; want at least one"}},
		"peers null":        {"p.json", `{"peers": null}`, []string{"1:11: peers: has no value; want a list, or the key left out for the default"}},
		"not a mapping":     {"p.yaml", "- a\n", []string{"1:1: is a list; want a mapping of version, peers"}},
		"camel case":        {"p.yaml", "peers: [" + ok + "]\nPeers: []\n", []string{`2:1: unknown key "Peers"; did you mean peers?`}},
		"complex key":       {"p.yaml", "peers: [" + ok + "]\n? [a]\n: b\n", []string{"2:3: a list is no key; want one of version, peers"}},
		"two documents":     {"p.yaml", "peers: [" + ok + "]\n---\npeers: []\n", []string{"2:1: a second document; want one in a file"}},
		"two JSON values":   {"p.json", "{\"peers\": []}\n {}", []string{"2:2: invalid character '{' after top-level value; want JSON"}},
		"JSON comma":        {"p.json", "{\"peers\": [\n1,]}", []string{"2:3: invalid character ']' looking for beginning of value; want JSON"}},
		"JSON end":          {"p.json", "{\"peers\":\n[", []string{"2:2: unexpected end of JSON input; want JSON"}},
		"JSON types":        {"p.json", "{\"peers\": [{\"id\": 7,\n \"origins\": \"x\"}]}", []string{"1:19: peers[0].id: 7 is a number; want text: put it in quotes", "2:13: peers[0].origins: is text; want a list of origins such as https://registry.b.example"}},
		"JSON twice":        {"p.json", "{\"version\": 1,\n\"peers\": [],\n\"peers\": []}", []string{"2:10: peers: has no peer; want at least one", `3:1: key "peers" is there twice, first on line 2; want it once`}},
		"YAML as JSON":      {"p.json", "peers: []", []string{"1:1: invalid character 'p' looking for beginning of value; want JSON"}},
		"tab":               {"p.yaml", "peers:\n\t- id: b\n", []string{"2:1: found character that cannot start any token while scanning for the next token; want YAML; indent with spaces, not with tabs"}},
		"indentation":       {"p.yaml", "peers:\n  - id: b\n    origins: x\n   - y\n", []string{"4:4: did not find expected '-' indicator while parsing a block collection; want YAML"}},
		"bare reference":    {"p.yaml", "peers: [{id: ${B}}]\n", []string{"1:15: did not find expected ',' or '}' while parsing a flow mapping; want YAML; inside [ ] and { } put a reference in quotes"}},
		"behind the end":    {"p.yaml", "a: b\n0", []string{"2:1: could not find expected ':' while scanning a simple key; want YAML"}},
		"unclosed":          {"p.yaml", "peers: \"x\n", []string{"2:1: found unexpected end of stream while scanning a quoted scalar; want YAML"}},
		"NUL":               {"p.yaml", "peers:\n- \x00", []string{"2:3: control character U+0000; want printable text, or an escape in double quotes"}},
		"bidi":              {"p.yaml", "é\u202e", []string{"1:2: control character U+202E; want printable text, or an escape in double quotes"}},
		"UTF-16":            {"p.yaml", "\xff\xfep\x00", []string{"1:1: byte 0xFF is not UTF-8; want text in UTF-8"}},
		"tag":               {"p.yaml", "peers: [{id: !!str 7, origins: [!x https://b.example]}]", []string{`1:14: tag "!!str"; want no tags: put text in quotes, and leave other values as they are`, `1:33: tag "!x"; want no tags: put text in quotes, and leave other values as they are`}},
		"merge":             {"p.yaml", "peers:\n- &b " + ok + "\n- {<<: *b, id: c, origins: [https://c.example]}\n", []string{"3:4: merge key <<; want the keys written out, or an alias for a value as a whole"}},
		"no anchor":         {"p.yaml", "peers: *b\n", []string{"1:8: unknown anchor 'b' referenced; want YAML"}},
		"endless alias":     {"p.yaml", "peers: &p\n- *p\n", []string{"2:3: peers[0]: is a list; want a mapping of id, origins, default_terms, routes, require_task, signals, retry, breaker, hold, denial, receipt, propagation, allow_plaintext, require_anchor"}},
		"fault at an alias": {"p.yaml", "peers:\n- {id: a, origins: &o [https://b.example]}\n- {id: b, origins: *o}\n", []string{`2:24: peers[1].origins[0]: https://b.example is claimed by peer "a" too`}},
		"depth":             {"p.yaml", "peers: " + strings.Repeat("[", 100), []string{"1:72: more than 64 values inside each other; want YAML"}},
		"JSON depth":        {"p.json", strings.Repeat("[", 100) + strings.Repeat("]", 100), []string{"1:65: more than 64 values inside each other; want JSON"}},
		"size":              {"p.yaml", strings.Repeat("#", 1<<20+1), []string{"1:1: is larger than 1048576 bytes; split it, or write it shorter"}},
		"long key":          {"p.yaml", "peers: [" + ok + "]\n? " + strings.Repeat("k", 5000) + "\n: 1", []string{`2:3: unknown key "` + strings.Repeat("k", 128) + `..."; want one of version, peers`}},
		"boolean for text":  {"p.yaml", "peers:\n- id: b\n  origins: [https://b.example]\n  default_terms: {pii: false}", []string{`4:24: peers[0].default_terms["pii"]: false is true or false; want text: put it in quotes`}},
		"hidden in a key":   {"p.json", `{"peers": [], "a\u202e\nb": 1}`, []string{"1:11: peers: has no peer; want at least one", `1:15: unknown key "a\u202e\nb"; want one of version, peers`}},
		"octal":             {"p.yaml", "peers:\n- id: b\n  origins: [https://b.example]\n  hold: {max: 010, release_rate: 1_0}", []string{"4:15: peers[0].hold.max: 010 does not fit; want a whole number", "4:34: peers[0].hold.release_rate: 1_0 does not fit; want a number such as 0.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, faultsOf(t, test.file, test.content)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// TestAliases: what several peers have in common can be written once.
func TestAliases(t *testing.T) {
	t.Parallel()
	peers, err := fedconfig.Parse("p.yaml", []byte(`
peers:
- {id: a, origins: [https://a.example], retry: &r {max_attempts: 2}}
- {id: b, origins: [https://b.example], retry: *r}
`))
	if err != nil {
		t.Fatal(err)
	}
	if peers[0].Retry.MaxAttempts != 2 || peers[1].Retry != peers[0].Retry {
		t.Errorf("%+v", peers)
	}
}

// TestHuge: files that are made to cost, or to make us say much, are refused in
// few words.
func TestHuge(t *testing.T) {
	t.Parallel()
	var laughs strings.Builder
	laughs.WriteString("peers:\n- id: a\n  origins: &o [" + strings.Repeat("x,", 500) + "]\n  routes: &r [" + strings.Repeat("{pattern: x},", 500) + "]\n")
	for range 300 {
		laughs.WriteString("- {id: a, origins: *o, routes: *r}\n")
	}
	want := "4:1510: peers[66].routes[115]: more than 100000 values, aliases resolved; want fewer"
	if got := faultsOf(t, "p.yaml", laughs.String()); len(got) != 1 || got[0] != want {
		t.Errorf("laughs: %q", got)
	}
	for name, content := range map[string]string{
		"unknown keys": "peers: []\n" + strings.Repeat("k: 1\n", 20_000),
		"bad peers":    "peers: [" + strings.Repeat("7,", 20_000) + "]",
		"bad origins":  "peers: [{id: a, origins: [" + strings.Repeat("x,", 20_000) + "]}]",
		"bad statuses": "peers: [{id: a, origins: [https://a], signals: {failure_statuses: [" + strings.Repeat("1,", 20_000) + "]}}]",
		"bad prefixes": "peers: [{id: a, origins: [https://a], signals: {correlation_prefixes: {" + func() string {
			var b strings.Builder
			for i := range 5_000 {
				fmt.Fprintf(&b, "' %d': policy,", i)
			}
			return b.String()
		}() + "}}}]",
	} {
		got := faultsOf(t, "p.yaml", content)
		if len(got) != 1001 || !strings.HasSuffix(got[1000], "more than 1000 faults; the others are not listed") {
			t.Errorf("%s: %d faults, the last is %q", name, len(got), got[len(got)-1])
		}
	}
}

// TestReferences sets the environment, so it cannot be parallel.
func TestReferences(t *testing.T) {
	t.Setenv("FEDCONFIG_HOST", "b.example")
	t.Setenv("FEDCONFIG_NUMBER", "7")
	t.Setenv("FEDCONFIG_YES", "true")
	t.Setenv("FEDCONFIG_MODE", "require")
	t.Setenv("FEDCONFIG_WAIT", "5s")
	t.Setenv("FEDCONFIG_NESTED", "${FEDCONFIG_HOST}$$")
	peers, err := fedconfig.Parse("p.yaml", []byte(`
peers:
- id: a-${FEDCONFIG_NUMBER}-$$-$x
  origins: ["https://${FEDCONFIG_HOST}:844${FEDCONFIG_NUMBER}"]
  require_task: ${FEDCONFIG_YES}
  receipt: ${FEDCONFIG_MODE}
  hold: {max: "${FEDCONFIG_NUMBER}", max_wait: "${FEDCONFIG_WAIT}", release_rate: "${FEDCONFIG_NUMBER}.5"}
  default_terms: {a: "${FEDCONFIG_NESTED}", b: "$${FEDCONFIG_HOST}", "$$": "$"}
`))
	if err != nil {
		t.Fatal(err)
	}
	p := peers[0]
	got := fmt.Sprintln(p.ID, p.Origins, p.RequireTask, p.Receipt, p.Hold, p.DefaultTerms)
	const want = "a-7-$-$x [https://b.example:8447] true require {7 5s 7.5} map[$$:$ a:${FEDCONFIG_HOST}$$ b:${FEDCONFIG_HOST}]\n"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	t.Setenv("FEDCONFIG_LARGE", strings.Repeat("x", 600_000))
	bad := faultsOf(t, "p.yaml", `
peers:
- id: ${FEDCONFIG_UNSET}${FEDCONFIG_UNSET_TOO}
  origins: ["https://${FEDCONFIG HOST}", "https://${FEDCONFIG_HOST", "https://${}"]
  require_task: ${FEDCONFIG_NUMBER}
  default_terms: {a: "${FEDCONFIG_LARGE}"}
  signals: {policy_reason: "${FEDCONFIG_LARGE}", degraded: X-D, receipt: "${FEDCONFIG_LARGE}"}
`)
	if diff := cmp.Diff([]string{
		"3:7: peers[0].id: ${FEDCONFIG_UNSET_TOO} is not set in the environment",
		"3:7: peers[0].id: ${FEDCONFIG_UNSET} is not set in the environment",
		`4:13: peers[0].origins[0]: "${FEDCONFIG HOST" is no reference; want ${NAME} of letters, digits and underscores, or $$ for a dollar`,
		`4:42: peers[0].origins[1]: "${FEDCONFIG_HOST" is no reference; want ${NAME} of letters, digits and underscores, or $$ for a dollar`,
		`4:70: peers[0].origins[2]: "${" is no reference; want ${NAME} of letters, digits and underscores, or $$ for a dollar`,
		`5:17: peers[0].require_task: what "${FEDCONFIG_NUMBER}" stands for does not fit; want true or false`,
		`7:28: peers[0].signals.policy_reason: makes the values with a dollar more than 1048576 bytes in all; want less`,
	}, bad); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestSecrets: wherever a value from the environment stands and whatever it is,
// no fault repeats it.
func TestSecrets(t *testing.T) {
	scalar := regexp.MustCompile(`(?:[:,\[{] |\[)("[^"]*"|[^\s\[\]{},"]+)`)
	const twins = "peers: [{id: %[1]s, origins: [%[1]s, https://a.example], routes: [{pattern: %[1]s}]}, " +
		"{id: %[1]s, origins: [%[1]s, https://a.example], routes: [{pattern: %[1]s}, {pattern: /}]}, " +
		"{id: c, origins: [https://a.example], retry: {min_backoff: 1m, max_backoff: %[1]s}}]"
	faults := 0
	for _, secret := range []string{
		"hunter2", "HUNTER2", "a\nhunter2\"; want hunter2", "https://u:hunter2@b.example", "http://hunter2.example", "ftp://hunter2",
		"https://hunter2.example:99999", "/{hunter2", "GET /hunter2", "é hunter2", strings.Repeat("x", 300) + "hunter2", "-0x1hunter2", "17m17s", "",
		"http://HUNTER2.example.:80/",
	} {
		const reference = `"${FEDCONFIG_SECRET}"`
		t.Setenv("FEDCONFIG_SECRET", secret)
		files := []string{fmt.Sprintf(twins, reference), fmt.Sprintf(twins, `"x ${FEDCONFIG_SECRET} y"`)}
		for _, at := range scalar.FindAllStringSubmatchIndex(everything, -1) {
			files = append(files, everything[:at[2]]+reference+everything[at[3]:])
		}
		if len(files) < 40 {
			t.Fatalf("only %d places were found", len(files))
		}
		for _, file := range files {
			for _, line := range faultsOf(t, "p.yaml", file) {
				faults++
				if lower := strings.ToLower(line); strings.Contains(lower, "hunter2") || strings.Contains(lower, "17m") {
					t.Errorf("%q: %s", secret, line)
				}
			}
		}
	}
	if faults < 100 {
		t.Errorf("only %d faults: this test has lost its object", faults)
	}
}
