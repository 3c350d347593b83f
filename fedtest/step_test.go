package fedtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

func TestScriptOrder(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{}, func(t *testing.T, p *fedtest.Peer) {
		p.Script(fedtest.RouteDrop(504))
		p.On("/a", fedtest.RouteDrop(503))
		p.On("one", fedtest.RouteDrop(502), fedtest.Deny("NO"))
		p.Otherwise(fedtest.Raw(418, nil, "tea"))
		wantEqual(t, "steps left", p.StepsLeft(), 4)
		var got []int
		for range 5 {
			got = append(got, get(t, p, "/a", fedtest.HeaderTask, "one").status)
		}
		p.Otherwise(nil)
		got = append(got, get(t, p, "/a", fedtest.HeaderTask, "one").status)
		if want := []int{502, 403, 503, 504, 418, 200}; !slices.Equal(got, want) {
			t.Errorf("statuses %v, want %v", got, want)
		}
		wantEqual(t, "steps left", p.StepsLeft(), 0)
		wantEqual(t, "task", p.Task("one"), fedtest.TaskRecord{ID: "one", Client: "default", Sends: 6, Delivered: 2, Evaluations: 2, Denials: 1})
	})
}

func TestDecide(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{Policy: narrowed, RequireAnchor: true}, func(t *testing.T, p *fedtest.Peer) {
		p.Script(fedtest.Allow(), fedtest.Deny("POLICY_UNRESOLVED"),
			fedtest.Decide(fedtest.Verdict{Deny: true, Status: 409, Reason: "POLICY_UNRESOLVED"}))
		var got []string
		for range 4 {
			a := get(t, p, "/", "X-Scope", "narrowed")
			got = append(got, fmt.Sprint(a.status, a.header.Get(fedtest.HeaderPolicyReason)))
		}
		want := []string{"200", "403POLICY_UNRESOLVED", "409POLICY_UNRESOLVED", "403"}
		if !slices.Equal(got, want) {
			t.Errorf("answers %q, want %q", got, want)
		}
		wantEqual(t, "evaluations", p.Evaluations("/"), 3)
	})
}

func TestRaw(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{}, func(t *testing.T, p *fedtest.Peer) {
		header := http.Header{fedtest.HeaderPolicyEvaluated: {"true", "false", "perhaps"}}
		p.Script(fedtest.Raw(403, header, "<html>"))
		a, err := do(p.Client(), request(t, p.URL, "some body"))
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "answer", fmt.Sprint(a.status, a.body), "403<html>")
		if got := a.header.Values(fedtest.HeaderPolicyEvaluated); !reflect.DeepEqual(got, header[fedtest.HeaderPolicyEvaluated]) {
			t.Errorf("values %q", got)
		}
		wantEqual(t, "correlation ids", len(a.header.Values(fedtest.HeaderCorrelationID)), 0)
		wantEqual(t, "body", p.Routing.Log()[0].BodyBytes, 9)
	})
}

// After the request was read, the client gets no usable answer; whether the
// engine has seen it, only the peer knows.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		step        fedtest.Step
		evaluations int
	}{
		"closed":               {fedtest.CloseConnection(), 0},
		"malformed":            {fedtest.Wire("HTTP/1.1 2OO Fine\r\n\r\n"), 0},
		"closed after policy":  {fedtest.Lose(fedtest.Pass(), fedtest.CloseConnection()), 1},
		"garbage after policy": {fedtest.Lose(fedtest.Deny("NO"), fedtest.Wire("\x00\x01")), 1},
		"policy, then dropped": {fedtest.Lose(fedtest.Allow(), fedtest.Delay(time.Millisecond, fedtest.CloseConnection())), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachMode(t, fedtest.Config{}, func(t *testing.T, p *fedtest.Peer) {
				p.On("/lost", tt.step)
				if a, err := do(p.Client(), request(t, p.URL+"/lost", "body")); err == nil {
					t.Errorf("an answer: %v", a)
				}
				wantEqual(t, "sends", p.Sends("/lost"), 1)
				wantEqual(t, "evaluations", p.Evaluations("/lost"), tt.evaluations)
				wantEqual(t, "log", len(p.Engine.Log()), tt.evaluations)
				wantEqual(t, "next", get(t, p, "/next").status, 200)
			})
		})
	}
}

func TestWire(t *testing.T) {
	t.Parallel()
	p := newPeer(t, fedtest.Config{})
	p.Script(fedtest.Wire("HTTP/1.1 403 No\r\nContent-Length: 100\r\n\r\ncut"))
	a := get(t, p, "/")
	wantEqual(t, "answer", fmt.Sprint(a.status, a.body), "403cut")
	if !errors.Is(a.err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", a.err)
	}
}

func TestHangUntilTheClientGoes(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{}, func(t *testing.T, p *fedtest.Peer) {
		ended := make(chan any, 1)
		p.Script(func(w http.ResponseWriter, r *http.Request) {
			// It panics on: without that the server would answer 200, which over
			// TLS can overtake the end of the client's connection.
			defer func() {
				v := recover()
				ended <- v
				panic(v)
			}()
			fedtest.Hang()(w, r)
		})
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			for p.Sends("/") == 0 {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		if a, err := do(p.Client(), request(t, p.URL+"/", "body").WithContext(ctx)); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, %v", a, err)
		}
		wantEqual(t, "panic", <-ended, any(http.ErrAbortHandler))
	})
}

func TestSlowAndEndlessBodies(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{}, func(t *testing.T, p *fedtest.Peer) {
		p.Script(fedtest.Drip(403, nil, "slowly", time.Microsecond),
			fedtest.Endless(200, nil, 0), fedtest.Endless(503, nil, time.Microsecond))
		a := get(t, p, "/")
		wantEqual(t, "answer", fmt.Sprint(a.status, a.body), "403slowly")
		for _, want := range []int{1 << 20, 10} {
			resp, err := p.Client().Do(request(t, p.URL, ""))
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.CopyN(io.Discard, resp.Body, int64(want))
			if n != int64(want) || err != nil {
				t.Errorf("%d bytes, %v", n, err)
			}
			resp.Body.Close() // and the handler ends, or else Close hangs
		}
	})
}

func TestStepOfTheUsersOwn(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{}, func(t *testing.T, p *fedtest.Peer) {
		p.Otherwise(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Via", "step")
			if strings.HasSuffix(r.URL.Path, "early") {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			fedtest.Pass()(w, r)
		})
		wantEqual(t, "own answer", get(t, p, "/early").status, 404)
		a := get(t, p, "/late")
		wantEqual(t, "passed", fmt.Sprint(a.status, a.header.Get("X-Via")), "200step")
		wantEqual(t, "evaluations", p.Engine.Ledger().Evaluations, 1)
	})
}

func TestStepOutsideOfAPeer(t *testing.T) {
	t.Parallel()
	defer func() {
		if v := recover(); !strings.Contains(fmt.Sprint(v), "script of a Peer") {
			t.Errorf("panic %v", v)
		}
	}()
	fedtest.Pass()(nil, request(t, "http://x", ""))
}
