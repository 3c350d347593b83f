package fedhttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// What a body does while a dialect waits for it. All of it is in virtual time.

const peekLimit = 10 * time.Second // AttemptTimeout here

// peekBubble runs the test in a bubble with a Transport for a peer of which every
// dialect is believed.
func peekBubble(t *testing.T, base func(url string) (http.RoundTripper, func()), test func(t *testing.T, tr *fedhttp.Transport, url string)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rt, done := base(stubURL)
		defer done()
		p := testPeer("b", stubURL)
		p.Retry.AttemptTimeout = peekLimit
		p.Signals.Dialects = everyDialect(fedhttp.Hop{Name: "front"})
		p.Signals.ReadProblemDetail = true
		tr, err := fedhttp.NewTransport(fedhttp.Config{
			Base: rt, Anchors: fenceEager(), Escalator: fenceQuiet, Logger: quietLogger, Peers: []fedhttp.Peer{p},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		test(t, tr, stubURL)
	})
}

// peekServed is a base that reaches a server of net/http.
func peekServed(http2 bool, steps ...fedtest.Step) func(string) (http.RoundTripper, func()) {
	return func(string) (http.RoundTripper, func()) {
		peer := fedtest.NewUnstartedPeer(fedtest.Config{ErrorLog: quietLog, HTTP2: http2})
		peer.Script(steps...)
		base := peer.Transport()
		return roundTripFunc(func(req *http.Request) (*http.Response, error) {
			there := req.Clone(req.Context())
			there.URL.Scheme, there.URL.Host = "http", strings.TrimPrefix(peer.URL, "http://")
			return base.RoundTrip(there)
		}), func() { base.CloseIdleConnections(); peer.Close() }
	}
}

// slowBody gives its pieces, each after its time. As net/http's does, it ends a read
// when its request's context ends, and when it is closed.
type slowBody struct {
	ctx    context.Context
	pieces []slowPiece
	closed chan struct{}
	end    error
}

type slowPiece struct {
	after time.Duration
	text  string
}

func (b *slowBody) Read(p []byte) (int, error) {
	if len(b.pieces) == 0 {
		return 0, b.end
	}
	select {
	case <-b.closed:
		return 0, errors.New("closed")
	case <-b.ctx.Done():
		return 0, b.ctx.Err()
	case <-time.After(b.pieces[0].after):
	}
	n := copy(p, b.pieces[0].text)
	if b.pieces[0].text = b.pieces[0].text[n:]; b.pieces[0].text == "" {
		b.pieces = b.pieces[1:]
	} else {
		b.pieces[0].after = 0
	}
	return n, nil
}

func (b *slowBody) Close() error { close(b.closed); return nil }

// slowClose is a body whose Close waits for a Read.
type slowClose struct {
	*slowBody
	reading chan struct{}
}

func (b slowClose) Read(p []byte) (int, error) {
	b.reading <- struct{}{}
	defer func() { <-b.reading }()
	return b.slowBody.Read(p)
}

func (b slowClose) Close() error {
	b.reading <- struct{}{}
	defer func() { <-b.reading }()
	return b.slowBody.Close()
}

// peekSlowClose is peekSlow with such a body.
func peekSlowClose(base func(string) (http.RoundTripper, func())) func(string) (http.RoundTripper, func()) {
	return func(url string) (http.RoundTripper, func()) {
		rt, done := base(url)
		return roundTripFunc(func(req *http.Request) (*http.Response, error) {
			resp, err := rt.RoundTrip(req)
			resp.Body = slowClose{resp.Body.(*slowBody), make(chan struct{}, 1)}
			return resp, err
		}), done
	}
}

// peekSlow is a base that answers 503, after a time, with a slowBody.
func peekSlow(after time.Duration, end error, pieces ...slowPiece) func(string) (http.RoundTripper, func()) {
	return func(string) (http.RoundTripper, func()) {
		return roundTripFunc(func(req *http.Request) (*http.Response, error) {
			time.Sleep(after)
			return &http.Response{
				StatusCode: 503, ProtoMajor: 2, Header: http.Header{}, ContentLength: -1,
				Body: &slowBody{req.Context(), append([]slowPiece(nil), pieces...), make(chan struct{}), end},
			}, nil
		}), func() {}
	}
}

// peekGo sends a request, and reports how long the response was waited for.
func peekGo(ctx context.Context, t *testing.T, tr http.RoundTripper, url string) (*http.Response, time.Duration) {
	t.Helper()
	begin := time.Now()
	resp, err := tr.RoundTrip(newGet(t, url).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	return resp, time.Since(begin)
}

// TestSlowBodies: a body that comes too slowly for a dialect is waited for as long as
// the attempt has time, and no longer; it is whole all the same. One that no dialect
// could make anything of is not waited for.
func TestSlowBodies(t *testing.T) {
	const text = `{"type":"https://example.com/a-body-of-a-hundred-bytes","detail":"that-is-dripped-over-ninety-nine-s"}`
	for _, row := range []struct {
		status int
		media  string
		waits  bool
	}{
		{422, "text/plain", false},
		{500, "application/json-seq", false},
		{404, "text/html", false},
		{503, "text/event-stream", false},
		{400, "text/html", true},
		{422, "application/json", true},
		{404, "application/json", true},
		{503, "text/plain", true},
		{403, "application/problem+json", true},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d/%s/http2=%v", row.status, row.media, http2), func(t *testing.T) {
				header := http.Header{fedtest.HeaderPolicyEvaluated: {"true"}, "Content-Type": {row.media}}
				peekBubble(t, peekServed(http2, fedtest.Drip(row.status, header, text, time.Second)), func(t *testing.T, tr *fedhttp.Transport, url string) {
					resp, took := peekGo(t.Context(), t, tr, url)
					defer resp.Body.Close()
					if row.waits && took != peekLimit || !row.waits && took != 0 {
						t.Errorf("the response was waited for for %v", took)
					}
					if got, err := io.ReadAll(resp.Body); string(got) != text || err != nil {
						t.Errorf("%d bytes, %v", len(got), err)
					}
				})
			})
		}
	}
}

// TestSlowHeader: what the header has taken is not given to the body once more.
func TestSlowHeader(t *testing.T) {
	peekBubble(t, peekSlow(7*time.Second, io.EOF, slowPiece{time.Hour, "x"}), func(t *testing.T, tr *fedhttp.Transport, url string) {
		resp, took := peekGo(t.Context(), t, tr, url)
		defer resp.Body.Close()
		if took != peekLimit {
			t.Errorf("waited for %v", took)
		}
	})
}

// TestSlowBodyInTime: what comes in time is heard, and is waited for no longer.
func TestSlowBodyInTime(t *testing.T) {
	for end, want := range map[error]string{io.EOF: "[envoy=routing istio=routing] <nil>", io.ErrUnexpectedEOF: "[] unexpected EOF"} {
		t.Run(end.Error(), func(t *testing.T) {
			base := peekSlow(time.Second, end, slowPiece{2 * time.Second, "no healthy"}, slowPiece{3 * time.Second, " upstream"})
			peekBubble(t, base, func(t *testing.T, tr *fedhttp.Transport, url string) {
				tr.SetDegraded("b", true) // so that nothing is sent again
				resp, took := peekGo(t.Context(), t, tr, url)
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				if d, _ := fedhttp.DecisionFromResponse(resp); fmt.Sprint(d.Evidence, " ", err) != want || took != 6*time.Second {
					t.Errorf("%v after %v, and the body ends with %v; want %s", d.Evidence, took, err, want)
				}
				if string(got) != "no healthy upstream" {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// TestSlowBodyIsReadAtOnce: the caller waits for the next bytes, and never for more.
func TestSlowBodyIsReadAtOnce(t *testing.T) {
	base := peekSlow(0, io.EOF, slowPiece{time.Second, "first"}, slowPiece{time.Hour, "second"}, slowPiece{time.Hour, strings.Repeat("x", 9000)})
	peekBubble(t, base, func(t *testing.T, tr *fedhttp.Transport, url string) {
		resp, _ := peekGo(t.Context(), t, tr, url)
		defer resp.Body.Close()
		buf := make([]byte, 64)
		for _, want := range []struct {
			text string
			at   time.Duration
		}{{"first", 0}, {"second", time.Hour - peekLimit + time.Second}, {strings.Repeat("x", 64), time.Hour}} {
			begin := time.Now()
			n, err := resp.Body.Read(buf)
			if took := time.Since(begin); string(buf[:n]) != want.text || err != nil || took != want.at {
				t.Errorf("%q, %v after %v; want %q after %v", buf[:n], err, took, want.text, want.at)
			}
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != 9000-64 || err != nil {
			t.Errorf("%d bytes more, %v", n, err)
		}
	})
}

// TestPeekedBodyIsClosed: a body that is read ahead ends when it is closed, and no
// byte comes after that.
func TestPeekedBodyIsClosed(t *testing.T) {
	gone := func(t *testing.T, resp *http.Response) {
		t.Helper()
		if n, err := resp.Body.Read(make([]byte, 64)); n != 0 || !errors.Is(err, http.ErrBodyReadAfterClose) {
			t.Errorf("after Close: %d bytes, %v", n, err)
		}
	}
	for name, base := range map[string]func(string) (http.RoundTripper, func()){
		"in part":       peekSlow(0, io.EOF, slowPiece{time.Second, "first"}, slowPiece{1000 * time.Hour, "second"}),
		"nothing":       peekSlow(0, io.EOF, slowPiece{1000 * time.Hour, "first"}),
		"Close waits":   peekSlowClose(peekSlow(0, io.EOF, slowPiece{1000 * time.Hour, "first"})),
		"all":           peekSlow(0, io.EOF, slowPiece{0, "first"}),
		"HTTP/1":        peekServed(false, fedtest.Endless(503, nil, 3*time.Second)),
		"HTTP/2":        peekServed(true, fedtest.Endless(503, nil, 3*time.Second)),
		"HTTP/1, never": peekServed(false, fedtest.Endless(503, nil, 1000*time.Hour)),
		"HTTP/2, never": peekServed(true, fedtest.Endless(503, nil, 1000*time.Hour)),
	} {
		t.Run(name, func(t *testing.T) {
			peekBubble(t, base, func(t *testing.T, tr *fedhttp.Transport, url string) {
				begin := time.Now()
				resp, _ := peekGo(t.Context(), t, tr, url)
				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}
				gone(t, resp)
				synctest.Wait() // else the bubble has goroutines left, and does not end
				if took := time.Since(begin); took > peekLimit {
					t.Errorf("it took %v", took)
				}
			})
		})
		t.Run(name+", by another goroutine", func(t *testing.T) {
			peekBubble(t, base, func(t *testing.T, tr *fedhttp.Transport, url string) {
				resp, _ := peekGo(t.Context(), t, tr, url)
				read := make(chan error)
				go func() {
					_, err := io.Copy(io.Discard, resp.Body)
					read <- err
				}()
				time.Sleep(20 * time.Second)
				resp.Body.Close()
				if err := <-read; err == nil && name != "all" {
					t.Error("a read goes on after Close, to an end")
				}
				gone(t, resp)
			})
		})
	}
}

// deafBody gives a byte a second for ever, closed or not.
type deafBody struct{ reads *int }

func (b deafBody) Read(p []byte) (int, error) {
	*b.reads++
	time.Sleep(time.Second)
	return copy(p, "."), nil
}

func (b deafBody) Close() error { return nil }

// TestDeafBody: where closing a body does not end it, it is not read on for long.
func TestDeafBody(t *testing.T) {
	reads := 0
	base := func(string) (http.RoundTripper, func()) {
		return roundTripFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 503, ProtoMajor: 2, ContentLength: -1, Body: deafBody{&reads}}, nil
		}), func() {}
	}
	peekBubble(t, base, func(t *testing.T, tr *fedhttp.Transport, url string) {
		resp, _ := peekGo(t.Context(), t, tr, url)
		resp.Body.Close()
		synctest.Wait()
		before := reads
		time.Sleep(time.Minute)
		synctest.Wait()
		if reads > before+1 {
			t.Errorf("it was read %d times more", reads-before)
		}
	})
}

// TestPeekedBodyIsGivenUp: where the call goes on to send again, the body that nobody
// waits for ends.
func TestPeekedBodyIsGivenUp(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			header := http.Header{fedtest.HeaderPolicyEvaluated: {"false"}}
			peekBubble(t, peekServed(http2, fedtest.Endless(503, header, 1000*time.Hour), fedtest.Raw(200, nil, "done")), func(t *testing.T, tr *fedhttp.Transport, url string) {
				resp, took := peekGo(t.Context(), t, tr, url)
				resp.Body.Close()
				if d, _ := fedhttp.DecisionFromResponse(resp); d.Outcome != fedhttp.OutcomeDelivered || d.Attempts != 2 {
					t.Errorf("%v after %d attempts", d.Outcome, d.Attempts)
				}
				if took < peekLimit || took > peekLimit+5*time.Second {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// TestPeekEndsWithTheContext: the caller's own end is not waited beyond.
func TestPeekEndsWithTheContext(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			peekBubble(t, peekServed(http2, fedtest.Endless(503, nil, 3*time.Second)), func(t *testing.T, tr *fedhttp.Transport, url string) {
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				resp, took := peekGo(ctx, t, tr, url)
				if took != 4*time.Second {
					t.Errorf("waited for %v", took)
				}
				if got, err := io.ReadAll(resp.Body); string(got) != ".." || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%q, %v", got, err)
				}
				resp.Body.Close()
			})
		})
	}
}

// panickingBody panics when it is read, after a time.
type panickingBody struct{ after time.Duration }

func (b panickingBody) Read([]byte) (int, error) { time.Sleep(b.after); panic("a body's own") }
func (b panickingBody) Close() error             { return nil }

// TestPeekedBodyPanics: a body that panics does so under its reader, who can guard
// against it, whenever it is read ahead.
func TestPeekedBodyPanics(t *testing.T) {
	for name, row := range map[string]struct {
		after time.Duration
		early bool
	}{"in time": {time.Second, true}, "later": {time.Minute, false}} {
		t.Run(name, func(t *testing.T) {
			base := func(string) (http.RoundTripper, func()) {
				return roundTripFunc(func(*http.Request) (*http.Response, error) {
					return &http.Response{StatusCode: 503, ProtoMajor: 2, ContentLength: -1, Body: panickingBody{row.after}}, nil
				}), func() {}
			}
			peekBubble(t, base, func(t *testing.T, tr *fedhttp.Transport, url string) {
				early := true
				defer func() {
					if p := recover(); p != "a body's own" || early != row.early {
						t.Errorf("%v, in RoundTrip: %v", p, early)
					}
				}()
				resp, _ := peekGo(t.Context(), t, tr, url)
				early = false
				defer resp.Body.Close()
				_, _ = io.ReadAll(resp.Body)
			})
		})
	}
}

// TestSlowBodiesAtRandom: whatever comes when, and however it is read, it is what was
// sent, and ends as it ended.
func TestSlowBodiesAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // the same each time
	for i := range 200 {
		var pieces []slowPiece
		var want []byte
		for range random.IntN(12) {
			piece := slowPiece{time.Duration(random.IntN(4)) * time.Second, string(peekBody(1 + random.IntN(1+random.IntN(5000))))}
			pieces, want = append(pieces, piece), append(want, piece.text...)
		}
		end := []error{io.EOF, io.ErrUnexpectedEOF}[i%2]
		size, pause := 1+random.IntN(1500), time.Duration(random.IntN(3))*time.Second
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			peekBubble(t, peekSlow(0, end, pieces...), func(t *testing.T, tr *fedhttp.Transport, url string) {
				resp, took := peekGo(t.Context(), t, tr, url)
				defer resp.Body.Close()
				if took > peekLimit {
					t.Errorf("waited for %v", took)
				}
				var got []byte
				for buf := make([]byte, size); ; time.Sleep(pause) {
					n, err := resp.Body.Read(buf)
					got = append(got, buf[:n]...)
					if err != nil {
						if err != end { //nolint:errorlint // the very one
							t.Errorf("it ends with %v", err)
						}
						break
					}
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%d bytes, want %d; they differ", len(got), len(want))
				}
			})
		})
	}
}
