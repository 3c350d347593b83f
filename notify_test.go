package fedhttp

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// vtAnswer is a response of a base that is a function. pairs are names and
// values of header fields.
func vtAnswer(req *http.Request, status int, pairs ...string) *http.Response {
	resp := &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		resp.Header.Add(pairs[i], pairs[i+1])
	}
	return resp
}

// vtLog is a logger's output.
type vtLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *vtLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// lines returns the lines that contain all of the words.
func (l *vtLog) lines(words ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for line := range strings.Lines(l.buf.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

func (l *vtLog) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// vtAmbiguous has every call end ambiguous, which escalates.
func vtAmbiguous(cfg *Config, p *Peer) {
	cfg.Base = roundTripFunc(func(r *http.Request) (*http.Response, error) {
		return vtAnswer(r, 503, fedtest.HeaderCorrelationID, r.Header.Get(fedtest.HeaderTask)), nil
	})
	p.Breaker.Failures = -1
}

func TestCoordinatorToldOnce(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{MaxWait: 24 * time.Hour})
		tasks := func(name string) (all []Task) {
			for i := range 20 {
				all = append(all, vtTask(fmt.Sprint(name, i)))
			}
			return all
		}
		want := func(reasons ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			for _, u := range r.told.snapshot() {
				got = append(got, fmt.Sprint(u.Peer, " ", u.Capability, " ", u.Epoch, " ", u.Digest, " ", u.Reason))
				if u.Obligations["residency"] != "eu" {
					t.Errorf("obligations: %v", u.Obligations)
				}
			}
			vtWant(t, "told", strings.Join(got, "; "), strings.Join(reasons, "; "))
		}

		first := r.hold(t.Context(), tasks("first")...)
		told := []string{"b cap 0  not_advertised"}
		want(told...)
		vtWant(t, "at", r.told.snapshot()[0].At, r.begin)

		r.advertise("cap", 1, "d1") // wakes all of them, and they go on waiting
		told = append(told, "b cap 1 d1 not_accepted")
		want(told...)
		r.advertise("cap", 1, "d1") // gossip repeats itself
		want(told...)

		r.book.CacheNegotiation(Negotiation{PolicyKey: vtKey("cap", 1), Digest: "d1", ExpiresAt: time.Now().Add(time.Hour)})
		first()
		want(told...)
		time.Sleep(time.Hour) // the negotiation has expired
		second := r.hold(t.Context(), tasks("second")...)
		told = append(told, "b cap 1 d1 not_accepted")
		want(told...)

		r.advertise("cap", 2, "d1")
		told = append(told, "b cap 2 d1 not_accepted")
		want(told...)
		r.advertise("cap", 2, "d2")
		told = append(told, "b cap 2 d2 not_accepted")
		want(told...)
		r.accept("cap", 2, "d2")
		second()
		want(told...)

		r.book.Revoke(vtKey("cap", 2), "d2")
		third := r.hold(t.Context(), tasks("third")...)
		told = append(told, "b cap 2 d2 not_accepted")
		want(told...)
		r.accept("cap", 2, "d2")
		third()
		vtWant(t, "requests", r.peer.Routing.Ledger().Requests, 60)
	})
}

// TestCoordinatorToldAfterUnusedNegotiation: the tasks that wanted a policy had
// given up when it was agreed, so nobody was sent under it. Once it has expired
// the next task needs a coordinator as much as the first did.
func TestCoordinatorToldAfterUnusedNegotiation(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{MaxWait: time.Minute})
		r.advertise("cap", 1, "d1")
		r.vtUnsent(r.get(t.Context(), vtTask("1")), "1", ReasonHoldTimeout)
		r.book.CacheNegotiation(Negotiation{PolicyKey: vtKey("cap", 1), Digest: "d1", ExpiresAt: time.Now().Add(time.Hour)})
		time.Sleep(2 * time.Hour)
		r.vtUnsent(r.get(t.Context(), vtTask("2")), "2", ReasonHoldTimeout)
		synctest.Wait()
		vtWant(t, "signals", len(r.told.snapshot()), 2)
	})
}

// TestCoordinatorTerms: terms that fall short are told apart from a policy that
// is not agreed, and once.
func TestCoordinatorTerms(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{Max: -1})
		r.advertise("cap", 1, "d1")
		r.get(t.Context(), vtTask("1"))
		r.book.Accept(Policy{PolicyKey: vtKey("cap", 1), Digest: "d1", Terms: Terms{"residency": "us"}})
		for range 3 {
			r.get(t.Context(), vtTask("2"))
		}
		synctest.Wait()
		told := r.told.snapshot()
		vtWant(t, "signals", len(told), 2)
		vtWant(t, "last reason", told[len(told)-1].Reason, ReasonTermsInsufficient)
	})
}

// TestEscalatorBlocked: a sink that does not return delays no call. What the
// queue has no room for goes to the log, and the rest arrives in order.
func TestEscalatorBlocked(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		const calls, beyond = notifyQueue + 1 + 5, 5
		var log vtLog
		var got recorder[Escalation]
		unblock := make(chan struct{})
		r := newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
			vtAmbiguous(cfg, p)
			cfg.Logger = log.logger()
			cfg.Escalator = escalatorFunc(func(_ context.Context, e Escalation) {
				<-unblock
				got.add(e)
			})
		})
		for i := range calls {
			res := r.get(t.Context(), Task{ID: fmt.Sprint("t", i)})
			vtWant(t, "outcome", res.d.Outcome, OutcomeAmbiguous)
			vtWant(t, "escalated", res.d.Escalated, true)
			if i == 0 {
				synctest.Wait() // the sink has taken the first
			}
		}
		vtWant(t, "elapsed", r.elapsed(), 0)
		vtWant(t, "logged", len(log.lines("level=ERROR", "escalation=ambiguous", "queue")), beyond)
		for i := calls - beyond; i < calls; i++ {
			vtWant(t, fmt.Sprint("logged t", i), len(log.lines(fmt.Sprintf("correlation_id=t%d ", i))), 1)
		}
		close(unblock)
		synctest.Wait()
		all := got.snapshot()
		vtWant(t, "delivered", len(all), calls-beyond)
		for i, e := range all {
			vtWant(t, "order", e.Decision.CorrelationID, fmt.Sprint("t", i))
		}
		vtWant(t, "kind", all[0].Kind, EscalationAmbiguous)
		vtWant(t, "at", all[0].At, r.begin)
	})
}

type vtContextKey struct{}

// TestEscalatorSlow: it has 30 s by its context, which keeps the call's values
// and not its cancellation.
func TestEscalatorSlow(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var ended recorder[time.Time]
		r := newRig(t, fedtest.Config{}, func(cfg *Config, p *Peer) {
			vtAmbiguous(cfg, p)
			cfg.Escalator = escalatorFunc(func(ctx context.Context, _ Escalation) {
				if ctx.Value(vtContextKey{}) != "kept" {
					t.Error("the context's values are gone")
				}
				<-ctx.Done()
				ended.add(time.Now())
			})
		})
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), vtContextKey{}, "kept"))
		r.get(ctx, Task{ID: "1"})
		r.get(ctx, Task{ID: "2"})
		cancel()
		vtWant(t, "elapsed", r.elapsed(), 0)
		time.Sleep(2 * time.Minute)
		times := ended.snapshot()
		if len(times) != 2 || !times[0].Equal(r.begin.Add(30*time.Second)) || !times[1].Equal(r.begin.Add(time.Minute)) {
			t.Errorf("ended at %v, want 30 s and 60 s after %v", times, r.begin)
		}
	})
}

func TestSinksPanic(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var log vtLog
		var escalations, unresolved recorder[string]
		r := vtHoldRig(t, HoldPolicy{Max: -1}, func(cfg *Config, p *Peer) {
			vtAmbiguous(cfg, p)
			cfg.Logger = log.logger()
			cfg.Escalator = escalatorFunc(func(_ context.Context, e Escalation) {
				escalations.add(e.Decision.CorrelationID)
				if e.Decision.CorrelationID == "bad" {
					panic("sink on fire")
				}
			})
			cfg.Coordinator = coordinatorFunc(func(_ context.Context, u Unresolved) {
				unresolved.add(u.Capability)
				panic("no negotiator")
			})
		})
		for _, id := range []string{"bad", "good"} {
			vtWant(t, id, r.get(t.Context(), Task{ID: id}).d.Outcome, OutcomeAmbiguous)
		}
		for _, capability := range []string{"one", "two"} {
			task := Task{ID: capability, Capability: capability, Obligations: Terms{"residency": "eu"}}
			r.vtUnsent(r.get(t.Context(), task), capability, ReasonNotAdvertised)
		}
		synctest.Wait()
		vtWant(t, "escalations", fmt.Sprint(escalations.snapshot()), "[bad good]")
		vtWant(t, "unresolved", fmt.Sprint(unresolved.snapshot()), "[one two]")
		vtWant(t, "logged", len(log.lines("sink on fire", "correlation_id=bad", "level=ERROR")), 1)
		vtWant(t, "logged", len(log.lines("no negotiator", "level=WARN")), 2)
	})
}

// TestSinksNil: what nobody takes is logged, with what an operator needs.
func TestSinksNil(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var log vtLog
		r := vtHoldRig(t, HoldPolicy{Max: -1}, func(cfg *Config, p *Peer) {
			vtAmbiguous(cfg, p)
			cfg.Logger, cfg.Escalator, cfg.Coordinator = log.logger(), nil, nil
		})
		r.get(t.Context(), Task{ID: "id-7"})
		r.advertise("cap", 4, "d4")
		r.get(t.Context(), vtTask("t"))
		r.get(t.Context(), vtTask("t"))
		vtWant(t, "escalation", len(log.lines("level=ERROR", "peer=b", "outcome=ambiguous", "reason=no_signal", "correlation_id=id-7")), 1)
		vtWant(t, "unresolved", len(log.lines("level=WARN", "peer=b", "capability=cap", "epoch=4", "digest=d4", "reason=not_accepted")), 1)
	})
}

// Each notice is seen once, by the sink or in the log, also where the sink hangs
// or ends its goroutine.
func TestNothingIsDroppedSilently(t *testing.T) {
	for name, sink := range map[string]func(stop <-chan struct{}){
		"hangs":   func(stop <-chan struct{}) { <-stop },
		"exits":   func(<-chan struct{}) { runtime.Goexit() },
		"returns": func(<-chan struct{}) {},
	} {
		synctest.Test(t, func(t *testing.T) {
			var sunk, logged atomic.Int64
			stop := make(chan struct{})
			n := &notifier[int]{
				sink: func(context.Context, int) {
					sunk.Add(1)
					sink(stop)
				},
				log: func(context.Context, int, string) { logged.Add(1) },
			}
			const events = 50
			for i := range events {
				if i == events-1 {
					time.Sleep(notifyTimeout + 1)
				}
				n.notify(t.Context(), i)
			}
			synctest.Wait()
			if sunk.Load()+logged.Load() != events {
				t.Errorf("the sink %s: %d to it and %d to the log, of %d", name, sunk.Load(), logged.Load(), events)
			}
			close(stop)
		})
	}
}

// Gossip that goes back and forth between two digests tells of each once.
func TestToldFlap(t *testing.T) {
	t.Parallel()
	var s toldSet
	told := 0
	for i := range 40 {
		if s.first("c", toldPolicy{1, fmt.Sprint("d", i%2), time.Time{}}, ReasonNotAccepted) {
			told++
		}
	}
	if told != 2 {
		t.Errorf("told %d times", told)
	}
	for i := range 3 * maxToldKeys {
		s.first(fmt.Sprint(i), toldPolicy{}, ReasonNotAdvertised)
	}
	if len(s.told) > maxToldKeys {
		t.Errorf("%d capabilities are remembered", len(s.told))
	}
}

// What a sink asks with its context is another call.
func TestDecisionInASink(t *testing.T) {
	t.Parallel()
	c := &call{preflight: preflight{Context: ContextWithTask(t.Context(), Task{Capability: "c"})}}
	ctx := detached{c}
	if _, ok := TaskFromContext(ctx); ok {
		t.Error("the sink has the task")
	}
	if callOf(ctx) != nil {
		t.Error("the sink has the call")
	}
}
