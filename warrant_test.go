package fedhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
