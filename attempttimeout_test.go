package fedhttp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

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
