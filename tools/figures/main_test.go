package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

const good = `{
 "boundary": {
  "naive":   {"tasks":200,"policy_evaluations":480,"denials":480,"max_sends_per_denied_task":4,"refused_locally":0,"recovered":0,"anchor_refreshes":0,"escalations":0,"quarantined":true},
  "fedhttp": {"tasks":200,"policy_evaluations":86,"denials":6,"max_sends_per_denied_task":1,"refused_locally":114,"recovered":80,"anchor_refreshes":1,"escalations":0,"quarantined":false}
 },
 "preflight": {
  "naive":   {"tasks":1140,"sends":1299,"sent_before_agreement":1140,"wrong_policy":1087,"right_policy":0,"pending":0,"coordinator_signals":0},
  "fedhttp": {"tasks":1140,"sends":1087,"sent_before_agreement":0,"wrong_policy":0,"right_policy":1087,"pending":53,"coordinator_signals":12}
 }
}
`

func TestCheckGood(t *testing.T) {
	t.Parallel()
	n, faults := check([]byte(good))
	if len(faults) > 0 {
		t.Fatal(errors.Join(faults...))
	}
	if n != len(figures) {
		t.Errorf("checked %d figures, want %d", n, len(figures))
	}
}

// TestFiguresNameFields holds that no figure is left unchecked because its
// path names no field.
func TestFiguresNameFields(t *testing.T) {
	t.Parallel()
	for _, f := range figures {
		i := strings.LastIndex(f.path, ".")
		if _, ok := shape[f.path[:i]][f.path[i+1:]]; !ok {
			t.Errorf("%s is no field of the report", f.path)
		}
	}
}

func TestCheckFaults(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, old, new, want string }{
		{"wrong figure", `"recovered":80`, `"recovered":79`, "boundary.fedhttp.recovered is 79, want 80"},
		{"too many denials", `"denials":6`, `"denials":121`, "boundary.fedhttp.denials is 121, want 1 to 120"},
		{"no denials", `"denials":6`, `"denials":0`, "boundary.fedhttp.denials is 0, want 1 to 120"},
		{"flag", `"quarantined":false`, `"quarantined":true`, "boundary.fedhttp.quarantined is 1, want 0"},
		{"naive is not quarantined", `"quarantined":true`, `"quarantined":false`, "boundary.naive.quarantined is 0, want 1"},
		{"missing", `"pending":53,`, ``, "preflight.fedhttp.pending is missing"},
		{"unknown", `"pending":53`, `"pending":53,"extra":1`, "preflight.fedhttp.extra is not expected"},
		{"unknown section", `"preflight": {`, `"other":1, "preflight": {`, "other is not expected"},
		{"unknown empty section", `"preflight": {`, `"other":{}, "preflight": {`, "other is not expected"},
		{"other case", `"pending":53`, `"Pending":53`, "preflight.fedhttp.Pending is not expected"},
		{"twice", `"pending":53`, `"pending":0,"pending":53`, `the key "pending" comes twice`},
		{"fraction", `"pending":53`, `"pending":53.0`, "preflight.fedhttp.pending: 53.0 is not an integer"},
		{"negative", `"escalations":0`, `"escalations":-1`, "-1 is not an integer of zero or more"},
		{"string", `"pending":53`, `"pending":"53"`, "preflight.fedhttp.pending: 53 is not a number"},
		{"null", `"pending":53`, `"pending":null`, "preflight.fedhttp.pending: <nil> is not a number"},
		{"number for a flag", `"quarantined":false`, `"quarantined":0`, "0 is neither true nor false"},
		{"array", `"pending":53`, `"pending":[53]`, "[ where an object was expected"},
		{"before", "{\n", "progress\n{\n", "standard output is not one JSON object"},
		{"truncated", "}\n}\n", "}\n", "standard output is not one JSON object"},
		{"after", "}\n}\n", "}\n}\ndone\n", "goes on after the JSON object"},
		{"two objects", "}\n}\n", "}\n}\n{}\n", "goes on after the JSON object"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			report := strings.Replace(good, tt.old, tt.new, 1)
			if report == good {
				t.Fatalf("%s is not in the report", tt.old)
			}
			_, faults := check([]byte(report))
			if got := fmt.Sprint(errors.Join(faults...)); !strings.Contains(got, tt.want) {
				t.Errorf("faults are\n%s\nwant one with\n%s", got, tt.want)
			}
		})
	}
	for _, empty := range []string{"", "\n", "{}", "null", "[]", "7"} {
		if _, faults := check([]byte(empty)); len(faults) == 0 {
			t.Errorf("%q has no fault", empty)
		}
	}
}
