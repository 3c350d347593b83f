package fedhttp

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/fedhttp/fedhttp/fedtest"
)

// panicking and panickingCounter are what a program has got wrong.
type (
	panicking        struct{ slog.Handler }
	panickingCounter struct{ metricnoop.Int64Counter }
)

func (panicking) Enabled(context.Context, slog.Level) bool  { return true }
func (panicking) Handle(context.Context, slog.Record) error { panic("a handler on fire") }

func (panickingCounter) Add(context.Context, int64, ...metric.AddOption) { panic("a counter on fire") }

// TestPanickingHandler: neither calls nor goroutines of ours fall to a log.
func TestPanickingHandler(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{MaxWait: time.Minute}, func(cfg *Config, p *Peer) {
			vtAmbiguous(cfg, p)
			cfg.Logger = slog.New(panicking{})
			cfg.Coordinator = nil
			cfg.Escalator = escalatorFunc(func(context.Context, Escalation) { panic("and a sink") })
		})
		for range 2 * logBurst {
			vtWant(t, "outcome", r.get(t.Context(), Task{ID: "t"}).d.Outcome, OutcomeAmbiguous)
		}
		r.vtUnsent(r.get(t.Context(), vtTask("held")), "held", ReasonHoldTimeout)
		time.Sleep(2 * logWindow) // the counts are written
		synctest.Wait()
		vtWant(t, "held", r.status().Held, 0)
	})
}

// TestPanickingMeter: a fetch of ours ends for everybody who waits.
func TestPanickingMeter(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := newRig(t, fedtest.Config{}, func(cfg *Config, _ *Peer) {
			cfg.Anchors = anchorFunc(func(context.Context, string) (Anchor, error) { return Anchor{Version: "1"}, nil })
		})
		m := r.tr.metrics
		m.live, m.placeholder, m.refreshes = true, nil, panickingCounter{}
		r.state().anchors.kick(time.Second)
		synctest.Wait()
		vtWant(t, "anchor", r.status().AnchorVersion, "1")
	})
}

// panickingTracer fails where a task begins to wait.
type panickingTracer struct{ *vtSpans }

func (p panickingTracer) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return panickingStart{p.vtSpans.Tracer(name, options...)}
}

type panickingStart struct{ trace.Tracer }

func (p panickingStart) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	if name == "federation.hold" {
		panic("a tracer on fire")
	}
	return p.Tracer.Start(ctx, name, options...)
}

type closeCounter struct {
	io.Reader
	closed int
}

func (c *closeCounter) Close() error { c.closed++; return nil }

// TestPanickingTracer: the panic goes to the caller, and nothing stays behind.
func TestPanickingTracer(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		spans := newSpans()
		r := newRig(t, fedtest.Config{}, func(cfg *Config, _ *Peer) { cfg.TracerProvider = panickingTracer{spans} })
		body := &closeCounter{Reader: strings.NewReader("body")}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic is gone")
				}
			}()
			r.do(r.request(t.Context(), http.MethodPost, vtTask("t"), body))
		}()
		vtWant(t, "held", r.status().Held, 0)
		vtWant(t, "closed", body.closed, 1)
		vtWant(t, "spans that have ended", len(spans.recorder.Ended()), len(spans.recorder.Started()))
	})
}

// attemptTracer fails where an attempt begins, once it is told to.
type attemptTracer struct {
	*vtSpans
	fail *bool
}

func (a attemptTracer) Tracer(name string, options ...trace.TracerOption) trace.Tracer {
	return attemptStart{a.vtSpans.Tracer(name, options...), a.fail}
}

type attemptStart struct {
	trace.Tracer
	fail *bool
}

func (a attemptStart) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	if *a.fail && name == "GET" {
		panic("a tracer on fire")
	}
	return a.Tracer.Start(ctx, name, options...)
}

// TestPanicFreesTheSlot: a panic before an attempt has begun costs the half-open
// breaker no slot.
func TestPanicFreesTheSlot(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		fail := false
		r := newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
			cfg.TracerProvider = attemptTracer{newSpans(), &fail}
			p.Breaker = BreakerPolicy{Failures: 1, OpenFor: time.Second}
		})
		r.peer.On("bad", fedtest.Raw(503, nil, ""))
		r.get(t.Context(), Task{ID: "bad"})
		time.Sleep(2 * time.Second)
		fail = true
		func() {
			defer func() { _ = recover() }()
			r.get(t.Context(), Task{ID: "panics"})
			t.Error("no panic")
		}()
		fail = false
		time.Sleep(2 * time.Second)
		vtWant(t, "outcome", r.get(t.Context(), Task{ID: "good"}).d.Outcome, OutcomeDelivered)
	})
}

// TestPanicClosesTheBody: a panic after the base has answered leaves nothing open.
func TestPanicClosesTheBody(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		body := &closeCounter{Reader: strings.NewReader("body")}
		r := newRig(t, fedtest.Config{}, func(cfg *Config, _ *Peer) {
			cfg.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
				resp := vtAnswer(req, 200)
				resp.Body = body
				return resp, nil
			})
		})
		m := r.tr.metrics
		m.live, m.placeholder, m.attempts = true, nil, panickingCounter{}
		func() {
			defer func() { _ = recover() }()
			r.get(t.Context(), Task{ID: "t"})
			t.Error("no panic")
		}()
		vtWant(t, "closed", body.closed > 0, true)
	})
}
