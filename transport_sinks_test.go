package fedhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
)

// What a user plugs in may panic, hang or be slow. No call may break or wait
// for it beyond its bound, and nothing is lost without a line in the log.

type panickingLedger struct {
	denied bool // Denied panics
	record bool // Record panics, else it fails
	calls  atomic.Int64
}

func (l *panickingLedger) Record(context.Context, fedhttp.Denial) error {
	l.calls.Add(1)
	if l.record {
		panic("the ledger is broken")
	}
	return errors.New("the ledger is full\n\x1b[31m")
}

func (l *panickingLedger) Denied(string, fedhttp.Task, fedhttp.Authorization) (fedhttp.Denial, bool) {
	if l.denied {
		panic("the ledger is broken")
	}
	return fedhttp.Denial{}, false
}

func (l *panickingLedger) Forget(string, string) {}

// logBuffer is a logger and what it wrote.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) count(what string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), what)
}

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// get makes a GET with the task and returns its decision.
func get(t *testing.T, rt http.RoundTripper, task fedhttp.Task) (fedhttp.Decision, error) {
	t.Helper()
	ctx := fedhttp.ContextWithTask(context.Background(), task)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, stubURL+"/v1/tasks", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := rt.RoundTrip(req)
	if resp != nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	return decisionOf(t, resp, err)
}

func TestLedgerThatPanics(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	var log logBuffer
	var sends atomic.Int64
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		sends.Add(1)
		return answering(denied())(r)
	})
	for _, ledger := range []*panickingLedger{{record: true}, {}} {
		tr := newTestTransport(t, fedhttp.Config{Base: base, Denials: ledger, Logger: log.logger(), Peers: []fedhttp.Peer{testPeer("b", stubURL)}})
		d, err := get(t, tr, *plainTask)
		if d.Outcome != fedhttp.OutcomeRejected || !errors.Is(err, fedhttp.ErrRejected) {
			t.Errorf("outcome %v, %v; want rejected", d.Outcome, err)
		}
		if n := ledger.calls.Load(); n != 1 {
			t.Errorf("Record was called %d times", n)
		}
		if n := tr.Status()[0].Denials; n != 1 {
			t.Errorf("%d denials are counted, want 1", n)
		}
	}
	if log.count("level=ERROR") != 2 || log.count("\x1b") != 0 {
		t.Errorf("want two errors in the log, escaped:\n%s", log.text.String())
	}

	sends.Store(0)
	tr := newTestTransport(t, fedhttp.Config{Base: base, Denials: &panickingLedger{denied: true}, Logger: log.logger(), Peers: []fedhttp.Peer{testPeer("b", stubURL)}})
	d, err := get(t, tr, *plainTask)
	if d.Reason != fedhttp.ReasonLedgerFailed || !errors.Is(err, fedhttp.ErrScopeDenied) || sends.Load() != 0 {
		t.Errorf("a ledger that panics: %v, %v, %d sends; want ledger_failed and none", d.Reason, err, sends.Load())
	}
	if d, _ := get(t, tr, fedhttp.Task{}); d.Outcome != fedhttp.OutcomeRejected {
		t.Errorf("a request without a capability asks no ledger: %v", d.Outcome)
	}
}

func TestEscalatorThatPanics(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	var log logBuffer
	var told recorder[fedhttp.Escalation]
	tr := newTestTransport(t, fedhttp.Config{
		Base: answering(response(403, "X-Correlation-ID", "c-1")), Logger: log.logger(), Peers: []fedhttp.Peer{testPeer("b", stubURL)},
		Escalator: escalatorFunc(func(_ context.Context, e fedhttp.Escalation) {
			told.add(e)
			panic("the pager is broken")
		}),
	})
	for range 3 {
		if d, _ := get(t, tr, fedhttp.Task{ID: "t1"}); d.Outcome != fedhttp.OutcomeAmbiguous || !d.Escalated {
			t.Errorf("outcome %v, escalated %v", d.Outcome, d.Escalated)
		}
	}
	for _, e := range told.wait(t, 3) {
		if e.Decision.CorrelationID != "c-1" || e.Decision.TaskID != "t1" || e.At.IsZero() {
			t.Errorf("the escalation is %+v", e)
		}
	}
	// The third panic is logged after it was told; a fourth call comes after that.
	if d, _ := get(t, tr, fedhttp.Task{}); !d.Escalated {
		t.Error("the fourth call is not escalated")
	}
	told.wait(t, 4)
	if n := log.count("the pager is broken"); n < 3 {
		t.Errorf("%d panics are in the log, want 3", n)
	}
}

// TestEscalatorThatHangs: what does not fit the queue goes to the log, and no
// call waits.
func TestEscalatorThatHangs(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	var log logBuffer
	var told atomic.Int64
	release := make(chan struct{})
	tr := newTestTransport(t, fedhttp.Config{
		Base: answering(response(403)), Logger: log.logger(),
		Peers:     []fedhttp.Peer{{ID: "b", Origins: []string{stubURL}, Breaker: fedhttp.BreakerPolicy{Failures: -1}}},
		Escalator: escalatorFunc(func(context.Context, fedhttp.Escalation) { <-release; told.Add(1) }),
	})
	const calls = 1200
	for range calls {
		if d, _ := get(t, tr, fedhttp.Task{}); !d.Escalated {
			t.Fatal("a call was not escalated")
		}
	}
	logged := log.count("the queue to the sink is full")
	if logged == 0 || logged > calls-1024 {
		t.Errorf("%d of %d escalations are in the log, want what is beyond 1,024", logged, calls)
	}
	close(release)
	for told.Load() < int64(calls-logged) && t.Context().Err() == nil {
		time.Sleep(time.Millisecond) // between looks
	}
	if n := int(told.Load()); n+logged != calls {
		t.Errorf("%d were told and %d logged of %d", n, logged, calls)
	}
}

func TestSinksAreLoggedWhereThereAreNone(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	var log logBuffer
	peer := testPeer("b", stubURL)
	peer.Hold.Max = -1
	tr := newTestTransport(t, fedhttp.Config{Base: answering(response(403)), Logger: log.logger(), Peers: []fedhttp.Peer{peer}})
	_, _ = get(t, tr, fedhttp.Task{})
	_, _ = get(t, tr, *heldTask)
	_, _ = get(t, tr, *heldTask)
	if log.count("level=ERROR") != 1 || log.count("fedhttp: policy unresolved") != 1 {
		t.Errorf("want one escalation at error level and one unresolved policy in the log:\n%s", log.text.String())
	}
}

func TestCoordinatorThatPanics(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	var log logBuffer
	var told recorder[fedhttp.Unresolved]
	peer := testPeer("b", stubURL)
	peer.Hold.Max = -1
	tr := newTestTransport(t, fedhttp.Config{
		Base: answering(response(200)), Logger: log.logger(), Peers: []fedhttp.Peer{peer},
		Coordinator: coordinatorFunc(func(_ context.Context, u fedhttp.Unresolved) {
			told.add(u)
			panic("the negotiator is broken")
		}),
	})
	for i := range 10 {
		d, err := get(t, tr, fedhttp.Task{Capability: fmt.Sprint("c", i%2), Obligations: heldTask.Obligations})
		if d.Outcome != fedhttp.OutcomePolicyUnresolved || !errors.Is(err, fedhttp.ErrPolicyUnresolved) || d.Attempts != 0 {
			t.Errorf("%v after %d attempts, %v", d.Outcome, d.Attempts, err)
		}
	}
	// Once for each key, however many tasks met it.
	all := told.wait(t, 2)
	if all[0].Capability != "c0" || all[1].Capability != "c1" || len(told.snapshot()) != 2 {
		t.Errorf("the coordinator was told %+v", told.snapshot())
	}
}

// TestResolverThatHangs: its time is bounded, in virtual time here.
func TestResolverThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		tr := newTestTransport(t, fedhttp.Config{
			Base: answering(response(403, "X-Correlation-ID", "17")), Logger: quietLogger, Peers: []fedhttp.Peer{testPeer("b", stubURL)},
			Correlation: resolverFunc(func(context.Context, string, string) (fedhttp.Layer, error) {
				<-release // deaf to its context
				return fedhttp.LayerRouting, nil
			}),
			Anchors: risingAnchors(),
		})
		start := time.Now()
		d, _ := get(t, tr, fedhttp.Task{})
		if d.Outcome != fedhttp.OutcomeAmbiguous || d.Reason != fedhttp.ReasonNoSignal || d.Attempts != 1 {
			t.Errorf("%v (%v) after %d attempts, want ambiguous (no_signal) after one", d.Outcome, d.Reason, d.Attempts)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("the resolver was waited for for %v, want 2s", took)
		}
	})
}

func TestResolverIsAskedOnce(t *testing.T) {
	t.Parallel()
	for _, layer := range []fedhttp.Layer{fedhttp.LayerUnknown, fedhttp.Layer(77)} {
		var asked recorder[string]
		tr := newTestTransport(t, fedhttp.Config{
			Base: answering(response(403, "X-Correlation-ID", "17")), Logger: quietLogger, Peers: []fedhttp.Peer{testPeer("b", stubURL)},
			Correlation: resolverFunc(func(_ context.Context, peer, id string) (fedhttp.Layer, error) {
				asked.add(peer + " " + id)
				return layer, nil
			}),
		})
		if d, _ := get(t, tr, fedhttp.Task{}); d.Reason != fedhttp.ReasonNoSignal {
			t.Errorf("a resolver that says %v: %v, want no_signal", layer, d.Reason)
		}
		if got := asked.snapshot(); len(got) != 1 || got[0] != "b 17" {
			t.Errorf("the resolver was asked %q", got)
		}
	}
}
