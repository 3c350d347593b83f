package fedhttp

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

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
