package fedhttp_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// TestErrorOfOutcome: each outcome has one error, and matches no other.
func TestErrorOfOutcome(t *testing.T) {
	t.Parallel()
	all := map[fedhttp.Outcome]error{
		fedhttp.OutcomeDelivered: nil, fedhttp.OutcomeRejected: fedhttp.ErrRejected, fedhttp.OutcomeRoutingFailed: fedhttp.ErrRouting,
		fedhttp.OutcomeAmbiguous: fedhttp.ErrBoundary, fedhttp.OutcomePolicyUnresolved: fedhttp.ErrPolicyUnresolved,
		fedhttp.OutcomeScopeDenied: fedhttp.ErrScopeDenied, fedhttp.OutcomePeerUnavailable: fedhttp.ErrPeerUnavailable,
		fedhttp.OutcomeUnknownPeer: fedhttp.ErrUnknownPeer, fedhttp.OutcomeTaskRequired: fedhttp.ErrTaskRequired,
		fedhttp.OutcomePolicyMismatch: fedhttp.ErrPolicyMismatch, fedhttp.OutcomeCanceled: nil,
	}
	for o := fedhttp.OutcomeDelivered; o <= fedhttp.OutcomeCanceled+1; o++ {
		err := fedhttp.Decision{Outcome: o}.Err()
		if (err == nil) != (o == fedhttp.OutcomeDelivered) {
			t.Errorf("%v: Err is %v", o, err)
		}
		for name, sentinel := range sentinels {
			if is, want := errors.Is(err, sentinel), sentinel == all[o]; is != want { //nolint:errorlint // which one it is
				t.Errorf("%v: errors.Is with %s is %v, want %v", o, name, is, want)
			}
		}
		if err != nil && errors.Is(err, nil) {
			t.Errorf("%v matches nil", o)
		}
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	cause := fmt.Errorf("dial: %w", os.ErrDeadlineExceeded)
	e := &fedhttp.Error{Err: cause, Decision: fedhttp.Decision{
		Peer: "b", Capability: "summarise", Outcome: fedhttp.OutcomeRoutingFailed, Reason: fedhttp.ReasonRefreshFailed, CorrelationID: "rt-7",
		PolicyReason: "SCOPE_NARROWED", Attempts: 2, RetryAt: time.Unix(0, 0),
	}}
	for _, want := range []string{
		"fedhttp: ", `"b"`, fedhttp.ErrRouting.Error(), "refresh_failed", "summarise", "rt-7", "SCOPE_NARROWED", "1970-01-01T00:00:00Z", "dial: ",
	} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%q does not say %q", e, want)
		}
	}
	if !errors.Is(e, os.ErrDeadlineExceeded) || errors.Unwrap(e) != cause { //nolint:errorlint // the very cause
		t.Error("the cause is lost")
	}
	var target *fedhttp.Error
	if !errors.As(fmt.Errorf("wrapped: %w", e), &target) || target != e {
		t.Error("errors.As does not find it")
	}
	bare := (&fedhttp.Error{Decision: fedhttp.Decision{Outcome: fedhttp.OutcomeCanceled}}).Error()
	if bare != "fedhttp: canceled" {
		t.Errorf("a bare error says %q", bare)
	}
	odd := &fedhttp.Error{Decision: fedhttp.Decision{Peer: "b", Capability: "\x1b\n" + strings.Repeat("c", 1<<20)}}
	if !printableASCII(odd.Error(), 2048) {
		t.Errorf("a capability of odd bytes gives %.200q", odd)
	}
}

type timeout bool

func (timeout) Error() string   { return "timeout" }
func (t timeout) Timeout() bool { return bool(t) }

// TestErrorTimeout: only a call that was sent can have timed out on the wire.
func TestErrorTimeout(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err      error
		attempts int
		want     bool
	}{
		{nil, 1, false},
		{errBase, 1, false},
		{context.DeadlineExceeded, 1, true},
		{context.DeadlineExceeded, 0, false},
		{context.Canceled, 1, false},
		{timeout(true), 2, true},
		{timeout(false), 2, false},
		{fmt.Errorf("wrapped: %w", timeout(true)), 1, true},
	} {
		e := &fedhttp.Error{Err: test.err, Decision: fedhttp.Decision{Outcome: fedhttp.OutcomeAmbiguous, Attempts: test.attempts}}
		if got := e.Timeout(); got != test.want {
			t.Errorf("%v after %d attempts: Timeout is %v, want %v", test.err, test.attempts, got, test.want)
		}
	}
}
