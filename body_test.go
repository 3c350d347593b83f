package fedhttp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// vtBody is a body that counts.
type vtBody struct {
	io.Reader
	reads, closes atomic.Int32
}

func (b *vtBody) Read(p []byte) (int, error) {
	if b.closes.Load() > 0 {
		return 0, errors.New("read after close")
	}
	b.reads.Add(1)
	return b.Reader.Read(p)
}

func (b *vtBody) Close() error {
	b.closes.Add(1)
	return nil
}

// vtBodies gives a request's bodies, its first and those of GetBody.
type vtBodies struct {
	mu   sync.Mutex
	all  []*vtBody
	fail error // of GetBody
	none bool  // GetBody returns neither a body nor an error
}

func (s *vtBodies) next() (io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.none {
		return nil, nil
	}
	if s.fail != nil {
		return nil, s.fail
	}
	b := &vtBody{Reader: strings.NewReader(vtPayload)}
	s.all = append(s.all, b)
	return b, nil
}

const vtPayload = "the same words each time"

// vtClosed checks that each body was closed once.
func (s *vtBodies) vtClosed(t *testing.T, bodies int) {
	t.Helper()
	vtWant(t, "bodies", len(s.all), bodies)
	for i, b := range s.all {
		vtWant(t, fmt.Sprint("closes of body ", i), b.closes.Load(), 1)
	}
}

// TestBodyClosed: on every path the body is closed exactly once, and one that is
// not sent is not read.
func TestBodyClosed(t *testing.T) {
	for name, row := range map[string]struct {
		steps   []fedtest.Step
		task    Task
		change  func(*vtRig)
		ctx     func(context.Context) (context.Context, context.CancelFunc)
		sends   int
		bodies  int // with GetBody
		outcome Outcome
	}{
		"delivered":     {sends: 1, bodies: 1},
		"rejected":      {steps: []fedtest.Step{fedtest.Deny("NO")}, sends: 1, bodies: 1, outcome: OutcomeRejected},
		"ambiguous":     {steps: []fedtest.Step{fedtest.CloseConnection()}, sends: 1, bodies: 1, outcome: OutcomeAmbiguous},
		"too long":      {steps: []fedtest.Step{vtDrop("60")}, sends: 1, bodies: 2, outcome: OutcomeRoutingFailed},
		"resent":        {steps: []fedtest.Step{vtDrop(), vtDrop()}, sends: 3, bodies: 3},
		"exhausted":     {steps: []fedtest.Step{vtDrop(), vtDrop(), vtDrop()}, sends: 3, bodies: 3, outcome: OutcomeRoutingFailed},
		"never dialed":  {change: func(r *vtRig) { r.peer.RefuseConnections(1) }, sends: 1, bodies: 2},
		"unresolved":    {task: vtTask(""), bodies: 1, outcome: OutcomePolicyUnresolved},
		"scope denied":  {task: vtScoped("", "s"), change: func(r *vtRig) { r.vtDenied(vtScoped("earlier", "s"), fedtest.Verdict{}) }, bodies: 1, outcome: OutcomeScopeDenied},
		"task required": {task: Task{Obligations: Terms{"a": "b"}}, bodies: 1, outcome: OutcomeTaskRequired},
		"breaker open":  {change: func(r *vtRig) { r.vtFail(10) }, bodies: 1, outcome: OutcomePeerUnavailable},
		"closed":        {change: func(r *vtRig) { r.tr.Close() }, bodies: 1, outcome: OutcomeCanceled},
		"unknown peer":  {change: func(r *vtRig) { r.peer.URL = "http://127.0.0.1:1" }, bodies: 1, outcome: OutcomeUnknownPeer},
		"ended before": {ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, bodies: 1, outcome: OutcomeCanceled},
		"ended meantime": {steps: []fedtest.Step{fedtest.Hang()}, ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, sends: 1, bodies: 1, outcome: OutcomeAmbiguous},
	} {
		for kind, getBody := range map[string]bool{"GetBody": true, "none": false} {
			t.Run(name+", "+kind, func(t *testing.T) {
				vtBubble(t, func(t *testing.T) {
					r := vtRetryRig(t, RetryPolicy{}, func(_ *Config, p *Peer) { p.Hold.Max = -1 })
					if row.change != nil {
						row.change(r)
					}
					var bodies vtBodies
					first, err := bodies.next()
					if err != nil {
						t.Fatal(err)
					}
					task := row.task
					task.ID = "t"
					r.peer.On("t", row.steps...)
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if row.ctx != nil {
						ctx, cancel = row.ctx(ctx)
					}
					defer cancel()
					req := r.request(ctx, http.MethodPost, task, first)
					if getBody {
						req.GetBody = bodies.next
					}
					header := req.Header.Clone()
					// The transport itself: http.Client closes bodies too.
					resp, err := r.tr.RoundTrip(req)
					if (resp == nil) == (err == nil) {
						t.Fatalf("response %v, error %v", resp, err)
					}
					var d Decision
					var fault *Error
					if err == nil {
						d, _ = DecisionFromResponse(resp)
						if _, err := io.ReadAll(resp.Body); err != nil {
							t.Error(err)
						}
						resp.Body.Close()
					} else if errors.As(err, &fault) {
						d = fault.Decision
					}
					time.Sleep(time.Minute) // what the base has to do behind our back is done
					sends, outcome := row.sends, row.outcome
					switch {
					case getBody:
						bodies.vtClosed(t, row.bodies)
					case name == "resent", name == "exhausted": // it was read
						sends, outcome = 1, OutcomeRoutingFailed
						vtWant(t, "reason", d.Reason, ReasonBodyNotReplayable)
						fallthrough
					default:
						bodies.vtClosed(t, 1)
					}
					vtWant(t, "outcome", d.Outcome, outcome)
					vtWant(t, "sends", r.peer.Sends("t"), sends)
					if sends == 0 {
						vtWant(t, "reads", bodies.all[0].reads.Load(), 0)
					}
					for _, e := range r.peer.Routing.Log() {
						if e.Task == "t" && e.BodySHA256 != vtHash(vtPayload) {
							t.Errorf("a body arrived as %d bytes, %s", e.BodyBytes, e.BodySHA256)
						}
					}
					if req.Body != first || req.ContentLength != 0 || (req.GetBody != nil) != getBody {
						t.Error("the caller's request was changed")
					}
					vtWant(t, "header", fmt.Sprint(req.Header), fmt.Sprint(header))
				})
			})
		}
	}
}

func vtHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// TestBodyGetBodyFails: a body that cannot be had again is not resent, and not
// sent empty.
func TestBodyGetBodyFails(t *testing.T) {
	for name, second := range map[string]func(*vtBodies){
		"error":   func(s *vtBodies) { s.fail = errors.New("file is gone") },
		"nothing": func(s *vtBodies) { s.none = true },
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtRetryRig(t, RetryPolicy{})
				var bodies vtBodies
				first, _ := bodies.next()
				second(&bodies)
				r.peer.On("t", vtDrop())
				req := r.request(t.Context(), http.MethodPost, Task{ID: "t"}, first)
				req.GetBody = bodies.next
				res := r.do(req)
				vtWant(t, "reason", res.d.Reason, ReasonBodyNotReplayable)
				vtWant(t, "body", res.body, "come back later")
				vtWant(t, "sends", r.peer.Sends("t"), 1)
				bodies.vtClosed(t, 1)
			})
		})
	}
}

// TestBodyKinds: what the usual bodies look like at the peer, on the first send
// and on the next.
func TestBodyKinds(t *testing.T) {
	for name, row := range map[string]struct {
		body   func() io.Reader
		want   string
		length string // the Content-Length header; empty: chunked
		sends  int
	}{
		"none":           {func() io.Reader { return nil }, "", "0", 2},
		"http.NoBody":    {func() io.Reader { return http.NoBody }, "", "0", 2},
		"strings.Reader": {func() io.Reader { return strings.NewReader(vtPayload) }, vtPayload, "24", 2},
		"bytes.Buffer":   {func() io.Reader { return bytes.NewBufferString(vtPayload) }, vtPayload, "24", 2},
		"bytes.Reader":   {func() io.Reader { return bytes.NewReader([]byte(vtPayload)) }, vtPayload, "24", 2},
		"empty buffer":   {func() io.Reader { return &bytes.Buffer{} }, "", "0", 2},
		"any reader":     {func() io.Reader { return io.MultiReader(strings.NewReader(vtPayload)) }, vtPayload, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			vtBubble(t, func(t *testing.T) {
				r := vtRetryRig(t, RetryPolicy{})
				r.peer.On("t", func(w http.ResponseWriter, req *http.Request) {
					vtWant(t, "Content-Length", req.Header.Get("Content-Length"), row.length)
					vtWant(t, "chunked", req.ContentLength < 0, row.length == "")
					vtDrop()(w, req)
				})
				res := r.do(r.request(t.Context(), http.MethodPost, Task{ID: "t"}, row.body()))
				vtWant(t, "sends", r.peer.Sends("t"), row.sends)
				vtWant(t, "delivered", res.d.Outcome == OutcomeDelivered, row.sends == 2)
				for _, e := range r.peer.Routing.Log()[1:] {
					vtWant(t, "bytes", e.BodyBytes, int64(len(row.want)))
					vtWant(t, "hash", e.BodySHA256, vtHash(row.want))
				}
			})
		})
	}
}

// TestBodyAbandonedByBase: a base that gave an attempt up without reading may
// close and even read its body late. Neither reaches the body of the resend.
func TestBodyAbandonedByBase(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		var late io.ReadCloser
		sends := 0
		r := vtRetryRig(t, RetryPolicy{}, func(cfg *Config, _ *Peer) {
			base := cfg.Base
			cfg.Base = roundTripFunc(func(req *http.Request) (*http.Response, error) {
				if req.Method == http.MethodGet {
					return base.RoundTrip(req)
				}
				if sends++; sends == 1 {
					late = req.Body
					return vtAnswer(req, 503, fedtest.HeaderPolicyEvaluated, "false"), nil
				}
				if n, err := late.Read(make([]byte, 8)); n != 0 || err == nil {
					t.Errorf("a late read gave %d bytes, %v", n, err)
				}
				if err := late.Close(); err != nil {
					t.Errorf("a late close: %v", err)
				}
				return base.RoundTrip(req)
			})
		})
		body := &vtBody{Reader: strings.NewReader(vtPayload)}
		res := r.do(r.request(t.Context(), http.MethodPost, Task{ID: "t"}, body))
		vtWant(t, "outcome", res.d.Outcome, OutcomeDelivered)
		vtWant(t, "attempts", res.d.Attempts, 2)
		vtWant(t, "closes", body.closes.Load(), 1)
		log := r.peer.Routing.Log()
		vtWant(t, "what arrived", log[len(log)-1].BodySHA256, vtHash(vtPayload))
	})
}

func TestHoldClosesBody(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		r := vtHoldRig(t, HoldPolicy{MaxWait: time.Minute})
		body := &vtBody{Reader: strings.NewReader("never sent")}
		res := r.do(r.request(t.Context(), http.MethodPost, vtTask("t"), body))
		r.vtUnsent(res, "t", ReasonHoldTimeout)
		vtWant(t, "closes", body.closes.Load(), 1)
		vtWant(t, "reads", body.reads.Load(), 0)
	})
}

// TestAbandonedBodyIsNotRead: AttemptTimeout ends before net/http's writer has come to
// the body. It must not begin to read it then, and wait, since net/http waits for it.
func TestAbandonedBodyIsNotRead(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{false, true} {
		under := &vtBody{Reader: strings.NewReader(vtPayload)}
		b := &watchedBody{body: under, kept: kept}
		b.abandon()
		if n, err := b.Read(make([]byte, 1)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("Read: %d, %v, want ErrBodyReadAfterClose", n, err)
		}
		if n := under.reads.Load(); n != 0 {
			t.Errorf("the caller's body was read %d times", n)
		}
		if err := b.failed(); err != nil {
			t.Errorf("the body is at fault: %v", err)
		}
		if kept {
			if b = b.again(); b == nil {
				t.Fatal("nobody has read it, and it cannot be sent again")
			}
		}
		b.Close()
		b.settle()
		if n := under.closes.Load(); n != 1 {
			t.Errorf("it was closed %d times", n)
		}
	}
}

// panickingBody waits to be read until it is closed, which panics.
type panickingBody struct{ closed chan struct{} }

func (b panickingBody) Read([]byte) (int, error) {
	<-b.closed
	return 0, io.ErrClosedPipe
}

func (b panickingBody) Close() error {
	close(b.closed)
	panic("closed while it is read")
}

// TestAbandonedBodyPanics: a body that AttemptTimeout closes is closed on a goroutine of
// ours, where no caller could contain what it does.
func TestAbandonedBodyPanics(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTestTransport(t, Config{
			Peers: []Peer{testPeer("b", "https://b.example")},
			Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
				_, err := req.Body.Read(make([]byte, 1))
				return nil, err
			}),
		})
		req, err := http.NewRequest(http.MethodPost, "https://b.example/", panickingBody{make(chan struct{})})
		if err != nil {
			t.Fatal(err)
		}
		_, err = tr.RoundTrip(req)
		var failed *Error
		if !errors.As(err, &failed) || failed.Decision.Outcome != OutcomeAmbiguous {
			t.Errorf("RoundTrip: %v, want it to be ambiguous", err)
		}
	})
}
