package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// TestAttemptsShareNoValues: the values of an attempt's header are its own. A base that
// is given up on goes on reading and (against the rules) editing them while the next
// attempt of the call, and other calls, are sent.
func TestAttemptsShareNoValues(t *testing.T) {
	t.Parallel()
	for _, agreed := range []bool{true, false} {
		t.Run(fmt.Sprint("agreed=", agreed), func(t *testing.T) {
			t.Parallel()
			book, key := &PolicyBook{}, PolicyKey{Peer: "b", Capability: "c", Epoch: 1}
			agree := func(digest string) {
				if err := book.Advertise(Advertisement{key, digest}); err != nil {
					t.Error(err)
				}
				book.Accept(Policy{PolicyKey: key, Digest: digest})
			}
			if agreed {
				agree("sha256:1")
			}
			var version atomic.Int64
			var late sync.WaitGroup
			type sent struct {
				header http.Header
				said   [3]string
			}
			var mu sync.Mutex
			calls := map[string][]sent{}
			names := [3]string{"X-Federation-Policy-Digest", "X-Federation-Anchor-Version", "Traceparent"}
			tr := newTestTransport(t, Config{
				Book: book, TracerProvider: sdktrace.NewTracerProvider(),
				Anchors: anchorFunc(func(context.Context, string) (Anchor, error) {
					return Anchor{Version: fmt.Sprint(version.Add(1)), IssuedAt: time.Now()}, nil
				}),
				Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
					s := sent{header: req.Header}
					for i, name := range names {
						s.said[i] = req.Header.Get(name)
					}
					id := req.Header.Get("Id")
					mu.Lock()
					calls[id] = append(calls[id], s)
					n := len(calls[id])
					mu.Unlock()
					resp := &http.Response{StatusCode: 200, Body: http.NoBody, Header: http.Header{}}
					if n < 3 {
						resp.StatusCode = 503
						resp.Header.Set("X-Federation-Policy-Evaluated", "false")
						late.Go(func() {
							for range 50 {
								for _, name := range names {
									if v := req.Header[name]; len(v) > 0 {
										v[0] = "edited"
									}
								}
							}
						})
					}
					return resp, nil
				}),
				Peers: []Peer{func() Peer {
					p := testPeer("b", "https://b.example")
					p.Retry.BudgetRatio = 1
					return p
				}()},
			})
			task := Task{Capability: "c"}
			if agreed {
				task.Obligations = Terms{"r": "eu"}
			}
			var all sync.WaitGroup
			for i := range 8 {
				all.Go(func() {
					req, _ := http.NewRequestWithContext(ContextWithTask(t.Context(), task), http.MethodGet, "https://b.example/", nil)
					req.Header.Set("Id", fmt.Sprint(i))
					resp, err := tr.RoundTrip(req)
					if err != nil {
						var e *Error
						if !errors.As(err, &e) {
							t.Error(err)
						}
						return
					}
					d, _ := DecisionFromResponse(resp)
					mu.Lock()
					defer mu.Unlock()
					last := calls[fmt.Sprint(i)][len(calls[fmt.Sprint(i)])-1]
					if d.PolicyDigest != last.said[0] || d.AnchorVersion != last.said[1] {
						t.Errorf("decision %+v, sent %v", d, last.said)
					}
				})
			}
			all.Wait()
			late.Wait()
			resent := 0
			for id, of := range calls {
				resent += len(of) - 1
				for i, s := range of {
					for j := range i {
						if s.said[2] == of[j].said[2] {
							t.Errorf("call %s: attempts %d and %d say the same trace %s", id, j, i, s.said[2])
						}
					}
					for k, name := range names {
						if s.said[k] == "edited" {
							t.Errorf("call %s, attempt %d: %s is what another attempt's base wrote", id, i, name)
						}
						if i == len(of)-1 && len(of) == 3 && s.header.Get(name) != s.said[k] {
							t.Errorf("call %s: %s changed", id, name)
						}
					}
				}
			}
			if resent < 8 {
				t.Errorf("%d resends", resent)
			}
		})
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

// TestAgreementEndsBeforeConnection: what was agreed when a task went to the base, and is
// no more when a connection has come, is not sent. The connection of others goes on.
func TestAgreementEndsBeforeConnection(t *testing.T) {
	t.Parallel()
	key := PolicyKey{Peer: "b", Capability: "c", Epoch: 1}
	for name, test := range map[string]struct {
		meanwhile func(*PolicyBook)
		want      Reason
	}{
		"nothing happens": {func(*PolicyBook) {}, ReasonNone},
		"another key":     {func(b *PolicyBook) { b.Withdraw("b", "d") }, ReasonNone},
		"revoked":         {func(b *PolicyBook) { b.Revoke(key, "sha256:1") }, ReasonNotAccepted},
		"withdrawn":       {func(b *PolicyBook) { b.Withdraw("b", "c") }, ReasonNotAdvertised},
		"stale":           {func(b *PolicyBook) { b.SetStale(true) }, ReasonPoliciesStale},
		"another digest": {func(b *PolicyBook) {
			_ = b.Advertise(Advertisement{key, "sha256:2"})
			b.Accept(Policy{PolicyKey: key, Digest: "sha256:2"})
		}, ReasonNone},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http2=%v", name, http2), func(t *testing.T) {
				t.Parallel()
				var came, dials atomic.Int64
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came.Add(1) }))
				server.EnableHTTP2 = http2
				server.StartTLS()
				t.Cleanup(server.Close)
				book := &PolicyBook{}
				base := server.Client().Transport.(*http.Transport)
				base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					if dials.Add(1) == 1 {
						test.meanwhile(book)
					}
					return new(net.Dialer).DialContext(ctx, network, address)
				}
				if err := book.Advertise(Advertisement{key, "sha256:1"}); err != nil {
					t.Fatal(err)
				}
				book.Accept(Policy{PolicyKey: key, Digest: "sha256:1"})
				peer := testPeer("b", server.URL)
				peer.Hold.Max = -1
				tr := newTestTransport(t, Config{Base: base, Book: book, Peers: []Peer{peer}})
				send := func(task Task) (Decision, error) {
					req, _ := http.NewRequestWithContext(ContextWithTask(t.Context(), task), http.MethodGet, server.URL, nil)
					resp, err := tr.RoundTrip(req)
					if e, ok := errors.AsType[*Error](err); ok {
						return e.Decision, err
					}
					defer resp.Body.Close()
					d, _ := DecisionFromResponse(resp)
					return d, err
				}
				d, err := send(Task{Capability: "c", Obligations: Terms{"r": "eu"}})
				if sent := test.want == ReasonNone; d.Reason != test.want || sent != (d.Attempts == 1) || sent != (err == nil) || sent == errors.Is(err, ErrPolicyUnresolved) {
					t.Errorf("%v (%v), %d attempts", err, d.Reason, d.Attempts)
				}
				before := came.Load()
				if before != 0 && test.want != ReasonNone {
					t.Error("it was sent")
				}
				if d, err := send(Task{}); err != nil || d.Outcome != OutcomeDelivered || came.Load() != before+1 {
					t.Errorf("a task without obligations: %v", err)
				}
				if n := dials.Load(); n > 1 && http2 {
					t.Errorf("%d connections", n)
				}
			})
		}
	}
}

// TestAgreementEndsBeforeResend: of a resend it is all that the policy forbids. The
// decision is of what was sent, and what the resend was given is given back.
func TestAgreementEndsBeforeResend(t *testing.T) {
	t.Parallel()
	for _, advances := range []bool{false, true} {
		t.Run(fmt.Sprintf("anchor advances=%v", advances), func(t *testing.T) {
			t.Parallel()
			var came, dials, version atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				came.Add(1)
				w.Header().Set("Connection", "close")
				w.Header().Set("X-Federation-Policy-Evaluated", "false")
				w.Header().Set("X-Federation-Correlation-Id", "id-1")
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			t.Cleanup(server.Close)
			book, key := &PolicyBook{}, PolicyKey{Peer: "b", Capability: "c", Epoch: 1}
			if err := book.Advertise(Advertisement{key, "sha256:1"}); err != nil {
				t.Fatal(err)
			}
			book.Accept(Policy{PolicyKey: key, Digest: "sha256:1"})
			tr := newTestTransport(t, Config{
				Book: book, Peers: []Peer{testPeer("b", server.URL)},
				Anchors: anchorFunc(func(context.Context, string) (Anchor, error) {
					v := version.Load()
					if advances {
						v = version.Add(1)
					}
					return Anchor{Version: fmt.Sprint("v", v)}, nil
				}),
				Base: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
					if dials.Add(1) == 2 {
						book.Revoke(key, "sha256:1")
					}
					return new(net.Dialer).DialContext(ctx, network, address)
				}},
			})
			task := Task{Capability: "c", Obligations: Terms{"r": "eu"}}
			req, _ := http.NewRequestWithContext(ContextWithTask(t.Context(), task), http.MethodGet, server.URL, nil)
			_, err := tr.RoundTrip(req)
			e, ok := errors.AsType[*Error](err)
			if !ok || !errors.Is(err, ErrRouting) || came.Load() != 1 || dials.Load() != 2 {
				t.Fatalf("%v, %d requests, %d connections", err, came.Load(), dials.Load())
			}
			want := Decision{
				Peer: "b", Capability: "c", Outcome: OutcomeRoutingFailed, Reason: ReasonNotAccepted,
				PolicyDigest: "sha256:1", Epoch: 1, Basis: BasisAccepted, CorrelationID: "id-1",
				Evidence: []Evidence{{Source: SourceHeader, Layer: LayerRouting}},
				Delivery: DeliveryAnswered, AnchorVersion: "v0", Attempts: 1, Refreshes: 2, Escalated: true,
			}
			if advances {
				want.AnchorVersion = "v1"
			}
			if diff := cmp.Diff(want, e.Decision); diff != "" {
				t.Error(diff)
			}
			if spent := tr.states["b"].budget.spent.Load(); spent != 0 {
				t.Errorf("%d of the budget are spent", spent)
			}
		})
	}
}

// TestAgreementEndsAndComesBack: a task whose agreement ends while it waits for a
// connection waits for its policy then, with its body, and goes out once there is one.
func TestAgreementEndsAndComesBack(t *testing.T) {
	t.Parallel()
	key, task := PolicyKey{Peer: "b", Capability: "c", Epoch: 1}, Task{Capability: "c", Obligations: Terms{"r": "eu"}}
	for name, body := range map[string]func() io.Reader{
		"none":   func() io.Reader { return nil },
		"again":  func() io.Reader { return strings.NewReader("all of it") },
		"stream": func() io.Reader { return io.MultiReader(strings.NewReader("all "), strings.NewReader("of it")) },
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http2=%v", name, http2), func(t *testing.T) {
				t.Parallel()
				var dials, asked atomic.Int64
				came := make(chan string, 2)
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					text, _ := io.ReadAll(r.Body)
					came <- string(text)
				}))
				server.EnableHTTP2 = http2
				server.StartTLS()
				t.Cleanup(server.Close)
				book := &PolicyBook{}
				base := server.Client().Transport.(*http.Transport)
				base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					if dials.Add(1) == 1 {
						book.Revoke(key, "sha256:1")
					}
					return new(net.Dialer).DialContext(ctx, network, address)
				}
				if err := book.Advertise(Advertisement{key, "sha256:1"}); err != nil {
					t.Fatal(err)
				}
				book.Accept(Policy{PolicyKey: key, Digest: "sha256:1"})
				var tr *Transport
				tr = newTestTransport(t, Config{
					Base: base, Book: book, Peers: []Peer{testPeer("b", server.URL)},
					Coordinator: coordinatorFunc(func(context.Context, Unresolved) {
						asked.Add(1)
						if s := tr.Status()[0]; s.Held != 1 || s.InFlight != 0 {
							t.Errorf("%d held, %d in flight", s.Held, s.InFlight)
						}
						book.Accept(Policy{PolicyKey: key, Digest: "sha256:1"})
					}),
				})
				req, _ := http.NewRequestWithContext(ContextWithTask(t.Context(), task), http.MethodPost, server.URL, body())
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				d, _ := DecisionFromResponse(resp)
				if d.Attempts != 1 || d.HeldFor <= 0 || d.Basis != BasisAccepted || d.Delivery != DeliveryAnswered {
					t.Errorf("%+v", d)
				}
				want := "all of it"
				if name == "none" {
					want = ""
				}
				if got := <-came; got != want || len(came) != 0 || asked.Load() != 1 {
					t.Errorf("%q came, and %d more; asked %d times", got, len(came), asked.Load())
				}
			})
		}
	}
}

// TestDeniedBeforeConnection: what a denial covers that is recorded while a task waits for
// a connection is not sent, with obligations or without.
func TestDeniedBeforeConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy DenialPolicy
		scope  string // the denial's
		want   Reason
	}{
		"same scope":        {DenialPolicy{}, "s", ReasonDeniedBefore},
		"another scope":     {DenialPolicy{}, "t", ReasonNone},
		"budget spent":      {DenialPolicy{Budget: 1}, "t", ReasonDenialBudget},
		"no hold-off":       {DenialPolicy{HoldOff: -1}, "s", ReasonNone},
		"only budget spent": {DenialPolicy{HoldOff: -1, Budget: 1}, "s", ReasonDenialBudget},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http2=%v", name, http2), func(t *testing.T) {
				t.Parallel()
				var came, dials atomic.Int64
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { came.Add(1) }))
				server.EnableHTTP2 = http2
				server.StartTLS()
				t.Cleanup(server.Close)
				var tr *Transport
				ledger := NewDenialLedger()
				base := server.Client().Transport.(*http.Transport)
				base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					if dials.Add(1) == 1 {
						_ = ledger.Record(ctx, Denial{Peer: "b", Capability: "c", Scope: test.scope, CorrelationID: "id-1", Until: time.Now().Add(time.Hour)})
						tr.states["b"].denials.add(time.Now(), test.policy.Budget)
					}
					return new(net.Dialer).DialContext(ctx, network, address)
				}
				peer := testPeer("b", server.URL)
				peer.Denial = test.policy
				tr = newTestTransport(t, Config{Base: base, Denials: ledger, Peers: []Peer{peer}})
				task := Task{Capability: "c", Scope: "s"}
				req, _ := http.NewRequestWithContext(ContextWithTask(t.Context(), task), http.MethodGet, server.URL, nil)
				resp, err := tr.RoundTrip(req)
				if err == nil {
					resp.Body.Close()
				}
				e, _ := errors.AsType[*Error](err)
				switch {
				case test.want == ReasonNone:
					if err != nil || came.Load() != 1 {
						t.Errorf("%v, %d requests", err, came.Load())
					}
				case e == nil || !errors.Is(err, ErrScopeDenied) || e.Decision.Reason != test.want || e.Decision.Attempts != 0 || e.Decision.Delivery != DeliveryNone:
					t.Errorf("%v", err)
				case test.want == ReasonDeniedBefore && e.Decision.CorrelationID != "id-1":
					t.Errorf("correlation ID %q", e.Decision.CorrelationID)
				case came.Load() != 0:
					t.Errorf("%d requests", came.Load())
				}
			})
		}
	}
}
