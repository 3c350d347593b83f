package fedhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"github.com/fedhttp/fedhttp/fedtest"
)

// logged returns the lines as JSON objects, without their times.
func (l *vtLog) logged(t *testing.T) (all []map[string]any) {
	t.Helper()
	for _, line := range l.lines() {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		delete(fields, "time")
		all = append(all, fields)
	}
	return all
}

func (l *vtLog) json(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}))
}

// TestLogLevels: every outcome has its level, and nothing that was delivered is logged.
func TestLogLevels(t *testing.T) {
	want := map[Outcome]slog.Level{
		OutcomeRejected: slog.LevelWarn, OutcomeRoutingFailed: slog.LevelError, OutcomeAmbiguous: slog.LevelError,
		OutcomePolicyUnresolved: slog.LevelInfo, OutcomeScopeDenied: slog.LevelWarn, OutcomePeerUnavailable: slog.LevelWarn,
		OutcomeUnknownPeer: slog.LevelWarn, OutcomeTaskRequired: slog.LevelWarn, OutcomePolicyMismatch: slog.LevelError,
		OutcomeCanceled: slog.LevelDebug,
	}
	if len(logLevels) != len(outcomeNames) {
		t.Fatalf("%d levels for %d outcomes", len(logLevels), len(outcomeNames))
	}
	for i := range outcomeNames {
		outcome := Outcome(i)
		if outcome == OutcomeDelivered {
			continue // and nothing is told
		}
		var log vtLog
		tr := newTestTransport(t, Config{Logger: log.json(slog.LevelDebug), Peers: []Peer{testPeer("b", "https://b.example")}})
		c := &call{preflight: preflight{Context: t.Context(), place: &place{t: tr}, task: &noTask}, outcome: outcome}
		tr.logDecision(c, 0, nil)
		level, logged := want[outcome]
		lines := log.logged(t)
		if logged != (len(lines) == 1) {
			t.Errorf("%v: %d lines", outcome, len(lines))
			continue
		}
		if logged && (lines[0]["level"] != level.String() || lines[0]["outcome"] != outcome.String()) {
			t.Errorf("%v: %v, want level %v", outcome, lines[0], level)
		}
	}
}

// TestLogLine has everything that a line tells.
func TestLogLine(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var log vtLog
		spans := newSpans()
		r := vtTraceRig(t, spans, func(cfg *Config, _ *Peer) { cfg.Logger, cfg.Escalator = log.json(slog.LevelDebug), nil })
		r.advertise("cap", 3, "d3")
		r.accept("cap", 3, "d3")
		r.get(t.Context(), vtTask("fine"))
		r.peer.On("t", fedtest.Raw(403, http.Header{"X-Correlation-Id": {"c-1"}, fedtest.HeaderPolicyEvaluated: {"true", "false"}}, ""))
		r.get(t.Context(), vtTask("t"))
		span := spans.named("federation")[1].SpanContext()
		want := []map[string]any{{
			"level": "ERROR", "msg": "fedhttp: not delivered", "peer": "b", "outcome": "ambiguous", "reason": "contradictory_signals",
			"correlation_id": "c-1", "capability": "cap", "task": "t", "digest": "d3", "anchor_version": "1", "delivery": "answered",
			"attempts": 1.0, "evidence": []any{map[string]any{"source": "header", "layer": "unknown"}}, "escalation": "ambiguous",
			"trace_id": span.TraceID().String(), "span_id": span.SpanID().String(),
		}}
		if diff := cmp.Diff(want, log.logged(t)); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// TestLogTrace: without a tracer of our own the ids are those of the caller's span.
func TestLogTrace(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var log vtLog
		r := newRig(t, fedtest.Config{}, func(cfg *Config, _ *Peer) { cfg.Logger = log.json(slog.LevelInfo) })
		r.peer.On("t", fedtest.Deny("NARROWED"))
		parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
		r.get(trace.ContextWithSpanContext(t.Context(), parent), Task{ID: "t"})
		r.peer.On("u", fedtest.Deny("NARROWED"))
		r.get(t.Context(), Task{ID: "u"})
		lines := log.logged(t)
		vtWant(t, "lines", len(lines), 2)
		vtWant[any](t, "trace", lines[0]["trace_id"], parent.TraceID().String())
		vtWant[any](t, "span", lines[0]["span_id"], parent.SpanID().String())
		if _, present := lines[1]["trace_id"]; present {
			t.Errorf("a trace id without a trace: %v", lines[1])
		}
	})
}

// TestLogSecrets: nothing that a URL hides and nothing hostile is in a line.
func TestLogSecrets(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var log vtLog
		hostile := "\x1b[31mred\r\nlevel=ERROR \u202e" + strings.Repeat("x", 10_000)
		r := vtTraceRig(t, newSpans(), func(cfg *Config, _ *Peer) {
			cfg.Logger, cfg.Anchors = log.logger(), nil
			cfg.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
				if req.Header.Get(fedtest.HeaderTask) == "error" {
					return nil, &url.Error{Op: "Get", URL: "https://user:secret@b.example/?token=secret", Err: errors.New(hostile)}
				}
				return vtAnswer(req, 403, fedtest.HeaderCorrelationID, hostile, fedtest.HeaderPolicyReason, hostile, fedtest.HeaderPolicyEvaluated, "true"), nil
			})
		})
		for _, id := range []string{"error", "answer"} {
			ctx := ContextWithTask(t.Context(), Task{ID: hostile, Capability: hostile, Scope: hostile})
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.peer.URL+"/?token=secret", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(fedtest.HeaderTask, id)
			req.Header.Set("Authorization", "Bearer secret")
			r.do(req)
		}
		lines := log.lines()
		vtWant(t, "lines", len(lines), 2)
		for _, line := range lines {
			if strings.Contains(line, "secret") || len(line) > 5000 || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(c rune) bool { return c < ' ' || c > '~' }) {
				t.Errorf("%.200q, of %d bytes", line, len(line))
			}
		}
	})
}

// TestLogStorm: a storm is ten lines and a count, of each reason; what others do
// is not lost in it.
func TestLogStorm(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var log vtLog
		r := newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
			vtAmbiguous(cfg, p)
			cfg.Logger = log.json(slog.LevelInfo)
		})
		began := time.Now()
		for i := range 1000 {
			r.get(t.Context(), Task{ID: fmt.Sprint(i)})
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		r.get(t.Context(), Task{ID: "pending", Capability: "cap", Obligations: Terms{"a": "b"}, PolicyDeadline: time.Now().Add(time.Nanosecond)})
		vtWant(t, "lines", len(log.lines("ambiguous")), logBurst)
		vtWant(t, "lines of another outcome", len(log.lines("policy_unresolved")), 1)
		time.Sleep(logWindow)
		more := log.lines("more of the same")
		vtWant(t, "counts", len(more), 1)
		lines := log.logged(t)
		if diff := cmp.Diff(map[string]any{
			"level": "ERROR", "msg": "fedhttp: not delivered, more of the same", "peer": "b", "outcome": "ambiguous",
			"reason": "no_signal", "lines": 990.0, "since": began.Format(time.RFC3339Nano),
		}, lines[len(lines)-1]); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}

		// The next storm has lines again, and Close does not swallow its count.
		for range logBurst + 3 {
			r.get(t.Context(), Task{ID: "again"})
		}
		vtWant(t, "lines", len(log.lines("again")), logBurst)
		if err := r.tr.Close(); err != nil {
			t.Fatal(err)
		}
		vtWant(t, "counts", len(log.lines("more of the same")), 2)
		vtWant(t, "the last count", len(log.lines("more of the same", `"lines":3,`)), 1)
		time.Sleep(2 * logWindow)
		vtWant(t, "counts", len(log.lines("more of the same")), 2)
	})
}

// TestLogSlow: lines that are far apart are all written.
func TestLogSlow(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var log vtLog
		r := newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
			vtAmbiguous(cfg, p)
			cfg.Logger = log.json(slog.LevelInfo)
		})
		for range 5 * logBurst {
			r.get(context.Background(), Task{ID: "t"})
			time.Sleep(logWindow / logBurst)
		}
		vtWant(t, "lines", len(log.lines("task")), 5*logBurst)
		vtWant(t, "counts", len(log.lines("more")), 0)
	})
}

// TestGossipIsNoFlood: a peer that advertises one epoch after the other does not
// fill the log of a program that has no Coordinator.
func TestGossipIsNoFlood(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var log vtLog
		r := vtHoldRig(t, HoldPolicy{MaxWait: time.Hour}, func(cfg *Config, _ *Peer) { cfg.Logger, cfg.Coordinator = log.logger(), nil })
		done := r.hold(t.Context(), vtTask("t"))
		const epochs = 500
		for epoch := range uint64(epochs) {
			r.advertise("cap", epoch+1, fmt.Sprint("d", epoch))
			synctest.Wait()
		}
		r.accept("cap", epochs, fmt.Sprint("d", epochs-1))
		done()
		time.Sleep(2 * logWindow)
		if n := len(log.lines("policy unresolved")); n == 0 || n > 2*logBurst+2 {
			t.Errorf("%d lines for %d epochs", n, epochs)
		}
	})
}

// TestFloodAfterClose: calls that were in flight at Close are a count as well.
func TestFloodAfterClose(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var log vtLog
		answer := make(chan struct{})
		r := newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
			p.Breaker.Failures, cfg.Logger = -1, log.logger()
			cfg.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
				<-answer
				return vtAnswer(req, 503), nil
			})
		})
		const calls = 100
		done := make(chan vtResult, calls)
		for range calls {
			go func() { done <- r.get(t.Context(), Task{ID: "t"}) }()
		}
		synctest.Wait()
		if err := r.tr.Close(); err != nil {
			t.Fatal(err)
		}
		close(answer)
		for range calls {
			<-done
		}
		vtWant(t, "lines", len(log.lines("ambiguous")), logBurst)
		time.Sleep(2 * logWindow)
		vtWant(t, "counts", len(log.lines("more of the same", fmt.Sprint("lines=", calls-logBurst))), 1)
	})
}
