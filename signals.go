package fedhttp

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The default names of the headers that carry the federation's signals.
const (
	headerPolicyEvaluated          = "X-Federation-Policy-Evaluated"
	headerCorrelationID            = "X-Correlation-Id"
	headerFederationCorrelationID  = "X-Federation-Correlation-Id"
	headerAnchorIssuedAt           = "X-Federation-Anchor-Issued-At"
	headerPolicyReason             = "X-Federation-Policy-Reason"
	headerPolicyDigest             = "X-Federation-Policy-Digest"
	headerNegotiationEpoch         = "X-Federation-Negotiation-Epoch"
	headerAnchorVersion            = "X-Federation-Anchor-Version"
	headerDegraded                 = "X-Federation-Degraded"
	maxSignalValues                = 16          // values of one signal that are read; more of them are a contradiction
	maxFuture                      = time.Minute // how far ahead of our clock a peer's time may be and still be believed
	maxCorrelationID               = maxQuoted   // bytes; a longer one is shown cut, and not looked up
	firstFailure, afterLastFailure = 400, 600    // statuses that can be failures
)

// defaultFailureStatuses are the statuses that the routing layer of a
// federation answers with, and so those where the author matters.
var defaultFailureStatuses = []int{401, 403, 407, 421, 425, 429, 451, 502, 503, 504, 511}

// Signals says how a peer shows which layer authored a failure: the names of
// its headers (empty: the default), and what else can be believed of it. No two
// signals of an answer have the same header, and no two of what a task goes out
// under.
type Signals struct {
	// PolicyEvaluated names the header that says "true" where the policy engine
	// saw the request and "false" where it did not, in any letter case. Any
	// other value is a contradiction. Default "X-Federation-Policy-Evaluated".
	PolicyEvaluated string
	// CorrelationID names the header of the correlation id. Default: both
	// "X-Correlation-ID" and "X-Federation-Correlation-ID".
	CorrelationID string
	// AnchorIssuedAt names the header with the time at which the peer's current
	// anchor was issued (RFC 3339, HTTP date, or Unix seconds). One that is
	// newer than the anchor that the attempt went out under is routing
	// evidence: ours is stale. It does not say who wrote the answer, so it counts
	// on FailureStatuses only. Default "X-Federation-Anchor-Issued-At".
	AnchorIssuedAt string
	// PolicyReason names the header that gives the reason of a rejection.
	// Default "X-Federation-Policy-Reason".
	PolicyReason string
	// Receipt names the header with the digest that a response was produced
	// under. Default "X-Federation-Policy-Digest".
	Receipt string
	// Degraded names the header that says "true" where the peer's own signals
	// cannot be believed just now. Default "X-Federation-Degraded".
	Degraded string
	// PolicyDigest, NegotiationEpoch and AnchorVersion name the headers that tell
	// the peer what a task goes out under. Default "X-Federation-Policy-Digest",
	// "X-Federation-Negotiation-Epoch" and "X-Federation-Anchor-Version".
	PolicyDigest, NegotiationEpoch, AnchorVersion string
	// CorrelationPrefixes maps the start of a correlation id to the layer that
	// mints such ids; the longest prefix that fits counts. Nil: ids prove
	// nothing by themselves.
	CorrelationPrefixes map[string]Layer
	// FailureStatuses are the statuses where the author matters, each from 400
	// to 599. Nil: 401, 403, 407, 421, 425, 429, 451, 502, 503, 504, 511.
	FailureStatuses []int
	// ReadProblemDetail takes the policy reason of a rejection from the
	// "detail" of an application/problem+json body (RFC 9457) where no header
	// gives one. At most 4 KiB are read ahead, within AttemptTimeout; the caller
	// still reads the body whole.
	ReadProblemDetail bool
	// Dialects are the words of the hops in front of the peer that are read, and
	// which hops are believed. Nil: none.
	Dialects []Dialect
}

// signalTable is Signals made ready for use: canonical header names, prefixes
// in the order in which they are tried, statuses as a set.
type signalTable struct {
	policyEvaluated, anchorIssuedAt, policyReason, receipt, degraded string
	policyDigest, negotiationEpoch, anchorVersion                    string // of requests

	correlation       []string
	prefixes          []correlationPrefix
	failure           [afterLastFailure - firstFailure]bool
	readProblemDetail bool
	dialects          []Dialect
}

type correlationPrefix struct {
	prefix string
	layer  Layer
}

// compile validates s and reports each fault by its field name.
func (s Signals) compile(fault func(field, format string, args ...any)) signalTable {
	// What answers say and what requests tell are kept apart: a header can be both.
	answers, requests := make(map[string]string), make(map[string]string)
	name := func(used map[string]string, field, value, standard string) string {
		header := standard
		if value != "" {
			header = http.CanonicalHeaderKey(value)
			if !isToken(value) {
				fault("Signals."+field, "%s is no header name", quote(value))
			}
		}
		if other, twice := used[header]; twice {
			if value == "" {
				field, other = other, field // the default is not at fault
			}
			fault("Signals."+field, "%s is the header of %v too", quote(header), ConfigValue{Field: "Signals." + other})
		}
		used[header] = field
		return header
	}
	t := signalTable{
		policyEvaluated:   name(answers, "PolicyEvaluated", s.PolicyEvaluated, headerPolicyEvaluated),
		anchorIssuedAt:    name(answers, "AnchorIssuedAt", s.AnchorIssuedAt, headerAnchorIssuedAt),
		policyReason:      name(answers, "PolicyReason", s.PolicyReason, headerPolicyReason),
		receipt:           name(answers, "Receipt", s.Receipt, headerPolicyDigest),
		degraded:          name(answers, "Degraded", s.Degraded, headerDegraded),
		policyDigest:      name(requests, "PolicyDigest", s.PolicyDigest, headerPolicyDigest),
		negotiationEpoch:  name(requests, "NegotiationEpoch", s.NegotiationEpoch, headerNegotiationEpoch),
		anchorVersion:     name(requests, "AnchorVersion", s.AnchorVersion, headerAnchorVersion),
		correlation:       []string{name(answers, "CorrelationID", s.CorrelationID, headerCorrelationID)},
		readProblemDetail: s.ReadProblemDetail,
		dialects:          compileDialects(s.Dialects, fault),
	}
	if s.CorrelationID == "" {
		t.correlation = append(t.correlation, name(answers, "CorrelationID", "", headerFederationCorrelationID))
	}
	for prefix, layer := range s.CorrelationPrefixes {
		field := "Signals.CorrelationPrefixes[" + strconv.QuoteToASCII(prefix) + "]"
		switch {
		case prefix == "":
			fault(field, "an empty prefix would fit every id")
		case strings.Contains(prefix, ",") || strings.Trim(prefix, " \t") != prefix:
			fault(field, "the prefix has a comma or outer blanks, which no id has")
		case layer != LayerPolicy && layer != LayerRouting:
			fault(field, "%q is not the layer of a prefix; want policy or routing", layer)
		}
		t.prefixes = append(t.prefixes, correlationPrefix{prefix, layer})
	}
	slices.SortFunc(t.prefixes, func(a, b correlationPrefix) int {
		return cmp.Or(cmp.Compare(len(b.prefix), len(a.prefix)), cmp.Compare(a.prefix, b.prefix))
	})
	statuses := s.FailureStatuses
	if statuses == nil {
		statuses = defaultFailureStatuses
	}
	for i, status := range statuses {
		if status < firstFailure || status >= afterLastFailure {
			fault(fmt.Sprintf("Signals.FailureStatuses[%d]", i), "%d is not from %d to %d", status,
				ConfigValue{Value: firstFailure}, ConfigValue{Value: afterLastFailure - 1})
			continue
		}
		t.failure[status-firstFailure] = true
	}
	return t
}

func (t *signalTable) isFailure(status int) bool {
	return status >= firstFailure && status < afterLastFailure && t.failure[status-firstFailure]
}

// reading is what one response showed. What a peer sent is in it as it came;
// sanitize it before it leaves the package.
type reading struct {
	evidence      []Evidence
	correlationID string
	degraded      bool
	staleAnchor   bool // the evidence says that the attempt went out under an old anchor
	reach         reach
}

// read collects the evidence in a response's header. issuedAt is the IssuedAt
// of the anchor that the attempt went out under, zero when not known.
//
// A newer anchor says that ours is stale, and not who wrote this answer: where
// an application's 404 carries it, the policy engine has seen the request. So
// it is evidence only on a status that the routing layer answers with.
func (t *signalTable) read(h http.Header, status int, issuedAt, now time.Time) reading {
	r := reading{degraded: t.saysDegraded(h)}
	if values := h[t.policyEvaluated]; len(values) > 0 {
		r.evidence = append(r.evidence, Evidence{Source: SourceHeader, Layer: evaluatedLayer(values)})
	}
	r.correlationID = t.correlationIDOf(h)
	if len(t.prefixes) > 0 {
		r.evidence = t.appendPrefixes(r.evidence, h)
	}
	if values := h[t.anchorIssuedAt]; len(values) > 0 && !issuedAt.IsZero() && t.isFailure(status) {
		switch theirs, agree := issuedAtOf(values, now); {
		case !agree:
			r.evidence = append(r.evidence, Evidence{Source: SourceAnchorIssuedAt, Layer: LayerUnknown})
		case theirs.After(issuedAt):
			r.staleAnchor = true
			r.evidence = append(r.evidence, Evidence{Source: SourceAnchorIssuedAt, Layer: LayerRouting})
		}
	}
	return r
}

// evaluatedLayer reads the values of the policy-evaluated header. A header that
// was sent twice and one that an intermediary combined with commas are the
// same (RFC 9110, section 5.3), so both are read alike.
func evaluatedLayer(values []string) Layer {
	layer := LayerUnknown
	seen := 0
	for _, line := range values {
		for value := range strings.SplitSeq(line, ",") {
			var this Layer
			switch {
			case isWord(value, "true"):
				this = LayerPolicy
			case isWord(value, "false"):
				this = LayerRouting
			default:
				return LayerUnknown
			}
			if seen++; seen > maxSignalValues || layer != LayerUnknown && layer != this {
				return LayerUnknown
			}
			layer = this
		}
	}
	return layer
}

func (t *signalTable) correlationIDOf(h http.Header) string {
	for _, name := range t.correlation {
		for _, value := range h[name] {
			if value != "" {
				return value
			}
		}
	}
	return ""
}

// appendPrefixes adds the evidence of every correlation id, one entry a layer.
func (t *signalTable) appendPrefixes(evidence []Evidence, h http.Header) []Evidence {
	var spoke [3]bool
	for _, name := range t.correlation {
		seen := 0
		for _, line := range h[name] {
			for id := range strings.SplitSeq(line, ",") {
				if seen++; seen > maxSignalValues {
					spoke[LayerUnknown] = true
					break
				}
				if layer := t.prefixLayer(strings.Trim(id, " \t")); layer != LayerUnknown {
					spoke[layer] = true
				}
			}
		}
	}
	for layer, spoke := range spoke {
		if spoke {
			evidence = append(evidence, Evidence{Source: SourceCorrelationPrefix, Layer: Layer(layer)})
		}
	}
	return evidence
}

func (t *signalTable) prefixLayer(id string) Layer {
	for _, p := range t.prefixes {
		if strings.HasPrefix(id, p.prefix) {
			return p.layer
		}
	}
	return LayerUnknown
}

// issuedAtOf reads the values of the anchor-issued-at header, and reports whether
// they agree. It returns the zero time for one that proves nothing: it does not
// parse, or lies in the future.
func issuedAtOf(values []string, now time.Time) (at time.Time, agree bool) {
	if len(values) > maxSignalValues {
		return time.Time{}, false
	}
	at, err := parseAnchorTime(values[0])
	for _, value := range values[1:] {
		other, otherErr := parseAnchorTime(value)
		if value != values[0] && (err != nil || otherErr != nil || !other.Equal(at)) {
			return time.Time{}, false
		}
	}
	if err != nil || at.After(now.Add(maxFuture)) {
		return time.Time{}, true
	}
	return at, true
}

// parseAnchorTime reads an RFC 3339 time, an HTTP date (RFC 9110, section
// 5.6.7) or Unix seconds.
func parseAnchorTime(s string) (time.Time, error) {
	if len(s) > 64 {
		return time.Time{}, fmt.Errorf("%s is no time", quote(s))
	}
	if at, err := time.Parse(time.RFC3339, s); err == nil {
		return at, nil
	}
	if at, err := http.ParseTime(s); err == nil {
		return at, nil
	}
	// Twelve digits hold the year 9999: more are milliseconds, or no time at all.
	if seconds, err := strconv.ParseUint(s, 10, 64); err == nil && len(s) <= 12 {
		return time.Unix(int64(seconds), 0), nil
	}
	return time.Time{}, fmt.Errorf("%s is no time: want RFC 3339, an HTTP date or Unix seconds", quote(s))
}

func (t *signalTable) saysDegraded(h http.Header) bool {
	for _, line := range h[t.degraded] {
		for value := range strings.SplitSeq(line, ",") {
			if isWord(value, "true") {
				return true
			}
		}
	}
	return false
}

// isWord reports whether value is the ASCII word in any letter case, white space
// around it aside. Unicode folds other letters to ASCII ones; the length tells.
func isWord(value, word string) bool {
	value = strings.Trim(value, " \t")
	return len(value) == len(word) && strings.EqualFold(value, word)
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2, which is
// what a header name is.
func isToken(s string) bool {
	for i := range len(s) {
		if !tokenChars[s[i]] {
			return false
		}
	}
	return s != ""
}

var tokenChars = func() (is [256]bool) {
	for c := byte('!'); c <= '~'; c++ {
		is[c] = strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) < 0
	}
	return is
}()
