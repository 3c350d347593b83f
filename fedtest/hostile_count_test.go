package fedtest_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

func hostile(t *testing.T, name string) fedtest.Hostile {
	t.Helper()
	for _, h := range fedtest.HostileServers() {
		if h.Name == name {
			return h
		}
	}
	t.Fatalf("there is no %s", name)
	return fedtest.Hostile{}
}

const anyNumber = -1

// TestHostileCounts: what the server has read is told by task, header and whole
// apart, on HTTP/1 and on HTTP/2 with its tables and codes.
func TestHostileCounts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		method       string
		heads, whole int
	}{
		{"http1/refuses-on-head", http.MethodPost, 3, 0},
		{"http1/contradicts-itself", http.MethodGet, 3, 3},
		{"http1/contradicts-itself", http.MethodPost, 3, 3},
		{"http1/reset-on-first-byte", http.MethodPost, 0, 0},
		{"http2/close-on-head", http.MethodPost, 3, anyNumber},
		{"http2/contradicts-itself", http.MethodGet, 3, 3},
		{"http2/contradicts-itself", http.MethodPost, 3, 3},
		{"http2/close-on-preface", http.MethodPost, 0, 0},
	} {
		for mode, start := range map[string]func(fedtest.Hostile) *fedtest.HostileServer{
			"clear": fedtest.Hostile.Start, "tls": fedtest.Hostile.StartTLS,
		} {
			t.Run(test.name+"/"+test.method+"/"+mode, func(t *testing.T) {
				fedtest.CheckLeaks(t)
				t.Parallel()
				s := start(hostile(t, test.name))
				t.Cleanup(s.Close)
				transport := s.Transport()
				// Over HTTP/1 a connection that its server has ended may take the next request.
				transport.DisableKeepAlives = !s.Hostile.HTTP2
				t.Cleanup(transport.CloseIdleConnections)
				for _, task := range []string{"task-1", "task-2", "taSK~{}|`\\3"} { // short codes and long ones
					body := strings.NewReader("body")
					req, err := http.NewRequestWithContext(t.Context(), test.method, s.URL+"/v1/"+test.method, body)
					if err != nil {
						t.Fatal(err)
					}
					if test.method == http.MethodGet {
						req.Body, req.GetBody, req.ContentLength = nil, nil, 0
					}
					req.Header.Set(fedtest.HeaderTask, task)
					if resp, err := transport.RoundTrip(req); err == nil {
						resp.Body.Close()
					}
					wantEqual(t, "sends of "+task, s.Sends(task), test.heads/3)
				}
				if test.whole != anyNumber {
					wantEqual(t, "whole requests", s.Requests(), test.whole)
				}
				log := s.Log()
				wantEqual(t, "requests", len(log), test.heads)
				for _, r := range log {
					if r.Method != test.method || r.Path != "/v1/"+test.method || test.whole != anyNumber && r.Whole != (test.whole > 0) || r.Connection < 1 {
						t.Errorf("the log has %+v", r)
					}
				}
			})
		}
	}
}

// TestHostileTaskIsThePath where the request names none.
func TestHostileTaskIsThePath(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"http1/answers-twice", "http2/answers-twice"} {
		s := hostile(t, name).Start()
		t.Cleanup(s.Close)
		transport := s.Transport()
		t.Cleanup(transport.CloseIdleConnections)
		if a, err := do(&http.Client{Transport: transport}, request(t, s.URL+"/some/path", "")); err != nil || a.body != "ok" {
			t.Errorf("%+v, %v", a, err)
		}
		wantEqual(t, "sends", s.Sends("/some/path"), 1)
	}
}

// TestHostileClose ends what hangs, and can be called often, by many.
func TestHostileClose(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"http1/never-answers", "http1/drips-body", "http2/never-answers", "http2/window-zero", "http2/drips-body"} {
		fedtest.CheckLeaks(t)
		s := hostile(t, name).StartTLS()
		transport := s.Transport()
		t.Cleanup(transport.CloseIdleConnections)
		wantEqual(t, "connections of a new server", s.Connections(), 0)
		failed := make(chan error, 1)
		go func() {
			_, err := do(&http.Client{Transport: transport}, request(t, s.URL, "task"))
			failed <- err
		}()
		for s.Sends("/") == 0 { // until it has come
			select {
			case err := <-failed:
				t.Fatalf("%s has failed by itself: %v", name, err)
			default:
			}
		}
		if got := s.Connections(); got != 1 {
			t.Errorf("%d connections are open, want 1", got)
		}
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Drained(canceled); err == nil {
			t.Error("it is drained while a connection is open")
		}
		var group sync.WaitGroup
		for range 3 {
			group.Go(s.Close)
		}
		group.Wait()
		if err := <-failed; err == nil && !strings.HasSuffix(name, "drips-body") {
			t.Error("the call has not failed")
		}
		wantEqual(t, "connections of a closed server", s.Connections(), 0)
	}
}
