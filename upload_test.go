package fedhttp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestEarlyAnswer: an empty answer on HTTP/2 that comes before the request's body
// has been sent does not end the stream.
func TestEarlyAnswer(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	const size = 100_000
	received := make(chan int64, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		w.(http.Flusher).Flush()
		n, _ := io.Copy(io.Discard, r.Body)
		received <- n
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	tr := newTestTransport(t, Config{Base: server.Client().Transport, Peers: []Peer{testPeer("b", server.URL)}})
	body, feed := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := feed.Write(make([]byte, size)); err != nil {
		t.Errorf("the upload: %v", err)
	}
	feed.Close()
	if n := <-received; n != size {
		t.Errorf("%d bytes arrived, want %d", n, size)
	}
	resp.Body.Close()
}

// An upload that makes progress does not run into AttemptTimeout, whatever body it is
// of: also the one that net/http asks for where it sends by itself again.
func TestUploadThatTakesItsTime(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"a stream": func(*http.Request) {},
		"GetBody": func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return &slowBody{left: 10}, nil }
		},
		"GetBody of the base": func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return &slowBody{left: 10}, nil }
		},
		"in memory, large": func(r *http.Request) {
			again, err := http.NewRequest(http.MethodPost, "https://b.example/v1", bytes.NewReader(make([]byte, 10<<20)))
			if err != nil {
				t.Fatal(err)
			}
			r.Body, r.GetBody, r.ContentLength = again.Body, again.GetBody, again.ContentLength
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := bPeer
				p.Retry.AttemptTimeout = time.Second
				tr := bubbleTransport(t, Config{Peers: []Peer{p}, Base: roundTripFunc(func(req *http.Request) (*http.Response, error) {
					body := req.Body
					if name == "GetBody of the base" {
						body.Close()
						var err error
						if body, err = req.GetBody(); err != nil {
							return nil, err
						}
					}
					defer body.Close()
					for some, err := make([]byte, 1<<20), error(nil); err == nil; {
						if name == "in memory, large" {
							time.Sleep(900 * time.Millisecond) // the peer takes no more at once
						}
						_, err = body.Read(some)
					}
					if err := context.Cause(req.Context()); err != nil {
						return nil, err
					}
					return answer(req, 200, http.NoBody), nil
				})})
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://b.example/v1", &slowBody{left: 10})
				if err != nil {
					t.Fatal(err)
				}
				change(req)
				if _, err := tr.RoundTrip(req); err != nil {
					t.Errorf("after 10 reads of 0.9 s each: %v", err)
				}
			})
		})
	}
}

type slowBody struct{ left int }

func (b *slowBody) Read(p []byte) (int, error) {
	if b.left--; b.left < 0 {
		return 0, io.EOF
	}
	time.Sleep(900 * time.Millisecond)
	return copy(p, "x"), nil
}

func (*slowBody) Close() error { return nil }
