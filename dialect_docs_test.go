package fedhttp

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestDialectDocs holds the tables of docs/dialects.md to those of the code.
func TestDialectDocs(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("docs/dialects.md")
	if err != nil {
		t.Fatal(err)
	}
	type row struct{ kind, status, says string }
	var rows []row
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| ([0-9, ]+|any) \\| .* \\| (policy|routing) \\|$").FindAllStringSubmatch(string(data), -1) {
		rows = append(rows, row{m[1], m[2], m[3]})
	}
	covers := func(r row, kind DialectKind, status int, want string) bool {
		_, says, _ := strings.Cut(want, "=")
		statuses := strings.Split(r.status, ", ")
		return r.kind == kind.String() && r.says == says && (r.status == "any" || slices.Contains(statuses, strconv.Itoa(status)))
	}
	for _, d := range dialectRows {
		if d.want != "" && d.kind != DialectProxyStatus && !slices.ContainsFunc(rows, func(r row) bool { return covers(r, d.kind, d.status, d.want) }) {
			t.Errorf("%v, status %d says %s, which is not in docs/dialects.md", d.kind, d.status, d.want)
		}
	}
	for _, r := range rows {
		for status := range strings.SplitSeq(r.status, ", ") {
			said := false
			for _, d := range dialectRows {
				said = said || (status == "any" || status == strconv.Itoa(d.status)) && covers(r, d.kind, d.status, d.want)
			}
			if !said {
				t.Errorf("docs/dialects.md: %v, status %s: no dialect says so", r, status)
			}
		}
	}

	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_…]+)` \\| (yes|no) \\| (policy|routing|dispatched|nothing)(.*) \\|$").FindAllStringSubmatch(string(data), -1) {
		documented[m[1]] = m[3]
		if flags := strings.Contains(m[4], "envoy: true"); flags != proxyErrors[m[1]].envoy {
			t.Errorf("%s: the exception for Envoy is %v in the code", m[1], !flags)
		}
		if only := m[2] == "yes"; only != proxyErrors[m[1]].onlyIntermediary {
			t.Errorf("%s: made by an intermediary only is %v in the code", m[1], !only)
		}
	}
	for kind, proves := range proxyErrors {
		if strings.HasPrefix(kind, "http_response_") {
			kind = "http_response_…"
		}
		want := map[proxyWord]string{wordRefused: "routing", wordDenied: "policy", wordDispatched: "dispatched", wordNothing: "nothing"}[proves.word]
		if documented[kind] != want {
			t.Errorf("%s: documented is %q, want %q", kind, documented[kind], want)
		}
	}
	for kind := range documented {
		if _, known := proxyErrors[kind]; !known && kind != "http_response_…" {
			t.Errorf("%s is documented, and no error type of the code", kind)
		}
	}
}
