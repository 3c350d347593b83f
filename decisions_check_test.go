package fedhttp_test

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"slices"
	"testing"

	"github.com/fedhttp/fedhttp"
)

var (
	quietLog    = log.New(io.Discard, "", 0)
	quietLogger = slog.New(slog.DiscardHandler)
)

// playRow makes the calls of a row and compares what came of them.
func playRow(t *testing.T, row decisionRow) {
	t.Helper()
	play := newRowPlay(t, row)
	play.before(t)
	before := len(play.server.log())
	resp, err := play.call(t, row.rowCall)
	d, failure := decisionOf(t, resp, err)
	want := row.Want

	status := 0
	if resp != nil {
		status = resp.StatusCode
		body, readErr := io.ReadAll(resp.Body)
		if closeErr := resp.Body.Close(); readErr != nil || closeErr != nil {
			t.Errorf("the response's body: %v, %v", readErr, closeErr)
		}
		if last := row.Answers[len(row.Answers)-1]; string(body) != last.Body {
			t.Errorf("the body is %q, want %q: the last response whole", body, last.Body)
		}
	}
	sends := play.server.log()[before:]
	attempts := want.Sends
	if want.Attempts != nil {
		attempts = *want.Attempts
	}
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"outcome", d.Outcome, want.Outcome},
		{"reason", d.Reason, want.Reason},
		{"sends", len(sends), want.Sends},
		{"attempts", d.Attempts, attempts},
		{"refreshes", d.Refreshes, want.Refreshes},
		{"delivery", d.Delivery, want.Delivery},
		{"status", status, want.Status},
		{"escalated", d.Escalated, want.Escalated != nil},
		{"policy reason", d.PolicyReason, want.PolicyReason},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.what, c.got, c.want)
		}
	}
	if want.Basis != "" && d.Basis.String() != want.Basis {
		t.Errorf("basis is %v, want %v", d.Basis, want.Basis)
	}
	if want.CorrelationID != "" && d.CorrelationID != want.CorrelationID {
		t.Errorf("correlation id is %q, want %q", d.CorrelationID, want.CorrelationID)
	}
	wantEvidence := slices.Sorted(slices.Values(want.Evidence))
	if got := evidenceOf(d); !slices.Equal(got, wantEvidence) {
		t.Errorf("evidence is %v, want %v", got, wantEvidence)
	}
	play.checkError(t, failure)
	play.checkSends(t)
	play.checkEscalations(t, d)
	if left := play.left(); left != 0 {
		t.Errorf("%d answers were not asked for", left)
	}
	if s := play.transport.Status()[0]; s.InFlight != 0 || s.Held != 0 {
		t.Errorf("after the call %d are in flight and %d held", s.InFlight, s.Held)
	}
}

func (play *rowPlay) before(t *testing.T) {
	t.Helper()
	for i, b := range play.row.Before {
		resp, err := play.call(t, b.rowCall)
		d, _ := decisionOf(t, resp, err)
		if resp != nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if d.Outcome != b.Outcome {
			t.Fatalf("call %d before: outcome %v (%v), want %v", i, d.Outcome, d.Reason, b.Outcome)
		}
		if d.Escalated {
			play.toldBefore++
		}
	}
}

func (play *rowPlay) left() int {
	play.server.mu.Lock()
	defer play.server.mu.Unlock()
	return len(play.server.answers)
}

func (play *rowPlay) checkError(t *testing.T, failure error) {
	t.Helper()
	want := play.row.Want
	if (failure == nil) != (want.Outcome == fedhttp.OutcomeDelivered) {
		t.Errorf("the error is %v with outcome %v", failure, want.Outcome)
	}
	for name, sentinel := range sentinels {
		if is := errors.Is(failure, sentinel); is != (name == want.Error || name == want.Cause) {
			t.Errorf("errors.Is(%v, %s) is %v", failure, name, is)
		}
	}
	causes := map[string]error{
		"context.Canceled": context.Canceled, "context.DeadlineExceeded": context.DeadlineExceeded,
		"callers_cause": errCallersCause, "ErrClosed": fedhttp.ErrClosed,
	}
	if want.Cause == "" {
		return
	}
	cause, known := causes[want.Cause]
	if !known {
		t.Fatalf("cause %q is none", want.Cause)
	}
	if !errors.Is(failure, cause) {
		t.Errorf("errors.Is(%v, %v) is false", failure, cause)
	}
	if want.Cause == "callers_cause" && !errors.Is(failure, context.Canceled) {
		t.Errorf("errors.Is(%v, context.Canceled) is false", failure)
	}
}

// checkSends looks at what the server got.
func (play *rowPlay) checkSends(t *testing.T) {
	t.Helper()
	log := play.server.log()
	if play.row.Want.Sends == 0 || len(log) == 0 {
		return
	}
	last := log[len(log)-1]
	for name, value := range play.row.Want.Sent {
		if got := last.Header.Get(name); got != value {
			t.Errorf("the server got %s %q, want %q", name, got, value)
		}
	}
	if play.row.Request.Body == "" {
		return
	}
	for i, send := range log[len(log)-play.row.Want.Sends:] {
		if send.BodyBytes != int64(len(rowBody)) {
			t.Errorf("send %d had %d bytes of body, want %d", i, send.BodyBytes, len(rowBody))
		}
	}
}

// checkEscalations looks at what an operator got for the row's own call. The
// sink is told in order.
func (play *rowPlay) checkEscalations(t *testing.T, d fedhttp.Decision) {
	t.Helper()
	want := play.row.Want.Escalated
	if want == nil || !d.Escalated {
		if all := play.escalations.snapshot(); len(all) > play.toldBefore {
			t.Errorf("an operator was told: %+v", all[play.toldBefore:])
		}
		return
	}
	e := play.escalations.wait(t, play.toldBefore+1)[play.toldBefore]
	if e.Kind != *want {
		t.Errorf("the escalation is %v, want %v", e.Kind, *want)
	}
	if e.Decision.Outcome != d.Outcome || e.Decision.Reason != d.Reason || e.Decision.Attempts != d.Attempts ||
		e.Decision.CorrelationID != d.CorrelationID || !e.Decision.Escalated {
		t.Errorf("the escalation carries %+v, want %+v", e.Decision, d)
	}
}

// tallyOf finds out how the row's call counts for the breaker: a breaker that
// opens after two failures in a row sees a failure, the call, and a failure.
func tallyOf(t *testing.T, row decisionRow) string {
	t.Helper()
	row.Peer.Failures, row.Before = 2, nil
	play := newRowPlay(t, row)
	failure := rowCall{Answers: []rowAnswer{{Status: 403}}}
	open := func(c rowCall) bool {
		resp, err := play.call(t, c)
		if err == nil {
			resp.Body.Close()
		}
		return play.transport.Status()[0].Breaker == "open"
	}
	if open(failure) {
		t.Fatal("one failure has opened the breaker")
	}
	if open(row.rowCall) {
		return "failure"
	}
	if open(failure) {
		return "neutral"
	}
	return "success"
}
