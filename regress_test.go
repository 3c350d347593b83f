package fedhttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// This file holds what somebody once broke.

func answer(req *http.Request, status int, body io.ReadCloser, header ...string) *http.Response {
	h := http.Header{}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	return &http.Response{StatusCode: status, Header: h, Body: body, Request: req}
}

func bubbleTransport(t *testing.T, cfg Config) *Transport {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	tr, err := NewTransport(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func getFrom(t *testing.T, tr *Transport, ctx context.Context) (*http.Response, error) { //nolint:revive // t first, as everywhere
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://b.example/v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	return tr.RoundTrip(req)
}

var bPeer = Peer{ID: "b", Origins: []string{"https://b.example"}}

// The response came in time; that the resolver takes long does not end its body.
func TestResolverOutlastsAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := bPeer
		p.Retry.AttemptTimeout = time.Second
		tr := bubbleTransport(t, Config{
			Peers: []Peer{p},
			Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				time.Sleep(900 * time.Millisecond)
				return answer(req, 403, &contextBody{ctx: req.Context()}, "X-Correlation-ID", "x"), nil
			}),
			Correlation: slowResolver(time.Second),
		})
		resp, err := getFrom(t, tr, t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "whole" {
			t.Errorf("the body is %q, %v", body, err)
		}
		resp.Body.Close()
	})
}

type slowResolver time.Duration

func (s slowResolver) ResolveLayer(context.Context, string, string) (Layer, error) {
	time.Sleep(time.Duration(s))
	return LayerPolicy, nil
}

// contextBody fails once its context has ended, as net/http's do.
type contextBody struct {
	ctx  context.Context
	done bool
}

func (b *contextBody) Read(p []byte) (int, error) {
	if b.ctx.Err() != nil {
		return 0, b.ctx.Err()
	}
	if b.done {
		return 0, io.EOF
	}
	b.done = true
	return copy(p, "whole"), nil
}

func (*contextBody) Close() error { return nil }

// A body that knows no context is closed, so that draining it ends.
func TestDrainOfABlockingBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sends atomic.Int64
		versions := 0
		tr := bubbleTransport(t, Config{
			Peers: []Peer{bPeer},
			Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				if sends.Add(1) == 1 {
					r, w := io.Pipe()
					_ = w // never written to, never closed
					return answer(req, 403, r, headerPolicyEvaluated, "false"), nil
				}
				return answer(req, 200, http.NoBody), nil
			}),
			Anchors: anchorFunc(func(context.Context, string) (Anchor, error) {
				versions++
				return Anchor{Version: fmt.Sprint(versions)}, nil
			}),
		})
		resp, err := getFrom(t, tr, t.Context())
		if err != nil || resp.StatusCode != 200 || sends.Load() != 2 {
			t.Errorf("%v, %v after %d sends", resp, err, sends.Load())
		}
	})
}

// An upload that makes progress does not run into AttemptTimeout, whatever body it is
// of: also the one that net/http asks for where it sends by itself again.
func TestUploadThatTakesItsTime(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"a stream": func(*http.Request) {},
		"GetBody": func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return &slowBody{left: 10}, nil }
		},
		"GetBody of the base": func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return &slowBody{left: 10}, nil }
		},
		"in memory, large": func(r *http.Request) {
			again, err := http.NewRequest(http.MethodPost, "https://b.example/v1", bytes.NewReader(make([]byte, 10<<20)))
			if err != nil {
				t.Fatal(err)
			}
			r.Body, r.GetBody, r.ContentLength = again.Body, again.GetBody, again.ContentLength
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := bPeer
				p.Retry.AttemptTimeout = time.Second
				tr := bubbleTransport(t, Config{Peers: []Peer{p}, Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
					body := req.Body
					if name == "GetBody of the base" {
						body.Close()
						var err error
						if body, err = req.GetBody(); err != nil {
							return nil, err
						}
					}
					defer body.Close()
					for some, err := make([]byte, 1<<20), error(nil); err == nil; {
						if name == "in memory, large" {
							time.Sleep(900 * time.Millisecond) // the peer takes no more at once
						}
						_, err = body.Read(some)
					}
					if err := context.Cause(req.Context()); err != nil {
						return nil, err
					}
					return answer(req, 200, http.NoBody), nil
				})})
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://b.example/v1", &slowBody{left: 10})
				if err != nil {
					t.Fatal(err)
				}
				change(req)
				if _, err := tr.RoundTrip(req); err != nil {
					t.Errorf("after 10 reads of 0.9 s each: %v", err)
				}
			})
		})
	}
}

type slowBody struct{ left int }

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		return 0, io.EOF
	}
	time.Sleep(900 * time.Millisecond)
	return copy(p, "x"), nil
}

func (*slowBody) Close() error { return nil }

// A peer that needs an anchor gets no resend under one that expired meanwhile.
func TestRequiredAnchorExpiresBeforeTheResend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sends atomic.Int64
		p := bPeer
		p.RequireAnchor = true
		p.Retry = RetryPolicy{MinBackoff: 3 * time.Second, MaxBackoff: 3 * time.Second}
		tr := bubbleTransport(t, Config{
			Peers: []Peer{p},
			Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				sends.Add(1)
				return answer(req, 403, http.NoBody, headerPolicyEvaluated, "false"), nil
			}),
			Anchors: anchorFunc(func(context.Context, string) (Anchor, error) {
				return Anchor{Version: "1", ExpiresAt: time.Now().Add(2 * time.Second)}, nil
			}),
		})
		resp, err := getFrom(t, tr, t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d, _ := DecisionFromResponse(resp); d.Reason != ReasonAnchorExpired || sends.Load() != 1 {
			t.Errorf("%v after %d sends", d.Reason, sends.Load())
		}
	})
}

// An anchor without times does not make room for one that was left behind.
func TestAnchorRollbackInTwoSteps(t *testing.T) {
	t.Parallel()
	now := time.Now()
	k := &anchorKeeper{peer: "b"}
	for _, step := range []struct {
		anchor Anchor
		taken  bool
	}{
		{Anchor{Version: "5", IssuedAt: now}, true},
		{Anchor{Version: "?"}, true},
		{Anchor{Version: "1", IssuedAt: now.Add(-time.Hour)}, false},
	} {
		if _, err := k.take(step.anchor, now); err == nil != step.taken {
			t.Errorf("version %s: %v, taken should be %v", step.anchor.Version, err, step.taken)
		}
	}
}

// A ledger that cannot record a denial is no reason to send the task again.
func TestLedgerThatFailsToRecord(t *testing.T) {
	t.Parallel()
	for _, panics := range []bool{false, true} {
		var sends atomic.Int64
		tr := bubbleTransport(t, Config{
			Peers: []Peer{bPeer}, Denials: &failingLedger{panics: panics},
			Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				sends.Add(1)
				return answer(req, 403, http.NoBody, headerPolicyEvaluated, "true"), nil
			}),
		})
		for range 3 {
			_, err := getFrom(t, tr, ContextWithTask(t.Context(), Task{Capability: "c"}))
			if err != nil && !errors.Is(err, ErrScopeDenied) {
				t.Error(err)
			}
		}
		if sends.Load() != 1 {
			t.Errorf("panics %v: sent %d times", panics, sends.Load())
		}
	}
}

type failingLedger struct {
	memoryLedger
	panics bool
}

func (l *failingLedger) Record(context.Context, Denial) error {
	if l.panics {
		panic("no disk")
	}
	return errors.New("no disk")
}

// A task with obligations does not leave through the back door.
func TestPassUnlistedWithObligations(t *testing.T) {
	t.Parallel()
	var sends atomic.Int64
	tr := bubbleTransport(t, Config{Unlisted: PassUnlisted, Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
		sends.Add(1)
		return answer(req, 200, http.NoBody), nil
	})})
	task := Task{Capability: "c", Obligations: Terms{"a": "b"}}
	if _, err := getFrom(t, tr, ContextWithTask(t.Context(), task)); !errors.Is(err, ErrUnknownPeer) || sends.Load() != 0 {
		t.Errorf("%v after %d sends", err, sends.Load())
	}
	if _, err := getFrom(t, tr, t.Context()); err != nil || sends.Load() != 1 {
		t.Errorf("%v after %d sends", err, sends.Load())
	}
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

// The headers that tell a peer what a task goes out under have names of its own.
func TestRequestHeaderNames(t *testing.T) {
	t.Parallel()
	p := bPeer
	p.Signals = Signals{PolicyDigest: "x-digest", NegotiationEpoch: "x-epoch", AnchorVersion: "x-anchor"}
	var got http.Header
	book := &PolicyBook{}
	key := PolicyKey{"b", "c", 7}
	if err := book.Advertise(Advertisement{key, "sha256:1"}); err != nil {
		t.Fatal(err)
	}
	tr := bubbleTransport(t, Config{
		Peers: []Peer{p}, Book: book,
		Anchors: anchorFunc(func(context.Context, string) (Anchor, error) { return Anchor{Version: "v1"}, nil }),
		Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
			got = req.Header
			return answer(req, 200, http.NoBody), nil
		}),
	})
	if _, err := getFrom(t, tr, ContextWithTask(t.Context(), Task{Capability: "c"})); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"X-Digest": "sha256:1", "X-Epoch": "7", "X-Anchor": "v1", headerPolicyDigest: ""} {
		if got.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.Get(name), want)
		}
	}
}
