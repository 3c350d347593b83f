package main

import (
	"slices"
	"strings"
	"testing"
)

const sample = `{"config":{"protocol_version":"v1.0.0"}}
{"progress":{"message":"Scanning"}}
{"osv":{"id":"GO-1"}}
{"finding":{"osv":"GO-1","fixed_version":"v1.2.0","trace":[{"module":"m.example/a","version":"v1.1.0"}]}}
{"finding":{"osv":"GO-1","fixed_version":"v1.2.0","trace":[{"module":"m.example/a","version":"v1.1.0","package":"m.example/a","function":"F"}]}}
{"finding":{"osv":"GO-1","fixed_version":"v1.2.0","trace":[{"module":"m.example/a","version":"v1.1.0","package":"m.example/a","function":"G"}]}}
{"finding":{"osv":"GO-2","fixed_version":"v1.26.9","trace":[{"module":"stdlib","version":"v1.26.8","function":"Parse"}]}}
`

func TestReached(t *testing.T) {
	got, err := reached(strings.NewReader(sample))
	want := []finding{{"GO-1", "m.example/a", "v1.1.0", "v1.2.0"}, {"GO-2", stdlib, "v1.26.8", "v1.26.9"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("reached: %v, %v, want %v", got, err, want)
	}
	if _, err := reached(strings.NewReader("no JSON")); err == nil {
		t.Error("output that is no JSON was taken for no vulnerability")
	}
}

func TestReport(t *testing.T) {
	found, err := reached(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if failing := report(&out, ".", found); failing != 1 {
		t.Errorf("%d findings fail, want the one of a dependency:\n%s", failing, out.String())
	}
	for _, id := range []string{"GO-1", "GO-2"} {
		if !strings.Contains(out.String(), id) {
			t.Errorf("%s is not reported:\n%s", id, out.String())
		}
	}
}
