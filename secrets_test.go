package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fedhttp/fedhttp/fedtest"
)

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

// Errors of our own side's sources and bases may hold URLs with secrets.
func TestNoSecretsInErrors(t *testing.T) {
	t.Parallel()
	secret := &url.Error{Op: "Get", URL: "https://user:hunter2@c.example/anchor?token=hunter2", Err: errors.New("refused")}
	wrapped := fmt.Errorf("signing: %w", secret)
	p := bPeer
	p.RequireAnchor = true
	withAnchors := Config{Peers: []Peer{p}, Anchors: anchorFunc(func(context.Context, string) (Anchor, error) { return Anchor{}, wrapped })}
	withBase := Config{Peers: []Peer{bPeer}, Base: roundTripFunc(func(*http.Request) (*http.Response, error) { return nil, wrapped })}
	for name, cfg := range map[string]Config{"anchors": withAnchors, "base": withBase} {
		_, err := getFrom(t, bubbleTransport(t, cfg), t.Context())
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "c.example") {
			t.Errorf("%s: %v", name, err)
		}
		if !errors.Is(err, secret.Err) {
			t.Errorf("%s: the cause is lost", name)
		}
	}
}
