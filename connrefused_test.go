package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// askedLedger denies what deny says, which is told how often it was asked for the task.
type askedLedger struct {
	mu    sync.Mutex
	asked map[string]int // by task ID
	deny  func(task Task, n int) bool
}

func (l *askedLedger) Record(context.Context, Denial) error { return nil }
func (l *askedLedger) Forget(string, string)                {}
func (l *askedLedger) Denied(_ string, task Task, _ Authorization) (Denial, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked == nil {
		l.asked = make(map[string]int)
	}
	l.asked[task.ID]++
	return Denial{PolicyReason: "another task's", CorrelationID: "id-of-another"}, l.deny(task, l.asked[task.ID])
}

func http2Server(t *testing.T, streams int, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// TestTakenBackIsBounded: a peer whose policy is another one whenever a connection is made,
// each of them agreed, does not have us make connections for ever.
func TestTakenBackIsBounded(t *testing.T) {
	t.Parallel()
	for _, resend := range []bool{false, true} {
		t.Run(fmt.Sprintf("resend=%v", resend), func(t *testing.T) {
			t.Parallel()
			var came, dials atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				came.Add(1)
				w.Header().Set("Connection", "close")
				w.Header().Set("X-Federation-Policy-Evaluated", "false")
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			t.Cleanup(server.Close)
			book, key := &PolicyBook{}, PolicyKey{Peer: "b", Capability: "c", Epoch: 1}
			agreeOn(t, book, key, "sha256:0")
			tr := newTestTransport(t, Config{
				Book: book, Peers: []Peer{testPeer("b", server.URL)},
				Anchors: anchorFunc(func(context.Context, string) (Anchor, error) { return Anchor{Version: "v1"}, nil }),
				Base: &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
					if n := dials.Add(1); !resend || n > 1 {
						agreeOn(t, book, key, fmt.Sprint("sha256:", n))
					}
					return new(net.Dialer).DialContext(ctx, network, address)
				}},
			})
			req, _ := http.NewRequestWithContext(ContextWithTask(t.Context(), Task{Capability: "c", Obligations: Terms{"r": "eu"}}), http.MethodGet, server.URL, nil)
			_, err := tr.RoundTrip(req)
			want, sent := ErrPolicyUnresolved, int64(0)
			if resend {
				want, sent = ErrRouting, 1
			}
			e, ok := errors.AsType[*Error](err)
			if !ok || !errors.Is(err, want) || e.Decision.Reason != ReasonNotAccepted || int64(e.Decision.Attempts) != sent || came.Load() != sent {
				t.Errorf("%v, %d requests", err, came.Load())
			}
			if n := dials.Load(); n != sent+maxTaken {
				t.Errorf("%d connections, want %d", n, sent+maxTaken)
			}
		})
	}
}

// TestTakenBackSaysNothingOfOthers: the denial for which a task was taken back, and which
// was forgotten then, is not in the decision of what was sent.
func TestTakenBackSaysNothingOfOthers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Federation-Policy-Evaluated", "true")
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	book, key := &PolicyBook{}, PolicyKey{Peer: "b", Capability: "c", Epoch: 1}
	if err := book.Advertise(Advertisement{key, "sha256:1"}); err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int64
	var armed atomic.Bool // for the next question alone
	tr := newTestTransport(t, Config{
		Book: book, Peers: []Peer{testPeer("b", server.URL)},
		Denials: &askedLedger{deny: func(Task, int) bool { return armed.Swap(false) }},
		// Held first, so that the call has details.
		Coordinator: coordinatorFunc(func(context.Context, Unresolved) { book.Accept(Policy{PolicyKey: key, Digest: "sha256:1"}) }),
		Base: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if dials.Add(1) == 1 {
				armed.Store(true)
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}},
	})
	req, _ := http.NewRequestWithContext(ContextWithTask(t.Context(), Task{Capability: "c", Obligations: Terms{"r": "eu"}}), http.MethodGet, server.URL, nil)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	d, _ := DecisionFromResponse(resp)
	if d.Outcome != OutcomeRejected || d.PolicyReason != "" || d.CorrelationID != "" || dials.Load() != 2 {
		t.Errorf("%v: the peer says %q, id %q, and has said nothing; %d connections", d.Outcome, d.PolicyReason, d.CorrelationID, dials.Load())
	}
}

// uncanceled is a wrapper that keeps its base from hearing of an end.
type uncanceled struct{ base http.RoundTripper }

func (u uncanceled) RoundTrip(req *http.Request) (*http.Response, error) {
	return u.base.RoundTrip(req.WithContext(context.WithoutCancel(req.Context())))
}

// TestOthersConnections: on a connection that is not ours nobody can keep a request from
// leaving. So it is not asked for there whether the request may, and it is sent once.
func TestOthersConnections(t *testing.T) {
	t.Parallel()
	var came atomic.Int64
	server := http2Server(t, 0, func(http.ResponseWriter, *http.Request) {
		if came.Add(1) == 1 {
			panic(http.ErrAbortHandler) // a reset
		}
	})
	ledger := &askedLedger{deny: func(_ Task, n int) bool { return n > 2 }} // twice before: the anchor was fetched
	tr := newTestTransport(t, Config{
		Base: uncanceled{server.Client().Transport}, Denials: ledger, Peers: []Peer{testPeer("b", server.URL)},
		Anchors: anchorFunc(func(context.Context, string) (Anchor, error) { return Anchor{Version: "v1"}, nil }),
	})
	req, _ := http.NewRequestWithContext(ContextWithTask(t.Context(), Task{Capability: "c"}), http.MethodPost, server.URL, nil)
	_, err := tr.RoundTrip(req)
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Decision.Outcome != OutcomeAmbiguous || e.Decision.Attempts != 1 || came.Load() != 1 {
		t.Errorf("%v, %d requests", err, came.Load())
	}
}

// leadingConn says where it leads to.
type leadingConn struct {
	net.Conn
	to string
}

func (c leadingConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.to), Port: 80} }
func (c leadingConn) Close() error         { panic("connection operation prohibited") } // as one of HTTP/3

// TestRefusedStaysRefused: a base that asks for another connection after one was refused
// does not get the request on it, which has ended.
func TestRefusedStaysRefused(t *testing.T) {
	t.Parallel()
	base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		trace := httptrace.ContextClientTrace(req.Context())
		for _, to := range []string{"203.0.113.7", "127.0.0.1"} {
			trace.GetConn(req.URL.Host)
			trace.GotConn(httptrace.GotConnInfo{Conn: leadingConn{to: to}})
		}
		<-req.Context().Done()
		return nil, req.Context().Err()
	})
	tr := newTestTransport(t, Config{Base: base, Peers: []Peer{testPeer("b", "http://registry.localhost")}})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://registry.localhost", nil)
	_, err := tr.RoundTrip(req)
	if e, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, ErrPeerUntrusted) || e.Decision.Delivery != DeliveryNotDelivered || errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	shut(nil, nil) // a base may report no connection at all
}

// TestTakenBackGivesStreamBack: the stream of an HTTP/2 connection that was meant for a
// request which is taken back is the next one's.
func TestTakenBackGivesStreamBack(t *testing.T) {
	t.Parallel()
	var dials atomic.Int64
	server := http2Server(t, 1, func(http.ResponseWriter, *http.Request) {})
	base := server.Client().Transport.(*http.Transport)
	base.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	ledger := &askedLedger{deny: func(task Task, n int) bool { return task.Scope == "denied" && n > 1 }}
	tr := newTestTransport(t, Config{Base: base, Denials: ledger, Peers: []Peer{testPeer("b", server.URL)}})
	for i := range 50 {
		task := Task{ID: fmt.Sprint(i), Capability: "c"}
		if i%2 == 1 {
			task.Scope = "denied"
		}
		ctx, cancel := context.WithTimeout(ContextWithTask(t.Context(), task), 10*time.Second)
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		resp, err := tr.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		if denied := errors.Is(err, ErrScopeDenied); denied != (i%2 == 1) || !denied && err != nil {
			t.Errorf("%d: %v", i, err)
		}
		cancel()
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
