package fedhttp

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Each call that was not delivered is a line in the log: what a program does
// with its error is not known here. A storm of them must not be a flood of lines,
// so in each logWindow only the first logBurst of a peer and reason are written;
// the others are counted, and the count is a line when the window ends.
const (
	logWindow = time.Minute
	logBurst  = 10

	maxWindows = 1000 // above which those that are over are looked for
)

// logLevels are the levels by outcome: an error is what an operator has to look
// at, a warning what the caller's side should, and a policy that is pending is
// the ordinary course of things.
var logLevels = [...]slog.Level{
	OutcomeDelivered:        slog.LevelDebug, // never logged
	OutcomeRejected:         slog.LevelWarn,
	OutcomeRoutingFailed:    slog.LevelError,
	OutcomeAmbiguous:        slog.LevelError,
	OutcomePolicyUnresolved: slog.LevelInfo,
	OutcomeScopeDenied:      slog.LevelWarn,
	OutcomePeerUnavailable:  slog.LevelWarn,
	OutcomeUnknownPeer:      slog.LevelWarn,
	OutcomeTaskRequired:     slog.LevelWarn,
	OutcomePolicyMismatch:   slog.LevelError,
	OutcomeCanceled:         slog.LevelDebug,
}

// logDecision writes the line of a call that was not delivered. kind is that of its
// escalation, where there is one; without an Escalator the line is all that there is
// of it.
func (t *Transport) logDecision(c *call, kind EscalationKind, cause error) {
	d := c.decision()
	level := logLevels[d.Outcome]
	key := logKey{notDelivered, d.Peer, d.Outcome, d.Reason}
	if !t.logs(c, level) || !t.logged.allow(key, time.Now(), t.logSuppressed) {
		return
	}
	attrs := decisionAttrs(&d)
	if d.Escalated {
		attrs = append(attrs, slog.String("escalation", kind.String()))
	}
	if cause != nil {
		attrs = append(attrs, slog.String("error", errorText(cause)))
	}
	if trace, span := c.span.ids(c); trace != "" {
		attrs = append(attrs, slog.String("trace_id", trace), slog.String("span_id", span))
	}
	t.logAttrs(c, level, notDelivered, attrs...)
}

// decisionAttrs are the attributes of a decision that have something to say.
func decisionAttrs(d *Decision) []slog.Attr {
	attrs := make([]slog.Attr, 0, 20)
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	text("peer", d.Peer)
	text("outcome", d.Outcome.String())
	text("reason", d.Reason.String())
	text("correlation_id", d.CorrelationID)
	text("capability", sanitize(d.Capability))
	text("task", sanitize(d.TaskID))
	text("policy_reason", d.PolicyReason)
	text("digest", sanitize(d.PolicyDigest))
	text("anchor_version", sanitize(d.AnchorVersion))
	text("delivery", d.Delivery.String())
	attrs = append(attrs, slog.Int("attempts", d.Attempts))
	if len(d.Evidence) > 0 {
		attrs = append(attrs, slog.Any("evidence", d.Evidence))
	}
	if d.HeldFor > 0 {
		attrs = append(attrs, slog.Duration("held_for", d.HeldFor))
	}
	if !d.RetryAt.IsZero() {
		attrs = append(attrs, slog.Time("retry_at", d.RetryAt))
	}
	return attrs
}

// logSuppressed writes how many lines were left out.
func (t *Transport) logSuppressed(key logKey, lines int, since time.Time) {
	level := logLevels[key.outcome]
	if key.message == unresolvedPolicy {
		level = slog.LevelWarn
	}
	t.logAttrs(context.Background(), level, key.message+", more of the same",
		slog.String("peer", key.peer), slog.String("outcome", key.outcome.String()), slog.String("reason", key.reason.String()),
		slog.Int("lines", lines), slog.Time("since", since))
}

// The messages of the lines that can come in storms.
const (
	notDelivered     = "fedhttp: not delivered"
	unresolvedPolicy = "fedhttp: policy unresolved"
)

// logKey is what lines are counted by. It is a closed set: peers are configured.
type logKey struct {
	message string
	peer    string
	outcome Outcome
	reason  Reason
}

// logLimit counts the lines of each key in its window.
type logLimit struct {
	mu      sync.Mutex
	windows map[logKey]*lineWindow
}

type lineWindow struct {
	start      time.Time
	lines      int
	suppressed int
	timer      *time.Timer // set once a line is suppressed
}

// allow reports whether a line is to be written. Where it is not, tell hears of
// it at the end of the window.
func (l *logLimit) allow(key logKey, now time.Time, tell func(logKey, int, time.Time)) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.windows[key]
	if w == nil {
		if l.windows == nil {
			l.windows = make(map[logKey]*lineWindow)
		}
		if len(l.windows) >= maxWindows {
			for old, idle := range l.windows { // of peers that are gone
				if idle.timer == nil && now.Sub(idle.start) >= logWindow {
					delete(l.windows, old)
				}
			}
		}
		w = &lineWindow{}
		l.windows[key] = w
	}
	if w.timer == nil && now.Sub(w.start) >= logWindow {
		w.start, w.lines = now, 0
	}
	if w.lines < logBurst {
		w.lines++
		return true
	}
	w.suppressed++
	if w.timer == nil {
		w.timer = time.AfterFunc(logWindow-now.Sub(w.start), func() { l.end(key, tell) })
	}
	return false
}

// end closes a window.
func (l *logLimit) end(key logKey, tell func(logKey, int, time.Time)) {
	l.mu.Lock()
	w := l.windows[key]
	if w == nil {
		l.mu.Unlock()
		return
	}
	lines, since := w.suppressed, w.start
	if w.timer != nil {
		w.timer.Stop()
	}
	*w = lineWindow{}
	l.mu.Unlock()
	if lines > 0 {
		tell(key, lines, since)
	}
}

// flush ends all windows at once.
func (l *logLimit) flush(tell func(logKey, int, time.Time)) {
	l.mu.Lock()
	keys := make([]logKey, 0, len(l.windows))
	for key := range l.windows {
		keys = append(keys, key)
	}
	l.mu.Unlock()
	for _, key := range keys {
		l.end(key, tell)
	}
}
