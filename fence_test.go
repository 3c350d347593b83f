package fedhttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/fedhttp/fedhttp"
)

// fenceRequests are those that net/http sends again by itself on HTTP/1.
var fenceRequests = map[string]func(url string) *http.Request{
	"GET": func(url string) *http.Request {
		req, _ := http.NewRequest(http.MethodGet, url, nil)
		return req
	},
	"OPTIONS": func(url string) *http.Request {
		req, _ := http.NewRequest(http.MethodOptions, url, nil)
		return req
	},
	"POST with Idempotency-Key": func(url string) *http.Request {
		req, _ := http.NewRequest(http.MethodPost, url, strings.NewReader("a task"))
		req.Header.Set("Idempotency-Key", "k")
		return req
	},
}

func schemeName(secure bool) string {
	if secure {
		return "https"
	}
	return "http"
}

type idleRoundTripper interface {
	http.RoundTripper
	idler
}

// TestFenceHTTP1 is the table of what an HTTP/1 server sees of one request that
// it reads whole and then ends the connection, with a number of connections
// pooled: through net/http and through fedhttp.
func TestFenceHTTP1(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, pooled := range []int{1, 5, 20} {
			for name, request := range fenceRequests {
				t.Run(fmt.Sprintf("%s/%d pooled/%s", schemeName(secure), pooled, name), func(t *testing.T) {
					checkLeaks(t)
					t.Parallel()
					base := func() *http.Transport {
						return &http.Transport{MaxIdleConnsPerHost: pooled, TLSClientConfig: trusting()}
					}
					// deliveries is what the server has counted when all is read.
					deliveries := func(rt idleRoundTripper, peer *doomedPeer) (int64, error) {
						peer.warm(t, rt, pooled)
						err := rawSend(rt, request(peer.url+"/doomed"))
						if err == nil {
							t.Fatal("a request without an answer got one")
						}
						peer.drain(rt)
						return peer.whole.Load(), err
					}

					control, _ := deliveries(base(), newDoomedPeer(t, secure, endGoodbye))
					if control <= 1 {
						t.Errorf("net/http delivers %d times: nothing is tested", control)
					}

					peer := newDoomedPeer(t, secure, endGoodbye)
					tr := fenced(t, base(), peer.url)
					got, err := deliveries(tr, peer)
					t.Logf("delivered: net/http %d times, fedhttp %d times: %v", control, got, err)
					if got != 1 {
						t.Errorf("delivered %d times, want once", got)
					}
					checkAmbiguous(t, err)
					if !errors.Is(err, io.EOF) {
						t.Errorf("got %v, want io.EOF: what ended the first connection", err)
					}
				})
			}
		}
	}
}

// TestFenceError: the caller gets what ended the first connection, by its type,
// however the peer did that, and whatever net/http met when it tried again.
func TestFenceError(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for _, end := range []rawEnding{endGoodbye, endAbrupt, endReset} {
			for _, pooled := range []int{1, 2} {
				for _, gone := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s/%s/%d pooled/gone=%v", schemeName(secure), end, pooled, gone), func(t *testing.T) {
						checkLeaks(t)
						t.Parallel()
						peer := newDoomedPeer(t, secure, end)
						tr := fenced(t, &http.Transport{MaxIdleConnsPerHost: pooled, TLSClientConfig: trusting()}, peer.url)
						peer.warm(t, tr, pooled)
						if gone {
							peer.listener.Close() // another connection would be refused
						}
						err := rawGet(tr, strings.Replace(peer.url, "://", "://user:secret@", 1)+"/doomed?token=secret")
						checkAmbiguous(t, err)
						checkEnding(t, err, secure, end)
						if strings.Contains(err.Error(), "secret") {
							t.Errorf("the error has a secret: %v", err)
						}
						peer.drain(tr)
						if got := peer.whole.Load(); got != 1 {
							t.Errorf("delivered %d times, want once", got)
						}
					})
				}
			}
		}
	}
}

// checkEnding checks that err is what net/http itself would have returned, had
// it not sent again.
func checkEnding(t *testing.T, err error, secure bool, end rawEnding) {
	t.Helper()
	var op *net.OpError
	switch end {
	case endReset:
		if !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &op) || op.Op != "read" {
			t.Errorf("got %v, want the *net.OpError of a reset", err)
		}
	case endAbrupt:
		if want := map[bool]error{false: io.EOF, true: io.ErrUnexpectedEOF}[secure]; !errors.Is(err, want) && !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want %v", err, want)
		}
	default:
		if !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want io.EOF", err)
		}
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, which says that nothing was delivered", err)
	}
}

// TestFenceURLError: an http.Client wraps the error in one with the URL, which
// has no password, and a base that is a Client adds one of its own, which has no
// query either.
func TestFenceURLError(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := newDoomedPeer(t, false, endGoodbye)
	own := &http.Transport{}
	t.Cleanup(own.CloseIdleConnections)
	inner := &http.Client{Transport: own}
	base := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		return inner.Do(req)
	})
	tr := fenced(t, base, peer.url)
	err := rawGet(tr, strings.Replace(peer.url, "://", "://user:secret@", 1)+"/doomed?token=secret")
	checkAmbiguous(t, err)
	if !errors.Is(err, io.EOF) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), peer.url+"/doomed") {
		t.Errorf("got %v, want io.EOF at the URL without userinfo and query", err)
	}
}

// TestFenceRetryable is the last row of the table: what a retry library with its
// default policy makes of a POST, and what fedhttp does.
func TestFenceRetryable(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	control := newDoomedPeer(t, false, endGoodbye)
	plain := &http.Transport{}
	client := retryablehttp.NewClient()
	client.HTTPClient.Transport, client.Logger = plain, nil
	client.RetryWaitMin, client.RetryWaitMax = 1, 1
	if _, err := client.Post(control.url+"/doomed", "text/plain", strings.NewReader("a task")); err == nil {
		t.Fatal("a request without an answer got one")
	}
	control.drain(plain)
	if n := control.whole.Load(); n <= 1 {
		t.Errorf("retryablehttp delivers %d times: nothing is tested", n)
	}

	peer := newDoomedPeer(t, false, endGoodbye)
	tr := fenced(t, &http.Transport{}, peer.url)
	_, err := (&http.Client{Transport: tr}).Post(peer.url+"/doomed", "text/plain", strings.NewReader("a task"))
	checkAmbiguous(t, err)
	peer.drain(tr)
	t.Logf("delivered: retryablehttp %d times, fedhttp %d times", control.whole.Load(), peer.whole.Load())
	if n := peer.whole.Load(); n != 1 {
		t.Errorf("delivered %d times, want once", n)
	}
}

// countingPeer answers every whole request, and counts them.
func countingPeer(t *testing.T) (peer *rawServer, whole *atomic.Int64) {
	whole = new(atomic.Int64)
	return listenRaw(t, nil, func(conn net.Conn) {
		br := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(br)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, req.Body); err != nil {
				return
			}
			whole.Add(1)
			if _, err := io.WriteString(conn, rawNoContent); err != nil {
				return
			}
		}
	}), whole
}

// TestFenceProof: what became of one request is told by what the connection
// took. Each row has one that fails when it takes the request, pooled or fresh.
func TestFenceProof(t *testing.T) {
	type want struct {
		outcome  fedhttp.Outcome
		reason   fedhttp.Reason
		attempts int
		dials    int
		whole    int64 // requests that the peer saw, without those that fill the pool
	}
	delivered := want{outcome: fedhttp.OutcomeDelivered, attempts: 1, dials: 2, whole: 1}
	sentAgain := want{outcome: fedhttp.OutcomeDelivered, attempts: 2, dials: 2, whole: 1}
	inDoubt := want{outcome: fedhttp.OutcomeAmbiguous, reason: fedhttp.ReasonNoSignal, attempts: 1, dials: 1}
	get := fenceRequests["GET"]
	post := func(url string) *http.Request {
		req, _ := http.NewRequest(http.MethodPost, url, strings.NewReader("a task"))
		return req
	}
	once := func(url string) *http.Request {
		req, _ := http.NewRequest(http.MethodPost, url, io.MultiReader(strings.NewReader("a task")))
		return req
	}
	for _, row := range []struct {
		name    string
		pooled  bool
		took    int // bytes that the connection takes before it fails
		refuse  []int
		request func(string) *http.Request
		want    want
	}{
		{"a stale connection that takes nothing, GET", true, 0, nil, get, delivered},
		{"a stale connection that takes nothing, POST", true, 0, nil, post, delivered},
		{"a stale connection that takes nothing, a body without GetBody that nobody has read", true, 0, nil, once, sentAgain},
		{"a stale connection that takes a byte, GET", true, 1, nil, get, inDoubt},
		{"a stale connection that takes a byte, POST", true, 1, nil, post, inDoubt},
		{"a stale connection that takes a byte, POST with key", true, 1, nil, fenceRequests["POST with Idempotency-Key"], inDoubt},
		{"a fresh connection that takes nothing, GET", false, 0, nil, get, sentAgain},
		{"a fresh connection that takes nothing, POST", false, 0, nil, post, sentAgain},
		{"a fresh connection that takes a byte, GET", false, 1, nil, get, inDoubt},
		{
			"a stale connection that takes nothing, then none", true, 0, []int{2, 3, 4}, get,
			want{outcome: fedhttp.OutcomeRoutingFailed, reason: fedhttp.ReasonAttemptsExhausted, attempts: 3, dials: 4},
		},
		{
			"a stale connection that takes nothing, one refused", true, 0, []int{2}, get,
			want{outcome: fedhttp.OutcomeDelivered, attempts: 2, dials: 3, whole: 1},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			checkLeaks(t)
			t.Parallel()
			peer, whole := countingPeer(t)
			tap := &wireTap{refuse: row.refuse}
			fail := func([]byte) (int, error) {
				return row.took, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
			}
			first := true
			tr := fenced(t, &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := tap.dial(ctx, network, addr)
				if err == nil && first && !row.pooled {
					conn.(*tappedConn).intercept(fail)
				}
				first = false
				return conn, err
			}}, peer.url)
			if row.pooled {
				pool(t, tr, peer.url)
				tap.oneIsPooled()
				tap.last().intercept(fail)
				whole.Store(0)
			}
			got := want{attempts: 1}
			resp, err := tr.RoundTrip(row.request(peer.url + "/task"))
			if err == nil {
				resp.Body.Close()
				d, _ := fedhttp.DecisionFromResponse(resp)
				got.outcome, got.reason, got.attempts = d.Outcome, d.Reason, d.Attempts
			} else {
				d := fenceDecision(t, err)
				got.outcome, got.reason, got.attempts = d.Outcome, d.Reason, d.Attempts
			}
			peer.drain(tr)
			got.dials, got.whole = tap.dialed(), whole.Load()
			if got != row.want {
				t.Errorf("got %+v, want %+v (%v)", got, row.want, err)
			}
			if row.want == inDoubt && !errors.Is(err, syscall.EPIPE) {
				t.Errorf("got %v, want what the connection said", err)
			}
		})
	}
}

// TestFenceProofIsMadeAnew: an attempt that is refused is proven undelivered and
// sent again. The next, whose connection ends after the request has left, is
// not, whatever was proven before.
func TestFenceProofIsMadeAnew(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := newDoomedPeer(t, false, endGoodbye)
	tap := &wireTap{refuse: []int{1}}
	tr := fenced(t, &http.Transport{DialContext: tap.dial}, peer.url)
	err := rawGet(tr, peer.url+"/doomed")
	d := fenceDecision(t, err)
	if d.Attempts != 2 || d.Outcome != fedhttp.OutcomeAmbiguous || d.Delivery != fedhttp.DeliveryPossible || len(d.Evidence) != 0 {
		t.Errorf("got %+v, want two attempts, the second in doubt and without evidence", d)
	}
	if !errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v, want the error of the second attempt", err)
	}
	peer.drain(tr)
	if n := peer.whole.Load(); n != 1 || tap.dialed() != 2 {
		t.Errorf("delivered %d times over %d dials, want once over 2", n, tap.dialed())
	}
}

// TestFenceStops what other bases do as well: each uses the connections of the
// request's context in a way of its own, and answers as if nothing had happened.
func TestFenceStops(t *testing.T) {
	said := http.Header{"X-Federation-Policy-Evaluated": {"false"}}
	answer := func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusForbidden, Header: said, Body: http.NoBody, Request: req}, nil
	}
	for name, base := range map[string]roundTripFunc{
		"a response after a second connection": func(req *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(req.Context())
			for range 2 {
				conn, other := net.Pipe()
				defer other.Close()
				trace.GotConn(httptrace.GotConnInfo{Conn: conn})
				defer conn.Close()
			}
			if req.Context().Err() == nil {
				return nil, errors.New("the second connection may be used")
			}
			return answer(req)
		},
		"a response after another was asked for": func(req *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(req.Context())
			conn, other := net.Pipe()
			defer other.Close()
			defer conn.Close()
			trace.GetConn("b")
			trace.GotConn(httptrace.GotConnInfo{Conn: conn})
			trace.GetConn("b")
			if req.Context().Err() == nil {
				return nil, errors.New("another connection may be dialed")
			}
			return answer(req)
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			t.Parallel()
			tr := fenced(t, base, "http://127.0.0.1:1")
			err := rawGet(tr, "http://127.0.0.1:1/")
			checkAmbiguous(t, err)
			if d := fenceDecision(t, err); len(d.Evidence) != 0 {
				t.Errorf("evidence %v from a response to nothing that was sent", d.Evidence)
			}
		})
	}
}

// TestFenceAfterTheEnd: a base that goes on after it has returned an error gets
// no connection any more that it could send on.
func TestFenceAfterTheEnd(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	var trace *httptrace.ClientTrace
	tr := fenced(t, roundTripFunc(func(req *http.Request) (*http.Response, error) {
		trace = httptrace.ContextClientTrace(req.Context())
		trace.GetConn("b")
		return nil, errors.New("no connection came")
	}), "http://127.0.0.1:1")
	err := rawGet(tr, "http://127.0.0.1:1/")
	if d := fenceDecision(t, err); d.Delivery != fedhttp.DeliveryNotDelivered {
		t.Fatalf("got %+v", d)
	}
	conn, other := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, other) }()
	defer other.Close()
	trace.GotConn(httptrace.GotConnInfo{Conn: conn})
	if _, err := conn.Write([]byte("GET")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v, want a connection that was closed", err)
	}
}
