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
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// agreeOn has the peer offer the digest, and our side accept it.
func agreeOn(t *testing.T, book *PolicyBook, key PolicyKey, digest string) {
	t.Helper()
	if err := book.Advertise(Advertisement{key, digest}); err != nil {
		t.Error(err)
	}
	book.Accept(Policy{PolicyKey: key, Digest: digest})
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
				agreeOn(t, book, key, "sha256:1")
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
			agreeOn(t, book, key, "sha256:1")
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
			if errors.Is(err, ErrPolicyUnresolved) || errors.Is(err, context.Canceled) {
				t.Errorf("%v: it was sent, and nobody has canceled it", err)
			}
			if text := err.Error(); !strings.Contains(text, `digest "sha256:1" of epoch 1, which is neither accepted nor negotiated`) {
				t.Errorf("%s: want what is missing", text)
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
				agreeOn(t, book, key, "sha256:1")
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

// TestAgreementOnAnotherBasis: what is accepted while a task waits for a connection under
// a negotiation of the same digest, is agreed as before.
func TestAgreementOnAnotherBasis(t *testing.T) {
	t.Parallel()
	var dials atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	book, key := &PolicyBook{}, PolicyKey{Peer: "b", Capability: "c", Epoch: 1}
	if err := book.Advertise(Advertisement{key, "sha256:1"}); err != nil {
		t.Fatal(err)
	}
	book.CacheNegotiation(Negotiation{PolicyKey: key, Digest: "sha256:1", ExpiresAt: time.Now().Add(time.Hour)})
	tr := newTestTransport(t, Config{Book: book, Peers: []Peer{testPeer("b", server.URL)}, Base: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			book.Accept(Policy{PolicyKey: key, Digest: "sha256:1"})
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}})
	req, _ := http.NewRequestWithContext(ContextWithTask(t.Context(), Task{Capability: "c", Obligations: Terms{"r": "eu"}}), http.MethodGet, server.URL, nil)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if d, _ := DecisionFromResponse(resp); d.Basis != BasisNegotiated || dials.Load() != 1 {
		t.Errorf("%+v, %d connections", d, dials.Load())
	}
}

// TestHeldAfterAnchor: a task whose agreement ends while its first anchor is fetched is
// held, and what ends that is not taken for its caller's cancellation of a call.
func TestHeldAfterAnchor(t *testing.T) {
	t.Parallel()
	book, key := &PolicyBook{}, PolicyKey{Peer: "b", Capability: "c", Epoch: 1}
	agreeOn(t, book, key, "sha256:1")
	ctx, cancel := context.WithCancel(ContextWithTask(t.Context(), Task{Capability: "c", Obligations: Terms{"r": "eu"}}))
	tr := newTestTransport(t, Config{
		Book: book, Peers: []Peer{testPeer("b", "https://b.example")},
		Anchors: anchorFunc(func(context.Context, string) (Anchor, error) {
			book.Revoke(key, "sha256:1")
			return Anchor{Version: "v1"}, nil
		}),
		Coordinator: coordinatorFunc(func(context.Context, Unresolved) { cancel() }),
	})
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "https://b.example/", nil)
	_, err := tr.RoundTrip(req)
	if e, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, ErrPolicyUnresolved) || e.Decision.Reason != ReasonContextEnded || e.Decision.HeldFor <= 0 {
		t.Errorf("%v", err)
	}
}

// TestAgreementReplacedBeforeResend: a resend whose policy is replaced by one that is
// agreed goes out under that, once, for the one token that it was given. What was taken
// back is counted nowhere.
func TestAgreementReplacedBeforeResend(t *testing.T) {
	t.Parallel()
	var dials, came atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		if came.Add(1) == 1 {
			w.Header().Set("X-Federation-Policy-Evaluated", "false")
			w.WriteHeader(http.StatusServiceUnavailable)
		} else if got := r.Header.Get("X-Federation-Policy-Digest"); got != "sha256:2" {
			t.Errorf("digest %q", got)
		}
	}))
	t.Cleanup(server.Close)
	book, key := &PolicyBook{}, PolicyKey{Peer: "b", Capability: "c", Epoch: 1}
	agreeOn(t, book, key, "sha256:1")
	m := newVTMetrics()
	tr := newTestTransport(t, Config{
		Book: book, Peers: []Peer{testPeer("b", server.URL)}, MeterProvider: m.provider,
		Anchors: anchorFunc(func(context.Context, string) (Anchor, error) { return Anchor{Version: "v1"}, nil }),
		Base: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) == 2 {
				agreeOn(t, book, key, "sha256:2")
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}},
	})
	task := Task{Capability: "c", Obligations: Terms{"r": "eu"}}
	req, _ := http.NewRequestWithContext(ContextWithTask(t.Context(), task), http.MethodGet, server.URL, nil)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	d, _ := DecisionFromResponse(resp)
	if d.Outcome != OutcomeDelivered || d.Attempts != 2 || d.PolicyDigest != "sha256:2" || came.Load() != 2 || dials.Load() != 3 {
		t.Errorf("%+v, %d requests, %d connections", d, came.Load(), dials.Load())
	}
	if spent := tr.states["b"].budget.spent.Load(); spent != budgetToken {
		t.Errorf("%d of the budget are spent, want one token", spent)
	}
	attempts, durations := 0, 0
	for _, point := range m.points(t) {
		switch {
		case strings.HasPrefix(point, "federation.client.attempts"):
			attempts++
			if !strings.HasSuffix(point, " 1") {
				t.Error(point)
			}
		case strings.HasPrefix(point, "http.client.request.duration"):
			durations++
			if !strings.Contains(point, "status_code") {
				t.Error(point)
			}
		}
	}
	if attempts != 2 || durations != 2 {
		t.Errorf("%d kinds of attempts and %d of durations, want 2", attempts, durations)
	}
}
