package fedhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

var soakCapabilities = []string{"summarise", "translate", "never-agreed"}

// caller makes one call after another.
func (s *soak) caller(ctx context.Context) {
	for ctx.Err() == nil {
		if g := s.current.Load(); g.begin() {
			s.call(g)
			g.calls.Done()
		}
	}
}

// call sends one task, and notes what it was told. It goes on when the soak is
// over: what was begun is brought to its end.
func (s *soak) call(g *generation) {
	task := fmt.Sprintf("task-%d", s.started.Add(1))
	call := soakCall{peer: s.random.n(soakPeers)}
	url := g.peers[call.peer].URL
	if s.random.chance(25) {
		call.hostile = g.hostiles[call.peer][s.random.n(soakHostiles)]
		url = call.hostile.URL
	}
	// Some callers give up at once, some soon, most not before they must.
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
	defer cancel()
	if s.random.chance(10) {
		stop := time.AfterFunc(time.Duration(s.random.n(20_000))*time.Microsecond, cancel)
		defer stop.Stop()
	}
	if s.random.chance(60) {
		of := fedhttp.Task{ID: task, Capability: soakCapabilities[s.random.n(len(soakCapabilities))]}
		if s.random.chance(50) {
			of.Obligations = fedhttp.Terms{"residency": "eu"}
			of.PolicyDeadline = time.Now().Add(time.Duration(s.random.n(100)) * time.Millisecond)
		}
		ctx = fedhttp.ContextWithTask(ctx, of)
	}
	method, body := http.MethodGet, io.Reader(nil)
	switch s.random.n(3) {
	case 0:
		method, body = http.MethodPost, strings.NewReader("the task")
		if call.hostile != nil && sentAgainByHTTP2(call.hostile.Hostile) {
			body = io.MultiReader(body) // net/http would race with itself: see wholeBody, and TestHostileServers for these
		}
	case 1:
		method, body = http.MethodPut, io.MultiReader(strings.NewReader(strings.Repeat("once", 1000)))
	}
	req, err := http.NewRequestWithContext(ctx, method, url+"/v1/tasks", body)
	if err != nil {
		s.t.Error(err)
		return
	}
	req.Header.Set(fedtest.HeaderTask, task)
	if s.random.chance(6) {
		req.Header.Set("X-Soak", "deny")
	}
	if s.random.chance(20) {
		req.Header.Set("Idempotency-Key", task)
	}
	resp, err := s.tr.RoundTrip(req)
	var e *fedhttp.Error
	switch {
	case (resp == nil) == (err == nil):
		s.t.Errorf("%s: both or neither of %v and %v", task, resp, err)
	case resp != nil:
		call.decision, _ = fedhttp.DecisionFromResponse(resp)
		if s.random.chance(90) {
			_, _ = io.CopyN(io.Discard, resp.Body, 16<<10) // it may be cut, or endless
		}
		resp.Body.Close()
	case errors.As(err, &e):
		call.decision = e.Decision
	default:
		s.t.Errorf("%s: %T is no *fedhttp.Error", task, err)
	}
	call.decision.Evidence = nil // it would keep the call alive
	g.mu.Lock()
	if _, again := g.told[task]; again {
		s.t.Errorf("%s has ended twice", task)
	}
	g.told[task] = call
	g.mu.Unlock()
	if call.decision.Attempts == 0 {
		pause := time.NewTimer(time.Millisecond) // as somebody would who was refused
		defer pause.Stop()
		<-pause.C
	}
}

// policies come and go, those of never-agreed excepted.
func (s *soak) policies(ctx context.Context) {
	every(ctx, 2*time.Millisecond, func() {
		key := fedhttp.PolicyKey{Peer: soakIDs[s.random.n(soakPeers)], Capability: soakCapabilities[s.random.n(2)], Epoch: s.epochs.Load()}
		digest := fmt.Sprintf("sha256:%d", key.Epoch)
		switch s.random.n(8) {
		case 0:
			key.Epoch = s.epochs.Add(1)
			fallthrough
		case 1, 2:
			err := s.book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: fmt.Sprintf("sha256:%d", key.Epoch)})
			if err != nil {
				s.t.Errorf("advertise: %v", err)
			}
		case 3, 4:
			s.book.Accept(fedhttp.Policy{PolicyKey: key, Digest: digest})
		case 5:
			s.book.CacheNegotiation(fedhttp.Negotiation{PolicyKey: key, Digest: digest, ExpiresAt: time.Now().Add(20 * time.Millisecond)})
		case 6:
			s.book.Revoke(key, digest)
		case 7:
			s.book.Withdraw(key.Peer, key.Capability)
		}
	})
}

func (s *soak) anchorsRotate(ctx context.Context) {
	every(ctx, 50*time.Millisecond, func() {
		if g := s.current.Load(); g.begin() { // its peers stay meanwhile
			g.peers[s.random.n(soakPeers)].Rotate()
			g.calls.Done()
		}
	})
}

// degrade marks a peer for a while.
func (s *soak) degrade(ctx context.Context) {
	every(ctx, 100*time.Millisecond, func() {
		s.tr.SetDegraded(soakIDs[s.random.n(soakPeers)], s.random.chance(20))
	})
	for _, id := range soakIDs {
		s.tr.SetDegraded(id, false)
	}
}
