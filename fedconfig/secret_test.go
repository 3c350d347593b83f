package fedconfig_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// TestSecretsByName: what is said of a value with a reference names the variable,
// and all else is said as it would be without one.
func TestSecretsByName(t *testing.T) {
	for name, value := range map[string]string{
		"LONG": strings.Repeat("s3cr3t", 60), "ORG": "org-b", "O": "o", "MAX": "3", "LOW": "200", "MINUS": "-7", "WAIT": "17m", "KIND": "kong",
		"GOOD": "policy", "SITE": "s3cr3t.example", "PORT": "8443", "FTP": "ftp", "PATH1": "/v1/", "BAD": "/{s3cr3t", "TWO": "2", "BLANK": "a b", "DEGRADED": "x-federation-degraded", "EMPTY": "",
	} {
		t.Setenv(name, value)
	}
	const a = "peers:\n- id: a\n  origins: [https://a.example]\n"
	for content, want := range map[string][]string{
		"peers:\n- id: ${LONG}\n  origins: [https://a/x, ftp://b]\n  hold: {max_wait: -1s}\n": {
			`2:7: peers[0].id: want 1 to 256 bytes of printable ASCII`,
			`3:13: peers[0].origins[0]: has more than scheme, host and port; want scheme://host or scheme://host:port`,
			`3:26: peers[0].origins[1]: scheme "ftp" is not http or https; want scheme://host or scheme://host:port`,
			`4:20: peers[0].hold.max_wait: -1s is negative; want a positive one, or none for the default`,
		},
		a + `  hold: {max: "${MAX}", max_wait: -3s}` + "\n" + `  signals: {failure_statuses: [333, "${LOW}"]}`: {
			`4:35: peers[0].hold.max_wait: -3s is negative; want a positive one, or none for the default`,
			`5:32: peers[0].signals.failure_statuses[0]: 333 is not from 400 to 599`,
			`5:37: peers[0].signals.failure_statuses[1]: "${LOW}" is not from 400 to 599`,
		},
		a + "- id: ${O}\n  origins: [http://no.example, 'http://n${O}.example', '${FTP}://${O}']": {
			`5:13: peers[1].origins[0]: http://no.example is plain http beyond loopback; use https or set allow_plaintext`,
			`5:32: peers[1].origins[1]: "http://n${O}.example" is plain http beyond loopback; use https or set allow_plaintext`,
			`5:56: peers[1].origins[2]: what "${FTP}://${O}" stands for is not usable; want scheme://host or scheme://host:port`,
		},
		a + `  signals: {correlation_prefixes: {"": routing, "a ": routing, b: "${GOOD}"}}`: {
			`4:40: peers[0].signals.correlation_prefixes[""]: an empty prefix would fit every id`,
			`4:55: peers[0].signals.correlation_prefixes["a "]: the prefix has a comma or outer blanks, which no id has`,
		},
		"peers:\n- {id: a, origins: ['https://${SITE}:${PORT}']}\n- {id: '${O}', origins: ['https://${SITE}:${PORT}/', 'https://S3CR3T.example:8443', https://o.example]}\n- {id: c, origins: [https://o.example]}\n- {id: '${O}', origins: [https://d.example]}\n": {
			`3:26: peers[1].origins[0]: "https://${SITE}:${PORT}/" is claimed by peer "a" too`,
			`3:54: peers[1].origins[1]: https://s3cr3t.example:8443 is claimed by peer "a" too`,
			`4:21: peers[2].origins[0]: https://o.example is claimed by peer "${O}" too`,
			`5:8: peers[3].id: is that of peers[1] (line 3) too`,
		},
		a + "  routes: [{pattern: '${PATH1}'}, {pattern: /v1/}, {pattern: POST x}, {pattern: '${BAD}'}, {pattern: '${PATH1}'}]": {
			`4:45: peers[0].routes[1].pattern: "/v1/" conflicts with peers[0].routes[0].pattern (line 4): ...`,
			`4:62: peers[0].routes[2].pattern: "POST x" is not usable: its path does not begin with /; want [METHOD ]/path, without a host`,
			`4:81: peers[0].routes[3].pattern: what "${BAD}" stands for is not usable; want [METHOD ]/path, without a host`,
			`4:102: peers[0].routes[4].pattern: "${PATH1}" conflicts with peers[0].routes[0].pattern (line 4): ...`,
		},
		a + "  routes: [{pattern: '/{b}/x'}, {pattern: '/x/{b}', task: {scope: x}}]": {
			`4:43: peers[0].routes[1].pattern: "/x/{b}" conflicts with peers[0].routes[0].pattern (line 4): /x/{b} and /{b}/x both match some paths, like "/x/x". But neither is more specific than the other. /x/{b} matches "/x/b", but /{b}/x doesn't. /{b}/x matches "/b/x", but /x/{b} doesn't.`,
		},
		a + `  retry: {min_backoff: 20m, max_backoff: "${WAIT}", max_attempts: "${MINUS}", budget_ratio: "${MINUS}"}`: {
			`4:24: peers[0].retry.min_backoff: 20m0s is longer than max_backoff, "${WAIT}"`,
			`4:67: peers[0].retry.max_attempts: "${MINUS}" is negative; 1 resends nothing`,
			`4:93: peers[0].retry.budget_ratio: "${MINUS}" is no rate; want a finite number, not negative`,
		},
		a + `  retry: {max_backoff: 1ms, max_attempts: "${TWO}"}`: {
			`4:10: peers[0].retry.min_backoff: 100ms is longer than max_backoff, 1ms`,
		},
		a + `  denial: {budget: "${MINUS}", window: "-${WAIT}"}`: {
			`4:20: peers[0].denial.budget: "${MINUS}" is not from 0 to 1048576`,
			`4:40: peers[0].denial.window: "-${WAIT}" is negative; want a positive one, or none for the default`,
		},
		a + `  signals: {policy_evaluated: "${BLANK}", receipt: "x y", dialects: [{kind: "${KIND}"}, {kind: kong}, {kind: "${KIND}", hops: [{name: "${EMPTY}"}]}]}`: {
			`4:31: peers[0].signals.policy_evaluated: "${BLANK}" is no header name`,
			`4:52: peers[0].signals.receipt: "x y" is no header name`,
			`4:96: peers[0].signals.dialects[1].kind: kong is there twice; name all hops in one`,
			`4:110: peers[0].signals.dialects[2].kind: "${KIND}" is there twice; name all hops in one`,
			`4:135: peers[0].signals.dialects[2].hops[0].name: is empty; want the name of the hop`,
		},
		a + `  signals: {policy_evaluated: X-A, degraded: x-a, policy_reason: "${DEGRADED}", receipt: "${DEGRADED}"}`: {
			`4:46: peers[0].signals.degraded: "X-A" is the header of peers[0].signals.policy_evaluated (line 4) too`,
			`4:90: peers[0].signals.receipt: "${DEGRADED}" is the header of peers[0].signals.policy_reason (line 4) too`,
		},
		a + `  signals: {policy_reason: "${DEGRADED}"}`: {
			`4:28: peers[0].signals.policy_reason: "${DEGRADED}" is the header of peers[0].signals.degraded (line 4) too`,
		},
		`version: "${MAX}"` + "\n" + a: {
			`1:10: version: "${MAX}" is not known; want 1`,
		},
		"version: 3\n" + a: {
			`1:10: version: 3 is not known; want 1`,
		},
	} {
		if diff := cmp.Diff(want, faultsOf(t, "p.yaml", content)); diff != "" {
			t.Errorf("%s\n-want +got\n%s", content, diff)
		}
	}
}

// TestLongKey: the place of a prefix is found however long and odd it is.
func TestLongKey(t *testing.T) {
	t.Parallel()
	key := strings.Repeat("k]", 500)
	content := `{"peers": [{"id": "a", "origins": ["https://a"], "signals": {"correlation_prefixes": {"` + key + `": "policy", "` + key + `,": "routing", "\"].é,": "policy"}}}]}`
	got := faultsOf(t, "p.json", content)
	column := func(value string, of func(string, string) int) string {
		return fmt.Sprintf("1:%d: ", 1+utf8.RuneCountInString(content[:of(content, value)]))
	}
	if len(got) != 2 || !strings.HasPrefix(got[0], column(`"routing"`, strings.Index)) || !strings.HasPrefix(got[1], column(`"policy"`, strings.LastIndex)) {
		t.Errorf("%q", got)
	}
}

// TestReferencesBounded: a small file cannot become a large one, be it by what it
// refers to or by aliases of what must be copied for its dollars.
func TestReferencesBounded(t *testing.T) {
	t.Setenv("MEG", strings.Repeat("m", 100_000))
	t.Setenv("SOME", strings.Repeat("m", 1000))
	list := func(n int, of string) string {
		return "peers:\n- id: a\n  origins: [https://a.example]\n  routes:\n  - {pattern: /, task: {id: " + strings.Repeat("x", 2000) + "}}\n" + strings.Repeat("  - {pattern: /, task: {id: "+of+"}}\n", n)
	}
	const large = "makes the values with a dollar more than 1048576 bytes in all; want less"
	for name, test := range map[string]struct{ content, want string }{
		"many references":        {list(5_000, `"${MEG}"`), "16:29: peers[0].routes[11].task.id: " + large},
		"many references in one": {list(1, `"`+strings.Repeat("${MEG}", 50_000)+`"`), "6:29: peers[0].routes[1].task.id: " + large},
		"aliases of a dollar":    {strings.Replace(list(5_000, `*x`), "id: xx", "id: &x $$", 1), "529:29: peers[0].routes[524].task.id: " + large},
	} {
		if got := faultsOf(t, "p.yaml", test.content); len(got) != 1 || got[0] != test.want {
			t.Errorf("%s: %d faults: %.300q", name, len(got), got)
		}
	}
	var terms strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&terms, "k%d: '${SOME}', ", i)
	}
	if got := faultsOf(t, "p.yaml", "peers: [{id: a, origins: [https://a.example], default_terms: {"+terms.String()+"}}]"); got != nil {
		t.Errorf("1,000 times 1,000 bytes: %.300q", got)
	}
}
