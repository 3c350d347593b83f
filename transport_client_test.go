package fedhttp_test

import (
	"bufio"
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
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// The Transport under an http.Client, over real connections.

func TestClientDropIn(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
	t.Cleanup(peer.Close)
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{testPeer("b", peer.URL)}})
	client := &http.Client{Transport: tr}
	resp, err := client.Post(peer.URL+"/v1/tasks", "text/plain", strings.NewReader(rowBody))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil || !strings.Contains(string(body), "ok") {
		t.Errorf("body %q, %v", body, err)
	}
	d, ok := fedhttp.DecisionFromResponse(resp)
	if !ok || d.Outcome != fedhttp.OutcomeDelivered || d.Err() != nil || d.Peer != "b" {
		t.Errorf("decision %+v, %v", d, ok)
	}
	if resp.Request == nil || resp.Request.URL.String() != peer.URL+"/v1/tasks" || resp.Request.Method != http.MethodPost {
		t.Errorf("response.Request is %+v", resp.Request)
	}
	if e := peer.Routing.Log()[0]; e.BodyBytes != int64(len(rowBody)) || e.Header.Get("Content-Type") != "text/plain" {
		t.Errorf("the peer got %+v", e)
	}
	for _, other := range []*http.Response{nil, {}, {Request: &http.Request{}}} {
		if _, ok := fedhttp.DecisionFromResponse(other); ok {
			t.Errorf("%v has a decision", other)
		}
	}
}

// TestClientTimeoutWhileHeld: nothing of preflight looks like a transport error.
func TestClientTimeoutWhileHeld(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	synctest.Test(t, timeoutWhileHeld) // or it may be over before the task is held
}

func timeoutWhileHeld(t *testing.T) {
	peer := fedtest.NewUnstartedPeer(fedtest.Config{ErrorLog: quietLog})
	t.Cleanup(peer.Close)
	tr := newTestTransport(t, fedhttp.Config{Base: peer.Transport(), Peers: []fedhttp.Peer{testPeer("b", peer.URL)}, Logger: quietLogger})
	ctx, cancel := context.WithTimeoutCause(fedhttp.ContextWithTask(context.Background(), *heldTask), 20*time.Millisecond, errCallersCause)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, peer.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tr.RoundTrip(req)
	var e *fedhttp.Error
	if !errors.As(err, &e) || e.Timeout() || e.Decision.Reason != fedhttp.ReasonContextEnded {
		t.Errorf("%v: want policy_unresolved (context_ended), and no timeout", err)
	}
	for _, want := range []error{fedhttp.ErrPolicyUnresolved, context.DeadlineExceeded, errCallersCause} {
		if !errors.Is(err, want) {
			t.Errorf("%v is not %v", err, want)
		}
	}
	if n := len(peer.Routing.Log()); n != 0 {
		t.Errorf("%d sends, want none", n)
	}
}

// TestRedirects: the transport never follows one; a client that does passes the
// whole way again, so a host that is no peer is refused.
func TestRedirects(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	elsewhere := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
	t.Cleanup(elsewhere.Close)
	peer := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
	t.Cleanup(peer.Close)
	to := func(location string) fedtest.Step {
		return fedtest.Raw(http.StatusTemporaryRedirect, http.Header{"Location": {location}}, "")
	}
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{testPeer("b", peer.URL)}})
	post := func(rt func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		req, err := http.NewRequest(http.MethodPost, peer.URL+"/a", strings.NewReader(rowBody))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt(req)
		if resp != nil {
			resp.Body.Close()
		}
		return resp, err
	}
	for _, location := range []string{elsewhere.URL, "/b", "::not a URL::"} {
		peer.Script(to(location))
		if resp, err := post(tr.RoundTrip); err != nil || resp.StatusCode != http.StatusTemporaryRedirect || resp.Header.Get("Location") != location {
			t.Errorf("RoundTrip with Location %q: %v, %v", location, resp, err)
		}
	}
	if n := len(peer.Routing.Log()); n != 3 {
		t.Fatalf("the transport sent %d times, want 3", n)
	}
	client := &http.Client{Transport: tr}
	peer.Script(to("/b"), fedtest.Raw(200, nil, "there"))
	if resp, err := post(client.Do); err != nil || resp.StatusCode != 200 {
		t.Errorf("a redirect within the peer: %v, %v", resp, err)
	}
	peer.Script(to(elsewhere.URL + "/b"))
	if _, err := post(client.Do); !errors.Is(err, fedhttp.ErrUnknownPeer) {
		t.Errorf("a redirect to a host that is no peer: %v, want ErrUnknownPeer", err)
	}
	if n := len(elsewhere.Routing.Log()); n != 0 {
		t.Errorf("the host that is no peer got %d requests", n)
	}
}

// TestUpgrade: the body of a 101 can be written to.
func TestUpgrade(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line, err := buf.ReadString('\n')
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, "echo "+line)
	}))
	t.Cleanup(echo.Close)
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{testPeer("b", echo.URL)}, Base: &http.Transport{}})
	req, err := http.NewRequest(http.MethodGet, echo.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stream, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		t.Fatalf("the body of a 101 is %T, want an io.ReadWriteCloser", resp.Body)
	}
	if _, err := io.WriteString(stream, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stream).ReadString('\n'); line != "echo hello\n" || err != nil {
		t.Errorf("the stream gave %q, %v", line, err)
	}
}

// TestOwnHeaders: what the caller says in this transport's own headers never
// reaches the peer, however it spells them.
func TestOwnHeaders(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
	t.Cleanup(peer.Close)
	peer.Otherwise(fedtest.Raw(200, nil, ""))
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{testPeer("b", peer.URL)}, Anchors: risingAnchors()})
	for _, spelling := range []func(string) string{http.CanonicalHeaderKey, strings.ToLower, strings.ToUpper} {
		req, err := http.NewRequest(http.MethodGet, peer.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{fedtest.HeaderPolicyDigest, fedtest.HeaderNegotiationEpoch, fedtest.HeaderAnchorVersion} {
			req.Header[spelling(name)] = []string{"forged"}
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		log := peer.Routing.Log()
		got := log[len(log)-1].Header
		if v := got.Values(fedtest.HeaderAnchorVersion); len(v) != 1 || v[0] != "v1" {
			t.Errorf("spelled %s: anchor version %q, want v1", spelling(fedtest.HeaderAnchorVersion), v)
		}
		if v := got.Values(fedtest.HeaderPolicyDigest); len(v) != 0 {
			t.Errorf("spelled %s: policy digest %q, want none", spelling(fedtest.HeaderPolicyDigest), v)
		}
		if v := got.Values(fedtest.HeaderNegotiationEpoch); len(v) != 0 {
			t.Errorf("spelled %s: epoch %q, want none", spelling(fedtest.HeaderNegotiationEpoch), v)
		}
	}
}

// TestCausesAreKept: errors.Is finds the caller's cause and the context's own
// error, wherever the call was when the context ended.
func TestCausesAreKept(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
	t.Cleanup(peer.Close)
	reached := make(chan struct{}, 1)
	dialing := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		reached <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	t.Cleanup(dialing.CloseIdleConnections)
	fetching := anchorFunc(func(ctx context.Context, _ string) (fedhttp.Anchor, error) {
		reached <- struct{}{}
		<-ctx.Done()
		return fedhttp.Anchor{}, ctx.Err()
	})
	coordinator := coordinatorFunc(func(context.Context, fedhttp.Unresolved) { reached <- struct{}{} })
	hang := func(w http.ResponseWriter, r *http.Request) {
		reached <- struct{}{}
		fedtest.Hang()(w, r)
	}
	peer.Otherwise(hang)
	for _, test := range []struct {
		name     string
		cfg      fedhttp.Config
		task     fedhttp.Task
		sentinel error
	}{
		{"held", fedhttp.Config{Coordinator: coordinator}, *heldTask, fedhttp.ErrPolicyUnresolved},
		{"fetching the anchor", fedhttp.Config{Anchors: fetching}, fedhttp.Task{}, nil},
		{"dialing", fedhttp.Config{Base: dialing}, fedhttp.Task{}, nil},
		{"waiting for the answer", fedhttp.Config{}, fedhttp.Task{}, nil},
	} {
		test.cfg.Peers, test.cfg.Logger = []fedhttp.Peer{testPeer("b", peer.URL)}, quietLogger
		tr := newTestTransport(t, test.cfg)
		ctx, cancel := context.WithCancelCause(fedhttp.ContextWithTask(context.Background(), test.task))
		done := make(chan struct{})
		go func() {
			defer close(done)
			<-reached
			cancel(errCallersCause)
		}()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, peer.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = tr.RoundTrip(req)
		<-done
		if !errors.Is(err, errCallersCause) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v keeps not both of the context's error and cause", test.name, err)
		}
		if test.sentinel != nil && !errors.Is(err, test.sentinel) {
			t.Errorf("%s: %v is not %v", test.name, err, test.sentinel)
		}
		var e *fedhttp.Error
		if !errors.As(err, &e) || e.Decision.Reason != fedhttp.ReasonContextEnded || e.Decision.Escalated {
			t.Errorf("%s: %v; want reason context_ended and no escalation", test.name, err)
		}
	}
}

// TestConcurrentCallers is for the race detector, and counts what arrives.
func TestConcurrentCallers(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
	t.Cleanup(peer.Close)
	base := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(base.CloseIdleConnections)
	peer.Rotate()
	cfg := testPeer("b", peer.URL)
	cfg.Breaker.Failures = -1
	tr := newTestTransport(t, fedhttp.Config{
		Peers: []fedhttp.Peer{cfg}, Base: base, Logger: quietLogger,
		Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
			a := peer.Anchor()
			return fedhttp.Anchor{Version: a.Version, IssuedAt: a.IssuedAt}, nil
		}),
	})
	client := &http.Client{Transport: tr}
	const callers, each = 64, 8
	var delivered atomic.Int64
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for n := range each {
				if i == 0 && n == each/2 {
					peer.Rotate()
				}
				req, err := http.NewRequest(http.MethodPost, peer.URL+"/v1/tasks", strings.NewReader(rowBody))
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set(fedtest.HeaderTask, fmt.Sprintf("t-%d-%d", i, n))
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if d, _ := fedhttp.DecisionFromResponse(resp); d.Outcome == fedhttp.OutcomeDelivered {
					delivered.Add(1)
				} else {
					t.Errorf("%v (%v)", d.Outcome, d.Reason)
				}
				_ = tr.Status()
			}
		})
	}
	group.Wait()
	if n := delivered.Load(); n != callers*each {
		t.Errorf("%d of %d were delivered", n, callers*each)
	}
	for _, task := range peer.Tasks() {
		if task.Evaluations != 1 {
			t.Errorf("task %s was evaluated %d times", task.ID, task.Evaluations)
		}
	}
	if s := tr.Status()[0]; s.InFlight != 0 {
		t.Errorf("%d are in flight after all have returned", s.InFlight)
	}
}
