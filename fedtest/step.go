package fedtest

import (
	"context"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"
)

// Step is how the routing layer takes one request. Any handler function is a
// Step: it may answer by itself, or do something and then call another Step
// with the same request. A request that no step hands to the policy engine
// ([Pass], [Allow], [Deny], [Decide]) is never evaluated.
//
// The request's context ends when the client has gone or the peer is closed. The
// steps of this package read the request's body whole before they answer; one
// of the user's own need not. To drop the connection, panic with
// [http.ErrAbortHandler], as [CloseConnection] does.
type Step func(w http.ResponseWriter, r *http.Request)

// Pass takes the request in the ordinary way, as though there were no script.
func Pass() Step {
	return func(w http.ResponseWriter, r *http.Request) { exchangeOf(r).serve(w, r) }
}

// Decide hands the request to the policy engine, whatever its anchor, and has
// the engine come to the verdict without asking [Config].Policy. A quarantine
// stands over it.
func Decide(v Verdict) Step {
	return func(w http.ResponseWriter, r *http.Request) {
		x := exchangeOf(r)
		x.verdict = &v
		x.peer.Routing.deliver(w, r)
		x.verdict = nil
	}
}

// Allow is [Decide] with a verdict that allows.
func Allow() Step { return Decide(Verdict{}) }

// Deny is [Decide] with a refusal: 403, and the reason.
func Deny(reason string) Step { return Decide(Verdict{Deny: true, Reason: reason}) }

// RouteStale has the routing layer answer as for a stale anchor, whatever the
// request's anchor is.
func RouteStale() Step {
	return func(w http.ResponseWriter, r *http.Request) { exchangeOf(r).peer.Routing.refuseStale(w, r) }
}

// RouteDrop has the routing layer answer with the status (502, 503 and 504 are
// the usual ones) for a reason other than the anchor.
func RouteDrop(status int) Step {
	return func(w http.ResponseWriter, r *http.Request) { exchangeOf(r).peer.Routing.refuse(w, r, status) }
}

// Hiding takes the step, whose answer lacks the signals. Only the answers of
// the layers have signals; what Raw and the like write is as it is.
func Hiding(hidden Signal, step Step) Step {
	return func(w http.ResponseWriter, r *http.Request) {
		exchangeOf(r).hidden |= hidden
		step(w, r)
	}
}

// Delay waits, and then takes the step. The connection is dropped when the
// client goes or the peer is closed meanwhile. It leaves the body to the step,
// so that on HTTP/1 a client that sent one is not seen to go.
func Delay(wait time.Duration, step Step) Step {
	return func(w http.ResponseWriter, r *http.Request) {
		pause(r.Context(), wait)
		step(w, r)
	}
}

// Lose takes the first step, loses its answer, and lets the second answer in
// its place. Lose(Pass(), CloseConnection()) is a request that the policy engine
// has seen and counted, while its client cannot know.
func Lose(lost, then Step) Step {
	return func(w http.ResponseWriter, r *http.Request) {
		lost(&discard{header: http.Header{}}, r)
		then(w, r)
	}
}

// discard is a ResponseWriter whose answer nobody gets.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Flush()                      {}

// Raw answers with the status, header and body as they are given, without any
// signal. Values may repeat and contradict one another. The header may be nil.
func Raw(status int, header http.Header, body string) Step {
	return func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		start(w, status, header)
		_, _ = io.WriteString(w, body)
	}
}

// Wire writes the bytes to the connection, as they are, and closes it: for
// malformed and cut answers. HTTP/1 only; on HTTP/2 it resets the stream.
func Wire(answer string) Step {
	return func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer conn.Close()
		defer context.AfterFunc(r.Context(), func() { conn.Close() })()
		_, _ = buffered.WriteString(answer)
		_ = buffered.Flush()
	}
}

// CloseConnection reads the request and closes the connection without an
// answer. On HTTP/2 it resets the stream.
func CloseConnection() Step {
	return func(_ http.ResponseWriter, r *http.Request) {
		drain(r)
		panic(http.ErrAbortHandler)
	}
}

// Hang reads the request and answers nothing until the client goes or the peer
// is closed.
func Hang() Step {
	return func(_ http.ResponseWriter, r *http.Request) {
		drain(r)
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	}
}

// Drip answers like [Raw], but a byte at a time, and waits between every two.
func Drip(status int, header http.Header, body string, wait time.Duration) Step {
	return func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		start(w, status, header)
		drip(w, r, strings.NewReader(body), 1, wait)
	}
}

// Endless answers with a body that does not end before the client goes or the
// peer is closed: as fast as the client reads, or a byte at a time where wait
// is more than zero.
func Endless(status int, header http.Header, wait time.Duration) Step {
	return func(w http.ResponseWriter, r *http.Request) {
		drain(r)
		start(w, status, header)
		chunk := 32 << 10
		if wait > 0 {
			chunk = 1
		}
		drip(w, r, dots{}, chunk, wait)
	}
}

// dots is an endless body.
type dots struct{}

func (dots) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '.'
	}
	return len(p), nil
}

func drip(w http.ResponseWriter, r *http.Request, body io.Reader, chunk int, wait time.Duration) {
	flush := http.NewResponseController(w).Flush
	buf := make([]byte, chunk)
	for first := true; ; first = false {
		n, err := body.Read(buf)
		if err != nil {
			return
		}
		if !first {
			pause(r.Context(), wait)
		}
		if _, err := w.Write(buf[:n]); err != nil || flush() != nil {
			panic(http.ErrAbortHandler)
		}
	}
}

// pause waits. It drops the connection when the context ends.
func pause(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		panic(http.ErrAbortHandler)
	}
}

func start(w http.ResponseWriter, status int, header http.Header) {
	maps.Copy(w.Header(), header.Clone())
	w.WriteHeader(status)
}
