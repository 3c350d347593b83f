package fedhttp

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fedhttp/fedhttp/fedtest"
)

// What a second fresh look has found.

// TestEarlyAnswer: an empty answer on HTTP/2 that comes before the request's body
// has been sent does not end the stream.
func TestEarlyAnswer(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	const size = 100_000
	received := make(chan int64, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		w.(http.Flusher).Flush()
		n, _ := io.Copy(io.Discard, r.Body)
		received <- n
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	tr := newTestTransport(t, Config{Base: server.Client().Transport, Peers: []Peer{testPeer("b", server.URL)}})
	body, feed := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := feed.Write(make([]byte, size)); err != nil {
		t.Errorf("the upload: %v", err)
	}
	feed.Close()
	if n := <-received; n != size {
		t.Errorf("%d bytes arrived, want %d", n, size)
	}
	resp.Body.Close()
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

// indiscreetLedger says more than it should.
type indiscreetLedger struct{ DenialLedger }

func (indiscreetLedger) Record(context.Context, Denial) error {
	return errors.New("redis://user:secret@ledger.example/0?password=secret is down")
}

// TestSecretsOfOthers: what sinks, ledgers and peers say is shown without the
// secrets of the URLs in it.
func TestSecretsOfOthers(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var log vtLog
		spans := newSpans()
		r := vtTraceRig(t, spans, func(cfg *Config, _ *Peer) {
			cfg.Logger = log.logger()
			cfg.Denials = indiscreetLedger{NewDenialLedger()}
			cfg.Escalator = escalatorFunc(func(context.Context, Escalation) { panic("Post https://c.example/?token=secret: refused") })
		})
		echo := "https://user:secret@b.example/?token=secret"
		r.peer.On("denied", fedtest.Raw(403, http.Header{
			fedtest.HeaderPolicyEvaluated: {"true"}, fedtest.HeaderPolicyReason: {echo}, fedtest.HeaderCorrelationID: {echo},
		}, ""))
		vtWant(t, "outcome", r.get(t.Context(), Task{ID: "denied"}).d.Outcome, OutcomeRejected)
		r.peer.On("ambiguous", fedtest.Raw(403, nil, ""))
		vtWant(t, "outcome", r.get(t.Context(), Task{ID: "ambiguous"}).d.Outcome, OutcomeAmbiguous)
		synctest.Wait()
		vtWant(t, "lines", len(log.lines()) >= 4, true)
		if lines := log.lines("secret"); len(lines) > 0 {
			t.Errorf("in the log: %q", lines)
		}
		for _, span := range spans.recorder.Ended() {
			for key, value := range vtAttrs(span) {
				if strings.Contains(value, "secret") {
					t.Errorf("%s: %s is %s", span.Name(), key, value)
				}
			}
		}
	})
}

// TestRefreshGivenUp: a call that stops waiting does not know how the fetch ended.
func TestRefreshGivenUp(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		spans := newSpans()
		r := vtTraceRig(t, spans, func(cfg *Config, _ *Peer) {
			cfg.Logger = slog.New(slog.DiscardHandler)
			cfg.Anchors = anchorFunc(func(context.Context, string) (Anchor, error) {
				time.Sleep(3 * time.Second)
				return Anchor{Version: "1"}, nil
			})
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.get(ctx, Task{ID: "t"})
		wantAttrs(t, "refresh", spans.named("federation.anchor.refresh")[0], "federation.", map[string]string{"peer.id": "STRING b"})
		time.Sleep(time.Minute)
	})
}

// TestDurationIsThePeers: what our side does with an answer is not its duration.
func TestDurationIsThePeers(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		m := newVTMetrics()
		r := vtMetricRig(t, m, func(cfg *Config, _ *Peer) { cfg.Correlation = slowResolver(time.Second) })
		r.peer.On("t", fedtest.Raw(403, http.Header{"X-Correlation-Id": {"c"}}, ""))
		r.get(t.Context(), Task{ID: "t"})
		for _, p := range m.points(t) {
			if strings.HasPrefix(p, "http.client.request.duration") && !strings.HasSuffix(p, "1 in 0") {
				t.Error(p)
			}
		}
	})
}

// chatty says of itself what it likes.
type chatty struct{ error }

func (chatty) ErrorType() string { return "anything" }

func TestErrorTypeIsClosed(t *testing.T) {
	t.Parallel()
	if got := typeOf(chatty{errors.New("x")}); got != "fedhttp.chatty" {
		t.Errorf("error.type is %q", got)
	}
}
