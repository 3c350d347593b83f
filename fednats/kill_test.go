package fednats

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// killPeer is organisation B: it serves, denies, or answers what nobody can tell
// the author of. It counts the denials of each scope.
type killPeer struct {
	*httptest.Server
	mu     sync.Mutex
	denied map[string]int
}

func newKillPeer(t *testing.T) *killPeer {
	p := &killPeer{denied: map[string]int{}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch id, _ := strings.CutPrefix(r.URL.Path, "/denied/"); {
		case id != r.URL.Path:
			p.mu.Lock()
			p.denied[id]++
			p.mu.Unlock()
			w.Header().Set("X-Federation-Policy-Evaluated", "true")
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path == "/odd":
			w.WriteHeader(http.StatusBadGateway)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// caller is a replica with a Transport. Each round it has a task served that needs
// an agreement, one denied, the same one refused here, and one end in an escalation.
type caller struct {
	name   string
	f      *Fleet
	book   *fedhttp.PolicyBook
	peer   *killPeer
	client *http.Client
	tr     *fedhttp.Transport
	rounds atomic.Int64
}

func (c *cluster) caller(t *testing.T, peer *killPeer, cfg Config) *caller {
	t.Helper()
	cfg.MaxStaleness = 10 * time.Minute
	f := c.open(cfg)
	r := &caller{name: cfg.Name, f: f, book: feed1(t, f), peer: peer}
	var err error
	r.tr, err = fedhttp.NewTransport(fedhttp.Config{
		Book: r.book, Denials: f.Denials(), Coordinator: f.Coordinator(), Escalator: f.Escalator(),
		Peers: []fedhttp.Peer{{
			ID: "org-b", Origins: []string{peer.URL}, Receipt: fedhttp.IgnoreReceipt, Breaker: fedhttp.BreakerPolicy{Failures: -1},
		}},
		Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	t.Cleanup(func() { r.tr.Close() })
	r.client = &http.Client{Transport: r.tr}
	return r
}

func (r *caller) round(t *testing.T) {
	id := fmt.Sprint(r.name, r.rounds.Load())
	for _, call := range []struct {
		path string
		task fedhttp.Task
		want string
	}{
		{"/", fedhttp.Task{ID: id, Capability: "summarize", Obligations: residency}, "200"},
		{"/denied/" + id, fedhttp.Task{ID: id, Capability: "translate", Scope: id}, "403"},
		{"/denied/" + id, fedhttp.Task{ID: id, Capability: "translate", Scope: id}, "denied"},
		{"/odd", fedhttp.Task{ID: id, Capability: "translate", Scope: "odd"}, "502"},
	} {
		req, err := http.NewRequestWithContext(fedhttp.ContextWithTask(context.Background(), call.task), http.MethodGet, r.peer.URL+call.path, nil)
		must(t, err)
		got := ""
		if resp, err := r.client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			got = fmt.Sprint(resp.StatusCode)
		} else if got = err.Error(); strings.Contains(got, fedhttp.ErrScopeDenied.Error()) {
			got = "denied"
		}
		if got != call.want {
			t.Errorf("%s, %s: %s, want %s", id, call.path, got, call.want)
		}
	}
	r.rounds.Add(1)
}

// negotiator accepts one policy after the other.
type negotiator struct {
	f        *Fleet
	accepted int
}

func acceptedKey(n int) fedhttp.PolicyKey {
	return fedhttp.PolicyKey{Peer: "org-b", Capability: fmt.Sprint("capability-", n), Epoch: 1}
}

// accept tries until the cluster has taken an agreement.
func (n *negotiator) accept(t *testing.T) {
	t.Helper()
	k := acceptedKey(n.accepted)
	try := func(write func(context.Context) error) func() bool {
		return func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
			defer cancel()
			return write(ctx) == nil
		}
	}
	eventually(t, "it is advertised", try(func(ctx context.Context) error {
		return n.f.Advertise(ctx, fedhttp.Advertisement{PolicyKey: k, Digest: "sha256:a"})
	}))
	eventually(t, "it is accepted", try(func(ctx context.Context) error {
		return n.f.Accept(ctx, fedhttp.Policy{PolicyKey: k, Digest: "sha256:a"})
	}))
	n.accepted++
}

// streams are those of the fleet.
func (f *Fleet) streams() []string {
	return []string{
		bucketStream(f.names.policies()), bucketStream(f.names.denials()), bucketStream(f.names.degraded()),
		bucketStream(f.names.anchors()), f.names.unresolved(), f.names.escalations(),
	}
}

// lead has a node lead every stream, which it can only if it has all that they have.
func (c *cluster) lead(f *Fleet, n int) {
	c.t.Helper()
	name := fmt.Sprint("node", n)
	body, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": name}})
	must(c.t, err)
	for _, stream := range f.streams() {
		eventually(c.t, name+" leads "+stream, func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			s, err := f.js.Stream(ctx, stream)
			if err == nil && s.CachedInfo().Cluster != nil && s.CachedInfo().Cluster.Leader == name {
				return true
			}
			_, _ = f.conn.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, body)
			return false
		})
	}
}

// caughtUp waits until a node has what the leaders have.
func (c *cluster) caughtUp(f *Fleet, n int) {
	c.t.Helper()
	name := fmt.Sprint("node", n)
	for _, stream := range f.streams() {
		eventually(c.t, name+" has caught up with "+stream, func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			s, err := f.js.Stream(ctx, stream)
			if err != nil || s.CachedInfo().Cluster == nil {
				return false
			}
			if s.CachedInfo().Cluster.Leader == name {
				return true
			}
			for _, r := range s.CachedInfo().Cluster.Replicas {
				if r.Name == name && r.Current && !r.Offline {
					return true
				}
			}
			return false
		})
	}
}

// TestClusterKilled: servers in processes of their own end by SIGKILL, first one
// that leads nothing, then the one that leads every stream, then all at once, while
// two replicas call a peer and a third program accepts policies.
func TestClusterKilled(t *testing.T) {
	before, _ := goroutines()
	c := startCluster(t, startProcess)
	peer := newKillPeer(t)
	a, b := c.caller(t, peer, Config{Name: "a", Dir: t.TempDir()}), c.caller(t, peer, Config{Name: "b"})
	n := &negotiator{f: c.open(Config{Name: "n", Parts: PartPolicies})}
	agreed(t, n.f, 1, a.book, b.book)

	calling, stop := context.WithCancel(t.Context())
	defer stop()
	var callers sync.WaitGroup
	for _, r := range []*caller{a, b} {
		callers.Go(func() {
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for calling.Err() == nil && !t.Failed() {
				r.round(t)
				<-pace.C
			}
		})
	}
	defer callers.Wait()
	defer stop()
	rounds := func() int64 { return a.rounds.Load() + b.rounds.Load() }
	published := func() uint64 {
		return a.f.Status().Escalations.Published + b.f.Status().Escalations.Published
	}
	// Every book has what was accepted last.
	current := func() {
		t.Helper()
		n.accept(t)
		for _, r := range []*caller{a, b} {
			wantBasis(t, r.book, acceptedKey(n.accepted-1), "accepted sha256:a")
		}
	}
	current()
	c.lead(n.f, 0)

	// A follower: the others are a majority.
	c.kill(1)
	had, began := published(), time.Now()
	n.accept(t)
	t.Logf("a follower killed: writes were away for %v", time.Since(began))
	current()
	t.Logf("a follower killed: every book was current after %v", time.Since(began))
	eventually(t, "escalations go on with two nodes", func() bool { return published() > had+50 })
	c.start(1)
	c.caughtUp(n.f, 1)

	// The leader of every stream, which now is the one that was killed: it has all.
	c.lead(n.f, 1)
	current()
	// Many are on their way to it, so that it has taken some and not said so.
	burst := newLoad(a.f, "burst")
	had = published()
	burst.record(t, 1000)
	eventually(t, "the first of many are taken", func() bool { return published() > had+100 })
	c.kill(1)
	calls, began := rounds(), time.Now()
	n.accept(t) // taken by no earlier than the next leader
	calls = rounds() - calls
	t.Logf("the leader killed: writes were away for %v, and %d calls of each kind were made meanwhile", time.Since(began), calls)
	if calls < 20 {
		t.Errorf("%d calls of each kind without a leader: they wait for one", calls)
	}
	current()
	t.Logf("the leader killed: every book was current after %v", time.Since(began))
	c.start(1)
	c.caughtUp(n.f, 1)

	// All of them: nobody is left who could take anything.
	c.kill(0, 1, 2)
	stop()
	callers.Wait()
	eventually(t, "what they still had to say is heard", func() bool { return !a.f.Status().Connected && !b.f.Status().Connected })
	had = published()
	for range 50 {
		a.round(t)
		b.round(t)
	}
	if s := a.f.Status().Denials; s.Waiting < 50 || !s.OnDisk {
		t.Errorf("without any node: %+v, want 50 that wait, on disk", s)
	}
	// The Transport tells of escalations behind the call.
	eventually(t, "the escalations wait too", func() bool {
		return a.f.Status().Escalations.Waiting >= 50 && b.f.Status().Escalations.Waiting >= 50
	})
	if n := published() - had; n != 0 {
		t.Errorf("without any node, %d were published", n)
	}
	began = time.Now()
	for node := range c.nodes {
		c.start(node)
	}
	n.accept(t)
	t.Logf("all killed: writes came back %v after the first was started again", time.Since(began))
	current()

	// Everything that was taken or spooled is there, once.
	c.wantAll(t, n, burst, a, b)
	a.tr.Close()
	b.tr.Close()
	for _, f := range []*Fleet{a.f, b.f, n.f} {
		must(t, f.Close(t.Context()))
	}
	a.client.CloseIdleConnections()
	eventually(t, "no goroutine is left", func() bool { n, _ := goroutines(); return n <= before })
}

// wantAll checks that the cluster has all that the callers told it of and all that
// the negotiator had acknowledged, each once; and that a program that starts now
// finds it.
func (c *cluster) wantAll(t *testing.T, n *negotiator, burst *load, callers ...*caller) {
	t.Helper()
	late := c.open(Config{Name: "late"})
	ledger, book := late.Denials().(*ledger), feed1(t, late)
	total := 0
	for _, r := range callers {
		told := int(r.rounds.Load())
		if r.f == burst.f {
			told += burst.n
		}
		total += told
		eventually(t, r.name+" is published", func() bool {
			s := r.f.Status()
			return s.Denials.Published == uint64(told) && s.Escalations.Published == uint64(told)
		})
		s := r.f.Status()
		if s.Denials.Lost+s.Escalations.Lost+s.Denials.Expired != 0 {
			t.Errorf("%s: lost: %+v", r.name, s)
		}
	}
	for _, l := range []*struct {
		name string
		size func() int
	}{
		{"late", func() int { return int(ledger.size.Load()) }},
		{"a", func() int { return int(callers[0].f.ledger.size.Load()) }},
		{"b", func() int { return int(callers[1].f.ledger.size.Load()) }},
	} {
		eventually(t, l.name+" knows every denial", func() bool { return l.size() == total })
	}
	list, err := late.Escalations(t.Context())
	must(t, err)
	times := map[string]int{}
	for _, e := range list {
		times[e.Decision.TaskID]++
	}
	for _, r := range callers {
		for i := range r.rounds.Load() {
			id := fmt.Sprint(r.name, i)
			if times[id] != 1 || peer1(r.peer, id) != 1 {
				t.Errorf("%s: escalated %d times, and denied by B %d times", id, times[id], peer1(r.peer, id))
			}
		}
	}
	for i := range burst.n {
		if id := fmt.Sprint(burst.prefix, i); times[id] != 1 {
			t.Errorf("%s: escalated %d times", id, times[id])
		}
	}
	for _, stream := range []string{late.names.escalations(), bucketStream(late.names.denials())} {
		s, err := late.js.Stream(t.Context(), stream)
		must(t, err)
		if state := s.CachedInfo().State; state.Msgs != uint64(total) || state.LastSeq != uint64(total) {
			t.Errorf("%s has %d messages, and had %d ever; want %d", stream, state.Msgs, state.LastSeq, total)
		}
	}
	for i := range n.accepted {
		wantBasis(t, book, acceptedKey(i), "accepted sha256:a")
	}
	t.Logf("%d denials and as many escalations are there, each once", total)
	must(t, late.Close(t.Context()))
}

func peer1(p *killPeer, scope string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.denied[scope]
}
