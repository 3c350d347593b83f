package fedtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// bubbles runs the test in virtual time, for each kind of peer that needs no
// socket.
func bubbles(t *testing.T, cfg fedtest.Config, test func(t *testing.T, p *fedtest.Peer)) {
	for name, set := range map[string]func(*fedtest.Config){
		"http1":           func(*fedtest.Config) {},
		"http2":           func(c *fedtest.Config) { c.HTTP2 = true },
		"separate engine": func(c *fedtest.Config) { c.SeparateEngine = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fedtest.CheckLeaks(t)
			synctest.Test(t, func(t *testing.T) {
				cfg := cfg
				set(&cfg)
				p := fedtest.NewUnstartedPeer(cfg)
				defer p.Close()
				test(t, p)
			})
		})
	}
}

func TestVirtualTime(t *testing.T) {
	t.Parallel()
	bubbles(t, fedtest.Config{AnchorTTL: time.Hour}, func(t *testing.T, p *fedtest.Peer) {
		begin := time.Now()
		first := p.Anchor()
		wantEqual(t, "issued at", first.IssuedAt, begin.UTC().Round(0).Add(0))
		if second := p.Rotate(); !second.IssuedAt.After(first.IssuedAt) {
			t.Error("the clock stands, and so do the anchors")
		}
		time.Sleep(14 * 24 * time.Hour)
		wantEqual(t, "issued at", p.Rotate().IssuedAt, begin.Add(14*24*time.Hour).UTC().Round(0))

		p.Script(fedtest.Delay(20*time.Minute, fedtest.Pass()))
		wantEqual(t, "status", get(t, p, "/").status, 200)
		wantEqual(t, "elapsed", time.Since(begin), 14*24*time.Hour+20*time.Minute)
		wantEqual(t, "delay", p.Engine.Log()[0].Time.Sub(p.Routing.Log()[0].Time), 20*time.Minute)

		p.Script(fedtest.Drip(403, nil, "slow", time.Minute))
		begin = time.Now()
		wantEqual(t, "body", get(t, p, "/").body, "slow")
		wantEqual(t, "elapsed", time.Since(begin), 3*time.Minute)
	})
}

func TestVirtualTimeouts(t *testing.T) {
	t.Parallel()
	bubbles(t, fedtest.Config{}, func(t *testing.T, p *fedtest.Peer) {
		for name, step := range map[string]fedtest.Step{
			"hang": fedtest.Hang(), "endless": fedtest.Endless(200, nil, time.Second), "lost": fedtest.Lose(fedtest.Pass(), fedtest.Hang()),
		} {
			p.On(name, step)
			begin := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			req := request(t, p.URL, "body", fedtest.HeaderTask, name).WithContext(ctx)
			a, err := do(p.Client(), req)
			if err == nil {
				err = a.err
			}
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			wantEqual(t, name+": elapsed", time.Since(begin), 30*time.Second)
			wantEqual(t, name+": sends", p.Sends(name), 1)
		}
		wantEqual(t, "evaluations", p.Evaluations("lost"), 1)
	})
}

func TestVirtualClose(t *testing.T) {
	t.Parallel()
	bubbles(t, fedtest.Config{}, func(t *testing.T, p *fedtest.Peer) {
		p.Otherwise(fedtest.Hang())
		var clients sync.WaitGroup
		for i := range 20 {
			clients.Go(func() {
				if _, err := do(p.Client(), request(t, p.URL+fmt.Sprint("/", i), "")); err == nil {
					t.Error("an answer")
				}
			})
		}
		synctest.Wait()
		wantEqual(t, "requests", p.Routing.Ledger().Requests, 20)
		p.Close()
		clients.Wait()
	})
}

func TestVirtualThousands(t *testing.T) {
	t.Parallel()
	bubbles(t, fedtest.Config{Policy: narrowed}, func(t *testing.T, p *fedtest.Peer) {
		client := &http.Client{Transport: p.Transport()}
		var all sync.WaitGroup
		const tasks = 1140
		for i := range tasks {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				if a, err := do(client, request(t, p.URL+fmt.Sprint("/", i), "")); err != nil || a.status != 200 {
					t.Error(a, err)
				}
			})
		}
		all.Wait()
		wantEqual(t, "evaluations", p.Engine.Ledger().Evaluations, tasks)
		wantEqual(t, "max per task", p.Engine.Ledger().MaxEvaluationsPerTask, 1)
	})
}
