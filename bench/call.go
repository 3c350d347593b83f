package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// Origin is where calls over a Stub go; the peer of Fedhttp is there.
const Origin = "https://registry.b.example"

// path is what is asked for, of whatever origin.
const path = "/v1/tasks"

// Stub is a base that takes the request's body and answers 200 at once, with no
// body. It allocates what any base does.
type Stub struct{}

// RoundTrip implements http.RoundTripper.
func (Stub) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		_, err := io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}, nil
}

var (
	accept = []string{"application/json"}
	kib    = strings.Repeat("0123456789abcdef", 64) // what a POST sends
)

// Call makes one request, as a program does for each, sends it and reads the
// answer. A POST has a body of 1 KiB.
func Call(ctx context.Context, rt http.RoundTripper, method, url string) error {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(kib)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	req.Header["Accept"] = accept
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// Sender is a chain made ready for calls to one URL.
type Sender struct {
	Name  string
	rt    http.RoundTripper
	ctx   context.Context
	url   string
	pools []pool
	dials *atomic.Int64 // connections made; nil: there are none
	end   io.Closer     // nil: it needs none
	// Apart has each call made on a goroutine of its own, whose stack has no room yet.
	Apart bool
}

// Renew has the calls to come go over a new connection, where there are any, and makes the
// first of them: of two connections one is faster, whoever uses it.
func (s *Sender) Renew(method string) error {
	if s.dials != nil {
		// On HTTP/2 a connection is idle some time after the answer was read.
		for dials, tries := s.dials.Load(), 0; s.dials.Load() == dials; tries++ {
			if tries == 1000 {
				return fmt.Errorf("%s goes on with the connection that it has", s.Name)
			}
			s.closeIdle()
			if err := s.Send(method); err != nil {
				return err
			}
		}
	}
	for range 20 {
		if err := s.Send(method); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sender) closeIdle() {
	for _, p := range s.pools {
		p.CloseIdleConnections()
	}
}

// Send makes a call.
func (s *Sender) Send(method string) error {
	if !s.Apart {
		return Call(s.ctx, s.rt, method, s.url)
	}
	done := make(chan error)
	go func() { done <- Call(s.ctx, s.rt, method, s.url) }()
	return <-done
}

// Close lets go of what the chain holds.
func (s *Sender) Close() {
	if s.end != nil {
		_ = s.end.Close()
	}
	s.closeIdle()
}
