package fedhttp

import (
	"fmt"
	"slices"
	"testing"
)

// The oracle below is section 7 of docs/design.md read top to bottom. It shares
// no code and no shortcut with classify.

type oracleAnswer struct {
	verdict Verdict
	reason  Reason
}

func oracle(status int, failureStatuses []int, degraded bool, evidence []Evidence) oracleAnswer {
	has := func(want func(Evidence) bool) bool {
		return slices.ContainsFunc(evidence, func(e Evidence) bool { return e.Ignored == IgnoredNot && want(e) })
	}
	policy := has(func(e Evidence) bool { return e.Layer == LayerPolicy })
	routing := has(func(e Evidence) bool { return e.Layer == LayerRouting })
	notUnderstood := has(func(e Evidence) bool { return e.Layer == LayerUnknown })
	contradiction := notUnderstood || (policy && routing)

	// "A federation failure is: an error; a status in the set; or any other
	// status >= 400 with routing evidence or a contradiction. Any other status is
	// the application's own answer."
	isError := status == 0
	failure := isError
	if slices.Contains(failureStatuses, status) {
		failure = true
	}
	if status >= 400 && (routing || contradiction) {
		failure = true
	}
	if !failure {
		return oracleAnswer{VerdictNone, ReasonNone}
	}

	// The table, in its order.
	if contradiction {
		return oracleAnswer{VerdictAmbiguous, ReasonContradictorySignals}
	}
	// "On 401, 403, 407, 429 and 451 it is a rejection." An alert that denies
	// access comes with no status at all.
	if policy && (isError || slices.Contains([]int{401, 403, 407, 429, 451}, status)) {
		return oracleAnswer{VerdictRejection, ReasonDenied}
	}
	if policy {
		return oracleAnswer{VerdictNone, ReasonNone}
	}
	if routing {
		// "Anchors have a direction."
		if has(func(e Evidence) bool { return e.Source == SourceTLSAlert || e.Source == SourceNginx }) {
			return oracleAnswer{VerdictRouting, ReasonPeerDistrustsUs}
		}
		if !degraded {
			return oracleAnswer{VerdictRouting, ReasonNone}
		}
		// "Where it is our own proof of non-delivery: routing, not resent."
		if has(func(e Evidence) bool { return e.Source == SourceDelivery }) {
			return oracleAnswer{VerdictRouting, ReasonPeerDegraded}
		}
		return oracleAnswer{VerdictAmbiguous, ReasonPeerDegraded}
	}
	return oracleAnswer{VerdictAmbiguous, ReasonNoSignal}
}

// TestClassify compares classify with the oracle for every set of evidence of the
// sources that differ, one piece a source at most, on every status and for several
// sets of failure statuses.
func TestClassify(t *testing.T) {
	t.Parallel()
	sources := []Source{SourceHeader, SourceDelivery, SourceTLSAlert, SourceHTTP2Refusal, SourceProxyStatus, SourceNginx}
	sets := 1
	for range sources {
		sets *= 5 // absent, unknown, policy, routing, routing that is ignored
	}
	statuses := []int{0}
	for status := 100; status < 600; status += 50 {
		statuses = append(statuses, status, status+1)
	}
	statuses = append(statuses, 404, 407, 421, 422, 425, 429, 502, 503, 504, 511, 599, 999)
	seen := map[oracleAnswer]int{}
	for _, failures := range [][]int{{401, 403, 407, 421, 425, 429, 451, 502, 503, 504, 511}, {500}, {}} {
		for n := range sets {
			var evidence []Evidence
			for s, rest := 0, n; s < len(sources); s, rest = s+1, rest/5 {
				switch layer := rest % 5; layer {
				case 0:
				case 4:
					evidence = append(evidence, Evidence{Source: sources[s], Layer: LayerRouting, Ignored: IgnoredUnpinned})
				default:
					evidence = append(evidence, Evidence{Source: sources[s], Layer: Layer(layer - 1)})
				}
			}
			for _, status := range statuses {
				for _, degraded := range []bool{false, true} {
					want := oracle(status, failures, degraded, evidence)
					verdict, reason := classify(facts{
						status: status, failureStatus: slices.Contains(failures, status), degraded: degraded, evidence: evidence,
					})
					if got := (oracleAnswer{verdict, reason}); got != want {
						t.Fatalf("status %d, failure statuses %v, degraded %v, evidence %v: %v, want %v", status, failures, degraded, evidence, got, want)
					}
					seen[want]++
				}
			}
		}
	}
	if want := 8; len(seen) != want {
		t.Errorf("the combinations came to %d different answers, want %d: %v", len(seen), want, seen)
	}
}

// TestClassifySources: what a source says counts the same whoever it is, but for
// our own proof and for those that say that the peer distrusts us.
func TestClassifySources(t *testing.T) {
	t.Parallel()
	for s := range sourceNames {
		switch source := Source(s); source {
		case SourceDelivery, SourceTLSAlert, SourceNginx:
		default:
			for layer := range layerNames {
				for _, degraded := range []bool{false, true} {
					f := facts{status: 403, failureStatus: true, degraded: degraded}
					f.evidence = []Evidence{{Source: SourceHeader, Layer: Layer(layer)}}
					want, why := classify(f)
					f.evidence = []Evidence{{Source: source, Layer: Layer(layer)}}
					if got, reason := classify(f); got != want || reason != why {
						t.Errorf("%v: %v %v, want %v %v", f.evidence, got, reason, want, why)
					}
				}
			}
		}
	}
}

// TestClassifyOrder holds classify to be blind to the order of the evidence and
// to repeats of it.
func TestClassifyOrder(t *testing.T) {
	t.Parallel()
	all := []Evidence{}
	for s := range sourceNames {
		for l := range layerNames {
			all = append(all, Evidence{Source: Source(s), Layer: Layer(l)})
		}
	}
	for _, a := range all {
		for _, b := range all {
			for _, degraded := range []bool{false, true} {
				for _, status := range []int{0, 403, 404, 502} {
					f := facts{status: status, failureStatus: status != 404, degraded: degraded}
					judge := func(evidence ...Evidence) string {
						f.evidence = evidence
						v, r := classify(f)
						return fmt.Sprint(v, r)
					}
					if x, y := judge(a, b), judge(b, a); x != y {
						t.Errorf("%v and %v: %s in one order, %s in the other", a, b, x, y)
					}
					if x, y := judge(a), judge(a, a); x != y {
						t.Errorf("%v: %s once, %s twice", a, x, y)
					}
				}
			}
		}
	}
}

func TestEvidenceString(t *testing.T) {
	t.Parallel()
	for want, e := range map[string]Evidence{
		"header=policy":                  {Source: SourceHeader, Layer: LayerPolicy},
		"delivery=routing":               {Source: SourceDelivery, Layer: LayerRouting},
		"anchor_issued_at=contradiction": {Source: SourceAnchorIssuedAt, Layer: LayerUnknown},
		"kong=routing ignored=unpinned":  {Source: SourceKong, Layer: LayerRouting, Ignored: IgnoredUnpinned},
	} {
		if got := e.String(); got != want {
			t.Errorf("%#v is %q, want %q", e, got, want)
		}
	}
}
