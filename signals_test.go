package fedhttp

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

func compiled(t *testing.T, s Signals) signalTable {
	t.Helper()
	return s.compile(func(field, format string, args ...any) {
		t.Errorf("fault in %s: "+format, append([]any{field}, args...)...)
	})
}

func repeat(value string, n int) []string { return slices.Repeat([]string{value}, n) }

var (
	issuedOurs = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	readAt     = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
)

// TestReadSignals reads headers as a peer may send them. Evidence is what it
// adds up to, "" for none.
func TestReadSignals(t *testing.T) {
	t.Parallel()
	prefixes := Signals{CorrelationPrefixes: map[string]Layer{"pe-": LayerPolicy, "rt-": LayerRouting}}
	const newer, newest, older = "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", "2025-01-01T00:00:00Z"
	for _, test := range []struct {
		name   string
		header string
		values []string
		want   string
	}{
		{"true", headerPolicyEvaluated, []string{"true"}, "header=policy"},
		{"false", headerPolicyEvaluated, []string{"false"}, "header=routing"},
		{"letter case", headerPolicyEvaluated, []string{"tRuE"}, "header=policy"},
		{"blanks around", headerPolicyEvaluated, []string{" \ttrue "}, "header=policy"},
		{"empty", headerPolicyEvaluated, []string{""}, "header=contradiction"},
		{"another word", headerPolicyEvaluated, []string{"yes"}, "header=contradiction"},
		{"a parameter", headerPolicyEvaluated, []string{"true;engine=2"}, "header=contradiction"},
		{"not UTF-8", headerPolicyEvaluated, []string{"tru\xff"}, "header=contradiction"},
		{"look-alike letters", headerPolicyEvaluated, []string{"ｔｒｕｅ"}, "header=contradiction"},
		{"folded letters", headerPolicyEvaluated, []string{"falſe"}, "header=contradiction"},
		{"a NUL", headerPolicyEvaluated, []string{"true\x00"}, "header=contradiction"},
		{"huge", headerPolicyEvaluated, []string{strings.Repeat("true", 1<<18)}, "header=contradiction"},
		{"equal twice", headerPolicyEvaluated, []string{"false", "FALSE"}, "header=routing"},
		{"different twice", headerPolicyEvaluated, []string{"false", "true"}, "header=contradiction"},
		{"good, then bad", headerPolicyEvaluated, []string{"true", "?"}, "header=contradiction"},
		{"bad, then good", headerPolicyEvaluated, []string{"?", "true"}, "header=contradiction"},
		{"combined, equal", headerPolicyEvaluated, []string{"true,true ,\tTrue"}, "header=policy"},
		{"combined, different", headerPolicyEvaluated, []string{"true, false"}, "header=contradiction"},
		{"100 that differ", headerPolicyEvaluated, append(repeat("true", 99), "false"), "header=contradiction"},
		{"100 that are equal", headerPolicyEvaluated, repeat("false", 100), "header=contradiction"},
		{"100 that are equal, combined", headerPolicyEvaluated, []string{strings.Join(repeat("true", 100), ",")}, "header=contradiction"},

		{"policy prefix", headerCorrelationID, []string{"pe-1"}, "correlation_prefix=policy"},
		{"routing prefix", headerFederationCorrelationID, []string{"rt-1"}, "correlation_prefix=routing"},
		{"no prefix", headerCorrelationID, []string{"1"}, ""},
		{"prefix of another letter case", headerCorrelationID, []string{"PE-1"}, ""},
		{"prefix inside", headerCorrelationID, []string{"x-pe-1"}, ""},
		{"prefix alone", headerCorrelationID, []string{"pe-"}, "correlation_prefix=policy"},
		{"part of a prefix", headerCorrelationID, []string{"pe"}, ""},
		{"two of one layer", headerCorrelationID, []string{"rt-1", "rt-2"}, "correlation_prefix=routing"},
		{"of both layers", headerCorrelationID, []string{"rt-1", "pe-2"}, "correlation_prefix=policy correlation_prefix=routing"},
		{"of both layers, combined", headerCorrelationID, []string{"rt-1, pe-2"}, "correlation_prefix=policy correlation_prefix=routing"},
		{"an unknown one beside", headerCorrelationID, []string{"zz", "rt-1"}, "correlation_prefix=routing"},
		{"100 ids", headerCorrelationID, repeat("rt-1", 100), "correlation_prefix=contradiction correlation_prefix=routing"},
		{"a huge id", headerCorrelationID, []string{"pe-" + strings.Repeat("\xff", 1<<20)}, "correlation_prefix=policy"},

		{"newer", headerAnchorIssuedAt, []string{newer}, "anchor_issued_at=routing"},
		{"older", headerAnchorIssuedAt, []string{older}, ""},
		{"ours", headerAnchorIssuedAt, []string{"2026-01-01T00:00:00Z"}, ""},
		{"ours, in another zone", headerAnchorIssuedAt, []string{"2026-01-01T02:00:00+02:00"}, ""},
		{"newer by a nanosecond", headerAnchorIssuedAt, []string{"2026-01-01T00:00:00.000000001Z"}, "anchor_issued_at=routing"},
		{"within the tolerance", headerAnchorIssuedAt, []string{readAt.Add(time.Minute).Format(time.RFC3339)}, "anchor_issued_at=routing"},
		{"of the future", headerAnchorIssuedAt, []string{readAt.Add(time.Minute + time.Second).Format(time.RFC3339)}, ""},
		{"no time", headerAnchorIssuedAt, []string{"soon"}, ""},
		{"an empty time", headerAnchorIssuedAt, []string{""}, ""},
		{"a huge time", headerAnchorIssuedAt, []string{strings.Repeat("9", 1<<20)}, ""},
		{"milliseconds", headerAnchorIssuedAt, []string{"1769904000000"}, ""},
		{"equal times", headerAnchorIssuedAt, []string{newer, "Sun, 01 Feb 2026 00:00:00 GMT", "1769904000"}, "anchor_issued_at=routing"},
		{"different times", headerAnchorIssuedAt, []string{newer, newest}, "anchor_issued_at=contradiction"},
		{"100 that differ in the last", headerAnchorIssuedAt, append(repeat(newer, 99), newest), "anchor_issued_at=contradiction"},
	} {
		t.Run(test.header+"/"+test.name, func(t *testing.T) {
			t.Parallel()
			table := compiled(t, prefixes)
			r := table.read(http.Header{test.header: test.values}, 403, issuedOurs, readAt)
			var got []string
			for _, e := range r.evidence {
				got = append(got, e.String())
			}
			slices.Sort(got)
			if text := strings.Join(got, " "); text != test.want {
				t.Errorf("evidence %q, want %q", text, test.want)
			}
			if stale := test.want == "anchor_issued_at=routing"; r.staleAnchor != stale {
				t.Errorf("staleAnchor is %v, want %v", r.staleAnchor, stale)
			}
		})
	}
}

// TestReadSignalsInAnyOrder: intermediaries may reorder repeated headers, so
// what they add up to must not depend on it.
func TestReadSignalsInAnyOrder(t *testing.T) {
	t.Parallel()
	table := compiled(t, Signals{CorrelationPrefixes: map[string]Layer{"pe-": LayerPolicy, "rt-": LayerRouting}})
	for header, pool := range map[string][]string{
		headerPolicyEvaluated: {"true", "false", "maybe", "true, false", ""},
		headerCorrelationID:   {"pe-1", "rt-1", "other", ""},
		headerAnchorIssuedAt:  {"2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z", "2025-01-01T00:00:00Z", "soon", "2999-01-01T00:00:00Z"},
	} {
	orders:
		for _, a := range pool {
			for _, b := range pool {
				for _, c := range pool {
					verdict := func(values ...string) string {
						r := table.read(http.Header{header: values}, 403, issuedOurs, readAt)
						v, reason := classify(facts{status: 403, failureStatus: true, evidence: r.evidence})
						return v.String() + " " + reason.String()
					}
					if x, y, z := verdict(a, b, c), verdict(c, b, a), verdict(b, a, c); x != y || y != z {
						t.Errorf("%s: %q %q %q is %q, %q or %q, by the order", header, a, b, c, x, y, z)
						break orders // the first says enough
					}
				}
			}
		}
	}
}

func TestReadDegraded(t *testing.T) {
	t.Parallel()
	table := compiled(t, Signals{})
	for text, want := range map[string]bool{
		"true": true, "TRUE": true, "false": false, "": false, "1": false, "true.": false,
		"true, true": true, "false, true": true,
	} {
		if got := table.read(http.Header{headerDegraded: {text}}, 403, issuedOurs, readAt).degraded; got != want {
			t.Errorf("%s: %q reads as %v, want %v", headerDegraded, text, got, want)
		}
	}
	if !table.read(http.Header{headerDegraded: {"false", "true"}}, 403, issuedOurs, readAt).degraded {
		t.Error("degraded, said once, is not read where it was denied before")
	}
}

// TestReadSignalsBounded: what one response may cost does not depend on how
// much of it there is.
func TestReadSignalsBounded(t *testing.T) {
	t.Parallel()
	table := compiled(t, Signals{CorrelationPrefixes: map[string]Layer{"pe-": LayerPolicy, "rt-": LayerRouting}})
	h := http.Header{}
	for _, name := range []string{headerPolicyEvaluated, headerCorrelationID, headerFederationCorrelationID, headerAnchorIssuedAt} {
		for _, value := range []string{"true", "false", "pe-1", "rt-1", "2026-02-01T00:00:00Z", "x"} {
			h[name] = append(h[name], repeat(value, 100)...)
		}
	}
	r := table.read(h, 403, issuedOurs, readAt)
	if len(r.evidence) > 8 {
		t.Errorf("%d pieces of evidence, want 8 at most: %v", len(r.evidence), r.evidence)
	}
	if v, reason := classify(facts{status: 403, failureStatus: true, evidence: r.evidence}); v != VerdictAmbiguous || reason != ReasonContradictorySignals {
		t.Errorf("it comes to %v (%v), want ambiguous (contradictory_signals)", v, reason)
	}
}

func TestSignalFaults(t *testing.T) {
	t.Parallel()
	var fields []string
	Signals{
		PolicyEvaluated: "X Y", CorrelationID: "X:Y", AnchorIssuedAt: "X\n", PolicyReason: "Ü", Receipt: "(x)", Degraded: "a,b",
		CorrelationPrefixes: map[string]Layer{"": LayerPolicy, "a": LayerUnknown, "b": 77},
		FailureStatuses:     []int{403, 399, 600, -1},
	}.compile(func(field, _ string, _ ...any) { fields = append(fields, field) })
	slices.Sort(fields)
	want := []string{
		"Signals.AnchorIssuedAt", "Signals.CorrelationID",
		`Signals.CorrelationPrefixes[""]`, `Signals.CorrelationPrefixes["a"]`, `Signals.CorrelationPrefixes["b"]`, "Signals.Degraded",
		"Signals.FailureStatuses[1]", "Signals.FailureStatuses[2]", "Signals.FailureStatuses[3]",
		"Signals.PolicyEvaluated", "Signals.PolicyReason", "Signals.Receipt",
	}
	if !slices.Equal(fields, want) {
		t.Errorf("faults in %v, want %v", fields, want)
	}
}

func TestFailureStatuses(t *testing.T) {
	t.Parallel()
	standard := map[int]bool{401: true, 403: true, 407: true, 421: true, 425: true, 429: true, 451: true, 502: true, 503: true, 504: true, 511: true}
	def, none := compiled(t, Signals{}), compiled(t, Signals{FailureStatuses: []int{}})
	for status := -1; status < 1100; status++ {
		if got := def.isFailure(status); got != standard[status] {
			t.Errorf("status %d is a failure: %v, want %v", status, got, standard[status])
		}
		if none.isFailure(status) {
			t.Errorf("status %d is a failure where none is", status)
		}
	}
}

// TestCutIsCopied: what is kept of a peer's words does not keep the others.
func TestCutIsCopied(t *testing.T) {
	t.Parallel()
	words := strings.Repeat("x", 1<<20)
	kept, cut := bounded(words)
	if !cut || unsafe.StringData(kept) == unsafe.StringData(words) {
		t.Error("the megabyte stays")
	}
	if got := sanitize(words); got != kept+"..." || sanitize(got) != got {
		t.Errorf("%q", got)
	}
}
