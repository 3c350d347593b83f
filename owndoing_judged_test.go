package fedhttp_test

import (
	"context"
	"net"
	"net/http"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fedhttp/fedhttp"
)

// TestRejectionStaysJudged: a caller who walks away when the attempt has been judged
// changes nothing of it. The denial would be lost, and the task sent again.
func TestRejectionStaysJudged(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tr := newTestTransport(t, fedhttp.Config{
		Peers:          []fedhttp.Peer{testPeer("b", stubURL)},
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(endingProcessor(cancel))),
		Base: roundTripFunc(func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "remote error", Err: remoteAlert(alertAccessDenied)}
		}),
	})
	err := rawSend(tr, requestOf(http.MethodGet, stubURL).WithContext(ctx))
	if ctx.Err() == nil {
		t.Fatal("the caller has not walked away")
	}
	if d := fenceDecision(t, err); d.Outcome != fedhttp.OutcomeRejected {
		t.Errorf("%v (%v), want rejected", d.Outcome, d.Reason)
	}
	if n := tr.Status()[0].Denials; n != 1 {
		t.Errorf("%d denials, want one", n)
	}
}

// endingProcessor is called when a span ends: that of an attempt without a response
// does once it has been judged.
type endingProcessor func()

func (endingProcessor) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (p endingProcessor) OnEnd(sdktrace.ReadOnlySpan)                   { p() }
func (endingProcessor) Shutdown(context.Context) error                  { return nil }
func (endingProcessor) ForceFlush(context.Context) error                { return nil }
