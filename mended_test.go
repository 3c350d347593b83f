package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/fedhttp/fedhttp/fedtest"
)

// What a fresh look at the telemetry has found, so that it stays found.

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

// TestBodylessEnds: where there is nothing to read, an attempt needs no Close to
// end, on HTTP/2 too, where such a body has a type of its own.
func TestBodylessEnds(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/204":
				w.WriteHeader(http.StatusNoContent)
			case "/304":
				w.WriteHeader(http.StatusNotModified)
			case "/zero":
				w.Header().Set("Content-Length", "0")
			case "/body":
				_, _ = io.WriteString(w, "body")
			}
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		defer server.Close()
		for path, want := range map[string]int{"GET /204": 1, "GET /304": 1, "GET /zero": 1, "GET /empty": 1, "HEAD /body": 1, "GET /body": 0} {
			spans := newSpans()
			tr := newTestTransport(t, Config{Base: server.Client().Transport, TracerProvider: spans, Peers: []Peer{testPeer("b", server.URL)}})
			method, path, _ := strings.Cut(path, " ")
			req, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(spans.named(method)); got != want {
				t.Errorf("HTTP/2 %v, %s %s: %d attempts have ended, want %d", http2, method, path, got, want)
			}
			resp.Body.Close()
		}
	}
}

// TestCanceledAttempt: what our own side ends is no verdict on the peer.
func TestCanceledAttempt(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		spans, m := newSpans(), newVTMetrics()
		r := vtTraceRig(t, spans, func(cfg *Config, _ *Peer) { cfg.MeterProvider = m.provider })
		r.peer.On("t", fedtest.Hang())
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		vtWant(t, "outcome", r.get(ctx, Task{ID: "t"}).d.Outcome, OutcomeCanceled)
		wantAttrs(t, "attempt", spans.named("GET")[0], "federation.", map[string]string{"verdict": "STRING none", "delivery": "STRING possible"})
		if points := fmt.Sprint(m.points(t)); strings.Contains(points, "ambiguous") {
			t.Errorf("ambiguous: %s", points)
		}
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

// TestFailedAttemptSpan: an attempt is over when it has failed, and not after the
// refresh and the wait that follow.
func TestFailedAttemptSpan(t *testing.T) {
	for name, fail := range map[string]func(*vtRig){
		"no connection": func(r *vtRig) { r.peer.RefuseConnections(1) },
		"answered":      func(r *vtRig) { r.peer.On("t", vtDrop()) },
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				spans := newSpans()
				r := vtTraceRig(t, spans, func(cfg *Config, _ *Peer) {
					cfg.Anchors = anchorFunc(func(context.Context, string) (Anchor, error) {
						time.Sleep(time.Second)
						return Anchor{Version: "1"}, nil
					})
				})
				r.get(t.Context(), Task{})
				time.Sleep(time.Hour)
				spans.recorder.Reset()
				fail(r)
				vtWant(t, "outcome", r.get(t.Context(), Task{ID: "t"}).d.Outcome, OutcomeDelivered)
				attempts, refresh := spans.named("GET"), spans.named("federation.anchor.refresh")
				vtWant(t, "attempts", len(attempts), 2)
				vtWant(t, "refreshes", len(refresh), 1)
				if d := attempts[0].EndTime().Sub(attempts[0].StartTime()); d != 0 {
					t.Errorf("the failed attempt took %v", d)
				}
			})
		})
	}
}

// TestRefreshNotWaitedFor: a fetch that had ended by then is no refresh of the call.
func TestRefreshNotWaitedFor(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		spans := newSpans()
		r := vtTraceRig(t, spans)
		r.get(t.Context(), Task{})
		time.Sleep(time.Hour)
		r.peer.On("t", fedtest.Delay(10*time.Second, fedtest.RouteDrop(503)))
		time.AfterFunc(time.Second, func() { r.state().anchors.kick(time.Millisecond) })
		spans.recorder.Reset()
		d := r.get(t.Context(), Task{ID: "t"}).d
		vtWant(t, "outcome", d.Outcome, OutcomeDelivered)
		vtWant(t, "refreshes", d.Refreshes, 0)
		vtWant(t, "spans", len(spans.named("federation.anchor.refresh")), 0)
	})
}

// TestEvidenceIsACopy: what a caller does to a decision stays with the caller.
func TestEvidenceIsACopy(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := newRig(t, fedtest.Config{}, func(_ *Config, p *Peer) { p.Retry.MaxAttempts = 1 })
		r.peer.On("t", fedtest.RouteDrop(503))
		res := r.get(t.Context(), Task{ID: "t"})
		res.d.Evidence[0].Layer = LayerPolicy
		again, _ := DecisionFromResponse(res.resp)
		vtWant(t, "asked again", again.Evidence[0].Layer, LayerRouting)
		vtWant(t, "escalation", r.tr.RecentEscalations()[0].Decision.Evidence[0].Layer, LayerRouting)
	})
}

// TestHeldOfRemovedPeer: a peer that comes back finds the tasks that it holds.
func TestHeldOfRemovedPeer(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{MaxWait: time.Hour, Max: 1})
		p := r.tr.peers.Load().peers[0].Peer
		done := r.hold(t.Context(), vtTask("t"))
		for _, peers := range [][]Peer{nil, {p}} {
			if err := r.tr.SetPeers(peers); err != nil {
				t.Fatal(err)
			}
		}
		vtWant(t, "held", r.status().Held, 1)
		r.vtUnsent(r.get(t.Context(), vtTask("u")), "u", ReasonHoldFull)
		r.advertise("cap", 1, "d")
		r.accept("cap", 1, "d")
		done()
		vtWant(t, "held", r.status().Held, 0)
	})
}

// TestBaseHasNoBaggage: an instrumented base sends the baggage that it finds.
func TestBaseHasNoBaggage(t *testing.T) {
	for p, want := range map[Propagation]int{TraceContextOnly: 0, PropagateNone: 0, PropagateAll: 1} {
		t.Run(p.String(), func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := newRig(t, fedtest.Config{}, func(cfg *Config, peer *Peer) {
					peer.Propagation = p
					cfg.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
						vtWant(t, p.String(), baggage.FromContext(req.Context()).Len(), want)
						return nil, errors.New("seen")
					})
				})
				member, err := baggage.NewMember("user", "alice")
				if err != nil {
					t.Fatal(err)
				}
				bag, err := baggage.New(member)
				if err != nil {
					t.Fatal(err)
				}
				r.get(baggage.ContextWithBaggage(t.Context(), bag), Task{ID: "t"})
			})
		})
	}
}

// TestConfigPropagator: the fields of the program's own propagator do not cross.
func TestConfigPropagator(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := newRig(t, fedtest.Config{}, func(cfg *Config, _ *Peer) { cfg.Propagator = oddPropagator{} })
		req := r.request(t.Context(), http.MethodGet, Task{ID: "t"}, nil)
		req.Header["x-odd-trace"] = []string{"1"}
		r.do(req)
		vtWant(t, "crossed", r.peer.Routing.Log()[0].Header.Get("X-Odd-Trace"), "")
	})
}

// TestTraceUnavailable: a call that the breaker refuses shows that the peer is degraded.
func TestTraceUnavailable(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		spans := newSpans()
		r := vtTraceRig(t, spans, func(cfg *Config, p *Peer) {
			vtAmbiguous(cfg, p)
			cfg.Anchors, p.Breaker = nil, BreakerPolicy{Failures: 1}
		})
		r.get(t.Context(), Task{ID: "t"})
		vtWant(t, "outcome", r.get(t.Context(), Task{ID: "u"}).d.Outcome, OutcomePeerUnavailable)
		vtWant(t, "degraded", vtAttrs(spans.named("federation")[1])["federation.peer.degraded"], "BOOL true")
	})
}
