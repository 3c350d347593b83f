package fedhttp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
)

// testdata/decisions.json is the decision table of docs/design.md, row by row:
// what a peer does, and what becomes of a call. decisions_server_test.go plays
// each row against a real server, which counts what reaches it.

// decisionRow is one row: the call that it is about, what came before it, and
// what is expected.
type decisionRow struct {
	Name   string  `json:"name"`
	Server string  `json:"server"` // "", "untrusted_certificate", "client_certificate_required" or "access_denied"
	Peer   rowPeer `json:"peer"`
	// Anchors are what the source gives, fetch by fetch; the last one stays.
	// Each is "fail", "panic", "" or a version, which "issued=RFC3339", "expired"
	// or "future" may follow. Null: there is no source.
	Anchors  []string `json:"anchors"`
	Resolver string   `json:"resolver"` // "" for none, a layer, "error" or "panic"
	// Before are earlier calls of the same Transport.
	Before []rowBefore `json:"before"`
	rowCall
	Want rowWant `json:"want"`
}

// rowPeer are the settings of the peer; what is left out is the default.
type rowPeer struct {
	DefaultTerms      fedhttp.Terms            `json:"default_terms"`
	RequireTask       bool                     `json:"require_task"`
	RequireAnchor     bool                     `json:"require_anchor"`
	Receipt           fedhttp.ReceiptMode      `json:"receipt"`
	Prefixes          map[string]fedhttp.Layer `json:"prefixes"`
	FailureStatuses   []int                    `json:"failure_statuses"`
	ReadProblemDetail bool                     `json:"read_problem_detail"`
	EvaluatedHeader   string                   `json:"evaluated_header"`
	CorrelationHeader string                   `json:"correlation_header"`
	ReasonHeader      string                   `json:"reason_header"`
	ReceiptHeader     string                   `json:"receipt_header"`
	MaxAttempts       int                      `json:"max_attempts"`
	MaxBackoff        duration                 `json:"max_backoff"`
	MinRefresh        duration                 `json:"min_refresh_interval"`
	AttemptTimeout    duration                 `json:"attempt_timeout"`
	HoldMax           int                      `json:"hold_max"`
	HoldMaxWait       duration                 `json:"hold_max_wait"`
	HoldOff           duration                 `json:"hold_off"`
	Budget            int                      `json:"denial_budget"`
	Failures          int                      `json:"breaker_failures"`
	OpenFor           duration                 `json:"breaker_open_for"`
	Degraded          bool                     `json:"degraded"` // by SetDegraded
}

// rowCall is one call. Book is done to the policy book before it.
type rowCall struct {
	Book    []rowBook   `json:"book"`
	Task    *rowTask    `json:"task"`
	Request rowRequest  `json:"request"`
	Answers []rowAnswer `json:"answers"`
}

type rowBefore struct {
	rowCall
	Outcome fedhttp.Outcome `json:"outcome"`
}

// rowBook is one change of the policy book. Key and digest have defaults: peer
// "b", capability "summarise", epoch 1, digest "sha256:a".
type rowBook struct {
	Op         string        `json:"op"` // advertise, advertise_stale, withdraw, accept, revoke, negotiate, stale
	Capability string        `json:"capability"`
	Epoch      uint64        `json:"epoch"`
	Digest     string        `json:"digest"`
	Terms      fedhttp.Terms `json:"terms"`
	ExpiresIn  duration      `json:"expires_in"`
}

type rowTask struct {
	Capability  string        `json:"capability"`
	Scope       string        `json:"scope"`
	Obligations fedhttp.Terms `json:"obligations"`
	DeadlineIn  duration      `json:"deadline_in"`
}

type rowRequest struct {
	Method  string            `json:"method"`
	Body    string            `json:"body"` // "", "replayable", "stream" (no GetBody) or "broken" (GetBody fails)
	URL     string            `json:"url"`  // in place of the peer's
	Header  map[string]string `json:"header"`
	Timeout duration          `json:"timeout"`
	Cancel  string            `json:"cancel"` // "", "before", "when_sent", or "close_transport"
}

// rowAnswer is what becomes of one attempt.
type rowAnswer struct {
	Do      string   `json:"do"` // "" answers; else "refuse", "close", "hang", "cut" or "garbage"
	Status  int      `json:"status"`
	Headers []string `json:"headers"` // "Name: value"
	Body    string   `json:"body"`
}

type rowWant struct {
	Outcome fedhttp.Outcome `json:"outcome"`
	Reason  fedhttp.Reason  `json:"reason"`
	// Sends is what the server counted; Attempts is what the decision says,
	// where connections failed. Null: the same.
	Sends     int                     `json:"sends"`
	Attempts  *int                    `json:"attempts"`
	Refreshes int                     `json:"refreshes"`
	Evidence  []string                `json:"evidence"`
	Delivery  fedhttp.Delivery        `json:"delivery"`
	Escalated *fedhttp.EscalationKind `json:"escalated"`
	// Status of the response; 0: an error and no response.
	Status int    `json:"status"`
	Error  string `json:"error"` // the sentinel's name
	Cause  string `json:"cause"` // what else the error is
	Tally  string `json:"tally"` // how the call counts for the breaker; "": not looked at

	Basis         string `json:"basis"`
	PolicyReason  string `json:"policy_reason"`
	CorrelationID string `json:"correlation_id"`
	// Sent are headers that the server got with the last send. "" stands for none.
	Sent map[string]string `json:"sent"`
}

// duration is a time.Duration that JSON spells "150ms".
type duration struct{ time.Duration }

func (d *duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = time.ParseDuration(string(text))
	return err
}

func readDecisions(t *testing.T) []decisionRow {
	t.Helper()
	text, err := os.ReadFile("testdata/decisions.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []decisionRow
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rows); err != nil {
		t.Fatalf("testdata/decisions.json: %v", err)
	}
	if dec.More() {
		t.Fatal("testdata/decisions.json: there is more than one value")
	}
	return rows
}

func TestDecisions(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for _, row := range readDecisions(t) {
		t.Run(row.Name, func(t *testing.T) {
			t.Parallel()
			play := func(t *testing.T) {
				playRow(t, row)
				if row.Want.Tally != "" {
					if got := tallyOf(t, row); got != row.Want.Tally {
						t.Errorf("the call counts for the breaker as %s, want %s", got, row.Want.Tally)
					}
				}
			}
			if row.virtual() {
				synctest.Test(t, play)
			} else {
				play(t)
			}
		})
	}
}

// virtual tells that something ends by its time in the row, which is virtual then: no
// machine is so slow that it ends before it has begun.
func (r *decisionRow) virtual() bool {
	calls := []rowCall{r.rowCall}
	for _, b := range r.Before {
		calls = append(calls, b.rowCall)
	}
	return r.Peer.AttemptTimeout.Duration > 0 || r.Peer.HoldMaxWait.Duration > 0 || slices.ContainsFunc(calls, func(c rowCall) bool {
		return c.Request.Timeout.Duration > 0 || c.Task != nil && c.Task.DeadlineIn.Duration > 0
	})
}

// TestDecisionsComplete holds the table to the closed sets: a value that no row
// has is a behaviour that nothing tests.
func TestDecisionsComplete(t *testing.T) {
	t.Parallel()
	rows := readDecisions(t)
	if len(rows) < 80 {
		t.Errorf("%d rows, want 80 at least", len(rows))
	}
	names := map[string]bool{}
	outcomes := map[fedhttp.Outcome]bool{}
	reasons := map[fedhttp.Reason]bool{} // of any outcome
	routing := map[fedhttp.Reason]bool{} // of routing_failed
	deliveries := map[fedhttp.Delivery]bool{}
	escalations := map[fedhttp.EscalationKind]bool{}
	sources := map[string]bool{}
	bases := map[string]bool{}
	for _, row := range rows {
		if row.Name == "" || names[row.Name] {
			t.Errorf("the name %q is empty or not unique", row.Name)
		}
		names[row.Name] = true
		outcomes[row.Want.Outcome], reasons[row.Want.Reason] = true, true
		deliveries[row.Want.Delivery] = true
		bases[row.Want.Basis] = true
		if row.Want.Outcome == fedhttp.OutcomeRoutingFailed {
			routing[row.Want.Reason] = true
		}
		if row.Want.Escalated != nil {
			escalations[*row.Want.Escalated] = true
		}
		for _, e := range row.Want.Evidence {
			source, layer, _ := strings.Cut(e, "=")
			sources[source] = sources[source] || layer != ""
		}
	}
	// The verdict shows in the outcome: none is delivered, and the others have
	// outcomes of their own.
	for o := fedhttp.OutcomeDelivered; o <= fedhttp.OutcomeCanceled; o++ {
		if !outcomes[o] {
			t.Errorf("no row has outcome %v", o)
		}
	}
	for r := fedhttp.ReasonPeerDegraded; r <= fedhttp.ReasonDeadline; r++ {
		if !routing[r] {
			t.Errorf("no row has routing_failed with reason %v", r)
		}
	}
	elsewhere := []fedhttp.Reason{
		fedhttp.ReasonHoldFull,                                                                    // hold_test.go: another task has to wait meanwhile
		fedhttp.ReasonLedgerFailed,                                                                // transport_sinks_test.go: takes a ledger that panics
		fedhttp.ReasonAnchorExpired,                                                               // anchor_test.go: time has to pass
		fedhttp.ReasonRootsUnusable, fedhttp.ReasonClientCertificate, fedhttp.ReasonPeerUntrusted, // roots_test.go, ownside_test.go
		fedhttp.ReasonBadURL,     // badinput_test.go: no server has such a URL
		fedhttp.ReasonBadRequest, // owndoing_test.go: nor such a request
		fedhttp.ReasonBodyFailed, // owndoing_test.go
	}
	for r := fedhttp.ReasonNone; r <= fedhttp.ReasonBodyFailed; r++ {
		if !reasons[r] && !slices.Contains(elsewhere, r) {
			t.Errorf("no row has reason %v", r)
		}
	}
	for d := fedhttp.DeliveryNone; d <= fedhttp.DeliveryAnswered; d++ {
		if !deliveries[d] {
			t.Errorf("no row has delivery %v", d)
		}
	}
	for k := fedhttp.EscalationAmbiguous; k <= fedhttp.EscalationPeerDistrustsUs; k++ {
		if !escalations[k] {
			t.Errorf("no row has escalation %v", k)
		}
	}
	for s := fedhttp.SourceHeader; s <= fedhttp.SourceTLSAlert; s++ {
		if !sources[s.String()] {
			t.Errorf("no row has evidence from %v", s)
		}
	}
	for _, b := range []fedhttp.Basis{fedhttp.BasisNoObligation, fedhttp.BasisAccepted, fedhttp.BasisNegotiated} {
		if !bases[b.String()] {
			t.Errorf("no row has basis %v", b)
		}
	}
}

var sentinels = map[string]error{
	"ErrRejected": fedhttp.ErrRejected, "ErrRouting": fedhttp.ErrRouting, "ErrBoundary": fedhttp.ErrBoundary,
	"ErrPolicyUnresolved": fedhttp.ErrPolicyUnresolved, "ErrScopeDenied": fedhttp.ErrScopeDenied,
	"ErrPeerUnavailable": fedhttp.ErrPeerUnavailable, "ErrUnknownPeer": fedhttp.ErrUnknownPeer,
	"ErrPolicyMismatch": fedhttp.ErrPolicyMismatch, "ErrTaskRequired": fedhttp.ErrTaskRequired,
	"ErrClosed": fedhttp.ErrClosed,
}

// headerOf reads "Name: value" lines.
func headerOf(t *testing.T, lines []string) http.Header {
	t.Helper()
	h := http.Header{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ": ")
		if !ok {
			t.Fatalf("%q is no header line", line)
		}
		h.Add(name, value)
	}
	return h
}

// anchorOf reads one of decisionRow.Anchors.
func anchorOf(text string) (fedhttp.Anchor, error) {
	version, rest, _ := strings.Cut(text, " ")
	a := fedhttp.Anchor{Version: version}
	switch version {
	case "fail":
		return fedhttp.Anchor{}, fmt.Errorf("the anchor endpoint is down")
	case "panic":
		panic("the anchor source is broken")
	}
	for word := range strings.FieldsSeq(rest) {
		switch at, issued := strings.CutPrefix(word, "issued="); {
		case issued:
			parsed, err := time.Parse(time.RFC3339, at)
			if err != nil {
				return fedhttp.Anchor{}, err
			}
			a.IssuedAt = parsed
		case word == "expired":
			a.ExpiresAt = time.Now().Add(-time.Second)
		case word == "future":
			a.IssuedAt = time.Now().Add(2 * time.Minute)
		default:
			return fedhttp.Anchor{}, fmt.Errorf("%q says nothing of an anchor", word)
		}
	}
	return a, nil
}
