package fedhttp_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// The servers of the soak live for a second, so that their logs do not grow
// without end: a generation has a well-behaved server for each peer, some faults
// scripted, and a handful of hostile ones. When the next one has taken over, and
// the last call to it is back, its logs are compared with what the callers were
// told, and then forgotten.

var soakIDs = [soakPeers]string{"h1", "h2c", "tls"}

const soakHostiles = 6 // of each peer in a generation

// soakBase is a base for one peer: HTTP/1 or HTTP/2 in clear text, or whatever
// TLS negotiates.
func soakBase(i int) *http.Transport {
	t := &http.Transport{MaxIdleConnsPerHost: 20, Protocols: new(http.Protocols), MaxResponseHeaderBytes: 256 << 10}
	t.Protocols.SetHTTP1(i != 1)
	t.Protocols.SetHTTP2(i != 0)
	t.Protocols.SetUnencryptedHTTP2(i == 1)
	// Each server has a certificate of its own; whom to trust is not the question here.
	t.TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	return t
}

func soakPeer(i int, base *http.Transport, origins []string) fedhttp.Peer {
	p := testPeer(soakIDs[i], fmt.Sprintf("http://127.0.0.1:%d", i+1)) // nobody's
	if len(origins) > 0 {
		p.Origins = origins
	}
	p.Base = base
	p.Retry.AttemptTimeout = time.Second
	p.Retry.MaxBackoff = 10 * time.Millisecond
	p.Retry.BudgetRatio = 1
	p.Breaker = fedhttp.BreakerPolicy{Failures: 50, OpenFor: 5 * time.Millisecond}
	p.Hold = fedhttp.HoldPolicy{MaxWait: 300 * time.Millisecond}
	p.Denial.HoldOff = 50 * time.Millisecond
	return p
}

// generation is the servers of one second.
type generation struct {
	peers    [soakPeers]*fedtest.Peer
	hostiles [soakPeers][]*fedtest.HostileServer

	calls sync.WaitGroup
	mu    sync.Mutex
	ended bool
	told  map[string]soakCall // by task
}

// soakCall is what a caller was told of its task.
type soakCall struct {
	decision fedhttp.Decision
	hostile  *fedtest.HostileServer // nil: it went to the well-behaved server
	peer     int
}

func (s *soak) newGeneration() *generation {
	g := &generation{told: make(map[string]soakCall)}
	var h1, h2 []fedtest.Hostile
	for _, h := range fedtest.HostileServers() {
		if h.HTTP2 {
			h2 = append(h2, h)
		} else {
			h1 = append(h1, h)
		}
	}
	for i := range g.peers {
		cfg := fedtest.Config{ErrorLog: quietLog, HTTP2: i > 0, Policy: func(r fedtest.Request) fedtest.Verdict {
			return fedtest.Verdict{Deny: strings.HasPrefix(r.Header.Get("X-Soak"), "deny"), Reason: "SOAK"}
		}}
		p := fedtest.NewUnstartedPeer(cfg)
		if i == 2 {
			p.StartTLS()
		} else {
			p.Start()
		}
		p.Otherwise(s.step())
		g.peers[i] = p
		for range soakHostiles {
			switch {
			case i == 0:
				g.hostiles[i] = append(g.hostiles[i], h1[s.random.n(len(h1))].Start())
			case i == 1:
				g.hostiles[i] = append(g.hostiles[i], h2[s.random.n(len(h2))].Start())
			case s.random.chance(50):
				g.hostiles[i] = append(g.hostiles[i], h1[s.random.n(len(h1))].StartTLS())
			default:
				g.hostiles[i] = append(g.hostiles[i], h2[s.random.n(len(h2))].StartTLS())
			}
		}
	}
	return g
}

// step is what the well-behaved servers do with most of the requests: what they
// should, and now and then a fault.
func (s *soak) step() fedtest.Step {
	faults := []fedtest.Step{
		fedtest.RouteStale(), fedtest.RouteDrop(503), fedtest.RouteDrop(502),
		fedtest.Hiding(fedtest.SignalsTelling, fedtest.RouteStale()),
		fedtest.Hiding(fedtest.SignalsTelling, fedtest.Deny("HIDDEN")),
		fedtest.Lose(fedtest.Pass(), fedtest.CloseConnection()),
		fedtest.CloseConnection(), fedtest.Raw(503, nil, "who was it?"), fedtest.Raw(200, http.Header{"X-Plain": {"1"}}, "fine"),
		fedtest.Drip(200, nil, "slow", time.Millisecond), fedtest.Hang(),
	}
	return func(w http.ResponseWriter, r *http.Request) {
		if s.random.chance(70) {
			fedtest.Pass()(w, r)
			return
		}
		faults[s.random.n(len(faults))](w, r)
	}
}

// origins are those of the generation and of the one before, whose calls may not
// be back yet.
func (g *generation) origins(i int) []string {
	if g == nil {
		return nil
	}
	all := []string{g.peers[i].URL}
	for _, h := range g.hostiles[i] {
		all = append(all, h.URL)
	}
	return all
}

func (s *soak) setPeers(next, last *generation) {
	var peers []fedhttp.Peer
	for i := range soakIDs {
		peers = append(peers, soakPeer(i, s.bases[i], append(next.origins(i), last.origins(i)...)))
	}
	if err := s.tr.SetPeers(peers); err != nil {
		s.t.Errorf("SetPeers: %v", err)
	}
}

// generations follow one another.
func (s *soak) generations(ctx context.Context) {
	var closing sync.WaitGroup
	defer closing.Wait()
	every(ctx, time.Second, func() {
		last, next := s.current.Load(), s.newGeneration()
		s.setPeers(next, last)
		s.current.Store(next)
		closing.Go(func() { s.close(last) })
	})
}

// begin notes that a call to the generation begins; false where it is over.
func (g *generation) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		return false
	}
	g.calls.Add(1)
	return true
}

// close waits for the last call, compares, and counts.
func (s *soak) close(g *generation) {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	g.calls.Wait()
	for i := range g.peers {
		g.peers[i].Close()
		for _, h := range g.hostiles[i] {
			h.Close()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.generations++
	s.judge(g)
}
