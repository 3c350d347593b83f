package observability

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	tableRow     = regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| `([a-z_]+)` .*\\| ([^|]+) \\|$")
	alertHeading = regexp.MustCompile(`(?m)^### (Fedhttp\w+) \((\w+)\)$`)
	alertName    = regexp.MustCompile(`\bFedhttp[A-Z]\w+`)
	quoted       = regexp.MustCompile("`([a-z_]+)`")
)

// TestReadme checks the page that people read against what the machines read.
func TestReadme(t *testing.T) {
	t.Parallel()
	e := exported(t)
	file, err := os.ReadFile(filepath.Join(docs, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(file)
	for _, name := range names.FindAllString(text, -1) {
		if !e.known(name) {
			t.Errorf("there is no metric %s", name)
		}
	}

	described := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(text, -1) {
		family := row[2]
		described[family] = true
		if !strings.HasPrefix(family, strings.ReplaceAll(row[1], ".", "_")) {
			t.Errorf("%s does not come of %s", family, row[1])
		}
		want := map[string]bool{}
		for _, label := range quoted.FindAllStringSubmatch(row[3], -1) {
			want[label[1]] = true
		}
		if strings.HasPrefix(row[3], "peer") {
			want[peerLabel] = true
		}
		if len(e.families[family]) == 0 {
			t.Errorf("there is no metric %s", family)
			continue
		}
		got := e.metrics[e.families[family][0]].labels
		for label := range want {
			if got[label] == nil {
				t.Errorf("%s has no label %s", family, label)
			}
		}
		for label := range got {
			if !want[label] && label != "le" && !strings.HasPrefix(label, "otel_scope_") {
				t.Errorf("%s has a label %s, which the table lacks", family, label)
			}
		}
	}
	for family := range e.families {
		if !described[family] {
			t.Errorf("the table lacks %s", family)
		}
	}

	severities := map[string]string{}
	for _, heading := range alertHeading.FindAllStringSubmatch(text, -1) {
		severities[heading[1]] = heading[2]
	}
	var alerts []string
	for _, rule := range readRules(t) {
		alerts = append(alerts, rule.Alert)
		if got, want := severities[rule.Alert], rule.Labels["severity"]; got != want {
			t.Errorf("%s is described as %q, and is %q", rule.Alert, got, want)
		}
	}
	for _, name := range alertName.FindAllString(text, -1) {
		if !slices.Contains(alerts, name) {
			t.Errorf("there is no alert %s", name)
		}
	}
}
