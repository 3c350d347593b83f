package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestAttemptContextEnds: its end is the attempt's or the call's, whichever is
// first, and whoever asks and when.
func TestAttemptContextEnds(t *testing.T) {
	t.Parallel()
	cause := errors.New("enough")
	for name, c := range map[string]struct {
		end  func(a *attempt, call context.CancelCauseFunc)
		want error
	}{
		"by itself":             {func(a *attempt, _ context.CancelCauseFunc) { a.cancel() }, context.Canceled},
		"twice":                 {func(a *attempt, _ context.CancelCauseFunc) { a.cancel(); a.cancel() }, context.Canceled},
		"by the call":           {func(_ *attempt, call context.CancelCauseFunc) { call(cause) }, cause},
		"by itself, then again": {func(a *attempt, call context.CancelCauseFunc) { a.cancel(); call(cause) }, context.Canceled},
	} {
		for _, asked := range []bool{false, true} {
			parent, cancel := context.WithCancelCause(t.Context())
			a := &attempt{}
			ctx := a.open(parent)
			if asked && ctx.Done() == nil {
				t.Fatal("it has no end")
			}
			if ctx.Err() != nil {
				t.Errorf("%s: it has ended before: %v", name, ctx.Err())
			}
			c.end(a, cancel)
			select {
			case <-ctx.Done():
			default:
				t.Errorf("%s, asked %v: it has not ended", name, asked)
			}
			if !errors.Is(ctx.Err(), context.Canceled) || asked && !errors.Is(context.Cause(ctx), c.want) {
				t.Errorf("%s, asked %v: it ended with %v, %v; want %v", name, asked, ctx.Err(), context.Cause(ctx), c.want)
			}
			child, stop := context.WithCancel(ctx)
			if child.Err() == nil {
				t.Errorf("%s, asked %v: a context that derives from it goes on", name, asked)
			}
			stop()
			cancel(nil)
		}
	}
}

// TestAttemptContextDerived: what derives from it ends with it, and needs no
// goroutine for that, also through contexts in between.
func TestAttemptContextDerived(t *testing.T) {
	checkLeaks(t)
	a := &attempt{}
	ctx := a.open(context.WithValue(t.Context(), taskKey{}, &Task{ID: "t"}))
	type key struct{}
	child, stop := context.WithCancel(context.WithValue(ctx, key{}, 1))
	defer stop()
	if taskOf(child).ID != "t" {
		t.Error("the call's values are lost")
	}
	if deadline, ok := child.Deadline(); ok != hasDeadline(t) {
		t.Errorf("deadline %v, %v", deadline, ok)
	}
	a.cancel()
	if child.Err() == nil { // at once: nobody had to notice
		t.Error("it goes on")
	}
}

func hasDeadline(t *testing.T) bool {
	_, ok := t.Context().Deadline()
	return ok
}

// TestAttemptContextRace: it ends once, whoever asks for its end meanwhile.
func TestAttemptContextRace(t *testing.T) {
	t.Parallel()
	for range 200 {
		a := &attempt{}
		ctx := a.open(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Second):
					t.Error("somebody was not told")
				}
			})
			wg.Go(a.cancel)
		}
		wg.Wait()
	}
}

// TestAttemptContextTrace: net/http finds the fence's hooks, and the caller's own
// go on being called.
func TestAttemptContextTrace(t *testing.T) {
	t.Parallel()
	if traceKey == nil {
		t.Error("net/http's key was not found out")
	}
	var asked []string
	callers := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GetConn: func(at string) { asked = append(asked, at) }})
	for _, parent := range []context.Context{t.Context(), callers} {
		a := &attempt{}
		ctx := a.open(parent)
		found := httptrace.ContextClientTrace(ctx)
		if found == nil || found.GetConn == nil {
			t.Fatal("there are no hooks")
		}
		found.GetConn("b.example:443")
		if !a.fence.asked {
			t.Error("the fence has not heard of it")
		}
		if httptrace.ContextClientTrace(context.WithValue(ctx, taskKey{}, 1)) != found {
			t.Error("a context in between hides them")
		}
	}
	if len(asked) != 1 {
		t.Errorf("the caller's hook was called %d times, want once", len(asked))
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
