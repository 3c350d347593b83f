package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// vtRetryRig has an anchor that was fetched long before the test begins, so that
// a refresh need not wait for MinRefreshInterval.
func vtRetryRig(t *testing.T, retry RetryPolicy, more ...func(*Config, *Peer)) *vtRig {
	t.Helper()
	var r *vtRig
	r = newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
		p.Retry, p.Receipt = retry, IgnoreReceipt
		cfg.Anchors = anchorFunc(func(ctx context.Context, peer string) (Anchor, error) { return r.source(ctx, peer) })
		for _, change := range more {
			change(cfg, p)
		}
	})
	if res := r.get(t.Context(), Task{ID: "first"}); res.err != nil {
		t.Fatal(res.err)
	}
	time.Sleep(time.Hour)
	r.begin = time.Now()
	return r
}

// sentAt returns when each request of the task arrived.
func (r *vtRig) sentAt(task string) (at []time.Duration) {
	for _, e := range r.peer.Routing.Log() {
		if e.Task == task {
			at = append(at, e.Time.Sub(r.begin))
		}
	}
	return at
}

func vtWithin(t *testing.T, what string, got, low, high time.Duration) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: %v is not from %v to %v", what, got, low, high)
	}
}

// vtDrop is a routing failure with a Retry-After, several where there are several.
func vtDrop(retryAfter ...string) fedtest.Step {
	h := http.Header{fedtest.HeaderPolicyEvaluated: {"false"}}
	if retryAfter != nil {
		h["Retry-After"] = retryAfter
	}
	return fedtest.Raw(503, h, "come back later")
}

func TestBackoffBounds(t *testing.T) {
	t.Parallel()
	for _, p := range []RetryPolicy{
		{}, {MinBackoff: time.Second, MaxBackoff: time.Second}, {MinBackoff: 1, MaxBackoff: math.MaxInt64},
		{MinBackoff: time.Nanosecond, MaxBackoff: 2 * time.Nanosecond}, {MinBackoff: time.Minute},
	} {
		p = p.withDefaults(func(field, format string, args ...any) { t.Errorf(field+": "+format, args...) })
		for _, resend := range []int{1, 2, 3, 5, 10, 31, 62, 63, 64, 1000, math.MaxInt} {
			seen := map[time.Duration]bool{}
			ceiling := p.MaxBackoff
			if resend < 62 && p.MinBackoff < p.MaxBackoff>>resend {
				ceiling = p.MinBackoff << resend
			}
			for range 200 {
				wait := backoff(p, resend)
				vtWithin(t, fmt.Sprintf("%+v, resend %d", p, resend), wait, p.MinBackoff, ceiling)
				seen[wait] = true
			}
			if ceiling-p.MinBackoff > time.Millisecond && len(seen) < 100 {
				t.Errorf("%+v, resend %d: 200 waits have %d lengths: no jitter", p, resend, len(seen))
			}
		}
	}
}

func TestBackoffOnTheWire(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtRetryRig(t, RetryPolicy{MaxAttempts: 6, MinRefreshInterval: time.Nanosecond})
		r.peer.Otherwise(vtDrop())
		res := r.get(t.Context(), Task{ID: "t"})
		vtWant(t, "reason", res.d.Reason, ReasonAttemptsExhausted)
		vtWant(t, "body", res.body, "come back later")
		at := r.sentAt("t")
		vtWant(t, "sends", len(at), 6)
		for i := range at[1:] {
			ceiling := min(100*time.Millisecond<<(i+1), 5*time.Second)
			vtWithin(t, fmt.Sprint("wait ", i+1), at[i+1]-at[i], 100*time.Millisecond, ceiling)
		}
		vtWant(t, "returned at", res.at, at[5])
	})
}

func TestRetryAfter(t *testing.T) {
	begin := time.Date(2000, 1, 1, 1, 0, 0, 0, time.UTC) // the bubble's clock after vtRetryRig
	date := func(d time.Duration) string { return begin.Add(d).Format(http.TimeFormat) }
	const soon = 200 * time.Millisecond // no longer than the backoff
	for _, row := range []struct {
		name   string
		values []string
		wait   time.Duration // zero: not resent
		reason Reason
	}{
		{"absent", nil, soon, 0},
		{"zero", []string{"0"}, soon, 0},
		{"seconds", []string{"2"}, 2 * time.Second, 0},
		{"leading zeros", []string{"0002"}, 2 * time.Second, 0},
		{"MaxBackoff", []string{"5"}, 5 * time.Second, 0},
		{"beyond MaxBackoff", []string{"6"}, 0, ReasonRetryAfterTooLong},
		{"a year", []string{"31536000"}, 0, ReasonRetryAfterTooLong},
		{"the longest duration", []string{"9223372036"}, 0, ReasonRetryAfterTooLong},
		{"overflows a duration", []string{"9223372037"}, 0, ReasonRetryAfterInvalid},
		{"wraps to a short duration", []string{"18446744074"}, 0, ReasonRetryAfterInvalid},
		{"overflows an int64", []string{"9223372036854775808"}, 0, ReasonRetryAfterInvalid},
		{"overflows a uint64", []string{"18446744073709551617"}, 0, ReasonRetryAfterInvalid},
		{"hundreds of digits", []string{strings.Repeat("1", 300)}, 0, ReasonRetryAfterInvalid},
		{"negative", []string{"-1"}, 0, ReasonRetryAfterInvalid},
		{"signed", []string{"+2"}, 0, ReasonRetryAfterInvalid},
		{"fraction", []string{"1.5"}, 0, ReasonRetryAfterInvalid},
		{"hexadecimal", []string{"0x2"}, 0, ReasonRetryAfterInvalid},
		{"words", []string{"soon"}, 0, ReasonRetryAfterInvalid},
		{"empty", []string{""}, 0, ReasonRetryAfterInvalid},
		{"date", []string{date(3 * time.Second)}, 3 * time.Second, 0},
		{"RFC 850 date", []string{begin.Add(3 * time.Second).Format("Monday, 02-Jan-06 15:04:05 GMT")}, 3 * time.Second, 0},
		{"asctime date", []string{begin.Add(3 * time.Second).Format(time.ANSIC)}, 3 * time.Second, 0},
		{"date beyond MaxBackoff", []string{date(time.Minute)}, 0, ReasonRetryAfterTooLong},
		{"date of now", []string{date(0)}, soon, 0},
		{"past date", []string{date(-time.Hour)}, soon, 0},
		{"no date", []string{"Mon, 32 Jan 2000 00:00:00 GMT"}, 0, ReasonRetryAfterInvalid},
		{"equal duplicates", []string{"2", "2"}, 2 * time.Second, 0},
		{"duplicates that differ", []string{"1", "2"}, 0, ReasonRetryAfterInvalid},
		{"a number and a date", []string{"3", date(3 * time.Second)}, 0, ReasonRetryAfterInvalid},
		{"combined", []string{"2, 2"}, 0, ReasonRetryAfterInvalid},
	} {
		t.Run(row.name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtRetryRig(t, RetryPolicy{})
				r.peer.On("t", vtDrop(row.values...))
				res := r.get(t.Context(), Task{ID: "t"})
				vtWant(t, "reason", res.d.Reason, row.reason)
				at := r.sentAt("t")
				if row.wait == 0 {
					vtWant(t, "outcome", res.d.Outcome, OutcomeRoutingFailed)
					vtWant(t, "sends", len(at), 1)
					vtWant(t, "returned at", res.at, 0)
					vtWant(t, "body", res.body, "come back later")
					return
				}
				vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
				vtWant(t, "sends", len(at), 2)
				if row.wait == soon {
					vtWithin(t, "wait", at[1], 100*time.Millisecond, soon)
				} else {
					vtWant(t, "wait", at[1], row.wait)
				}
			})
		})
	}
}

// TestRetryDeadline: a wait that the context has no time for is not begun.
func TestRetryDeadline(t *testing.T) {
	for name, row := range map[string]struct {
		deadline time.Duration
		retry    RetryPolicy
		sends    int
	}{
		"one nanosecond short": {4*time.Second - 1, RetryPolicy{}, 1},
		"exactly as long":      {4 * time.Second, RetryPolicy{}, 1},
		"one nanosecond more":  {4*time.Second + 1, RetryPolicy{}, 2},
		"none":                 {0, RetryPolicy{}, 2},
		"backoff too long":     {time.Minute, RetryPolicy{MinBackoff: time.Minute, MaxBackoff: time.Minute}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtRetryRig(t, row.retry)
				r.peer.On("t", vtDrop("4"))
				ctx := t.Context()
				if row.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, row.deadline)
					defer cancel()
				}
				res := r.get(ctx, Task{ID: "t"})
				vtWant(t, "sends", r.peer.Sends("t"), row.sends)
				if row.sends == 1 {
					vtWant(t, "outcome", res.d.Outcome, OutcomeRoutingFailed)
					vtWant(t, "reason", res.d.Reason, ReasonDeadline)
					vtWant(t, "returned at", res.at, 0)
					vtWant(t, "body", res.body, "come back later")
				}
			})
		})
	}
}

// TestRetryRefreshBeyondDeadline: neither is a fetch waited for that may not
// begin before the deadline.
func TestRetryRefreshBeyondDeadline(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtRetryRig(t, RetryPolicy{MinRefreshInterval: 2 * time.Hour})
		r.peer.On("t", vtDrop())
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		res := r.get(ctx, Task{ID: "t"})
		vtWant(t, "reason", res.d.Reason, ReasonDeadline)
		vtWant(t, "returned at", res.at, 0)
		vtWant(t, "body", res.body, "come back later")
	})
}

// TestRetryContextEnds: the caller ends its call during the wait before a
// resend, or its deadline passes during the fetch.
func TestRetryContextEnds(t *testing.T) {
	cause := errors.New("the user went home")
	for name, duringFetch := range map[string]bool{"backoff": false, "fetch": true} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				hang := false
				var r *vtRig
				r = vtRetryRig(t, RetryPolicy{}, func(cfg *Config, _ *Peer) {
					cfg.Anchors = anchorFunc(func(ctx context.Context, peer string) (Anchor, error) {
						if hang {
							<-ctx.Done()
						}
						return r.source(ctx, peer)
					})
				})
				hang = duringFetch
				r.peer.On("t", vtDrop("4"))
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(2*time.Second, func() { cancel(cause) })
				res := r.get(ctx, Task{ID: "t"})
				vtWant(t, "at", res.at, 2*time.Second)
				vtWant(t, "sends", r.peer.Sends("t"), 1)
				// A response was obtained, so it is what the caller gets.
				vtWant(t, "outcome", res.d.Outcome, OutcomeCanceled)
				if res.err != nil {
					t.Errorf("a response was obtained, and lost: %v", res.err)
				}
			})
		})
	}
}

// TestRetryPreflightAgain: what was agreed at the first send must still hold at
// the next.
func TestRetryPreflightAgain(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*vtRig)
		reason Reason
	}{
		"revoked":        {func(r *vtRig) { r.book.Revoke(vtKey("cap", 1), "d1") }, ReasonNotAccepted},
		"newer epoch":    {func(r *vtRig) { r.advertise("cap", 2, "d2") }, ReasonNotAccepted},
		"withdrawn":      {func(r *vtRig) { r.book.Withdraw("b", "cap") }, ReasonNotAdvertised},
		"denied":         {func(r *vtRig) { r.vtDenied(Task{ID: "other", Capability: "cap"}, fedtest.Verdict{}) }, ReasonDeniedBefore},
		"marked":         {func(r *vtRig) { r.tr.SetDegraded("b", true) }, ReasonPeerDegraded},
		"nothing":        {func(*vtRig) {}, ReasonNone},
		"another policy": {func(r *vtRig) { r.advertise("cap", 2, "d2"); r.accept("cap", 2, "d2") }, ReasonNone},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtRetryRig(t, RetryPolicy{})
				r.advertise("cap", 1, "d1")
				r.accept("cap", 1, "d1")
				r.peer.On("t", vtDrop("4"))
				time.AfterFunc(2*time.Second, func() { row.change(r) })
				res := r.get(t.Context(), vtTask("t"))
				vtWant(t, "reason", res.d.Reason, row.reason)
				vtWant(t, "at", res.at, 4*time.Second)
				if row.reason != ReasonNone {
					vtWant(t, "outcome", res.d.Outcome, OutcomeRoutingFailed)
					vtWant(t, "sends", r.peer.Sends("t"), 1)
					vtWant(t, "body", res.body, "come back later")
					return
				}
				vtWant(t, "sends", r.peer.Sends("t"), 2)
				log := r.peer.Routing.Log()
				vtWant(t, "digest of the resend", log[len(log)-1].AskedDigest, res.d.PolicyDigest)
			})
		})
	}
}

func TestAttemptTimeout(t *testing.T) {
	drip := http.Header{
		fedtest.HeaderPolicyEvaluated: {"true"}, "Content-Type": {"application/problem+json"},
	}
	for name, row := range map[string]struct {
		step    fedtest.Step
		outcome Outcome
		err     error
	}{
		"before the header": {fedtest.Hang(), OutcomeAmbiguous, ErrBoundary},
		"late header":       {fedtest.Delay(8*time.Second, fedtest.Pass()), OutcomeAmbiguous, ErrBoundary},
		"header in time":    {fedtest.Delay(7*time.Second-1, fedtest.Pass()), OutcomeDelivered, nil},
		"dripping body":     {fedtest.Drip(403, drip, strings.Repeat(" ", 100), time.Minute), OutcomeRejected, ErrRejected},
		"endless body":      {fedtest.Endless(403, drip, time.Second), OutcomeRejected, ErrRejected},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtRetryRig(t, RetryPolicy{AttemptTimeout: 7 * time.Second}, func(_ *Config, p *Peer) {
					p.Signals.ReadProblemDetail = true
				})
				r.peer.On("t", row.step)
				resp, err := r.client.Do(r.request(t.Context(), http.MethodGet, Task{ID: "t"}, nil))
				vtWithin(t, "returned at", r.elapsed(), 7*time.Second-1, 7*time.Second)
				var d Decision
				var fault *Error
				if err == nil {
					d, _ = DecisionFromResponse(resp)
					if row.outcome == OutcomeRejected {
						// The reason was not waited for any longer; the body goes on.
						if n, err := io.CopyN(io.Discard, resp.Body, 64); err != nil {
							t.Errorf("after %d bytes the body ends: %v", n, err)
						}
					}
					resp.Body.Close()
				} else if errors.As(err, &fault) {
					d = fault.Decision
					if !errors.Is(err, row.err) || !fault.Timeout() {
						t.Errorf("%v: want %v, and a timeout", err, row.err)
					}
				}
				vtWant(t, "outcome", d.Outcome, row.outcome)
				vtWant(t, "sends", r.peer.Sends("t"), 1)
			})
		})
	}
}

// TestRetryDrain: a response that a resend replaces holds it up for a second at
// most, however its body comes.
func TestRetryDrain(t *testing.T) {
	h := http.Header{fedtest.HeaderPolicyEvaluated: {"false"}}
	for name, row := range map[string]struct {
		step fedtest.Step
		most time.Duration
	}{
		"dripping": {fedtest.Drip(503, h, strings.Repeat("x", 1000), time.Minute), time.Second},
		"endless":  {fedtest.Endless(503, h, 0), 0},
		"short":    {fedtest.Raw(503, h, "short"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtRetryRig(t, RetryPolicy{})
				r.peer.On("t", row.step)
				res := r.get(t.Context(), Task{ID: "t"})
				vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
				at := r.sentAt("t")
				vtWant(t, "sends", len(at), 2)
				vtWithin(t, "resent at", at[1], 100*time.Millisecond, 200*time.Millisecond+row.most)
			})
		})
	}
}
