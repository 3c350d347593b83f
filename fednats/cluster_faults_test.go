package fednats

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fedhttp/fedhttp"
)

// How long the network stays cut: 30 s in CI, as in the figures of docs/fleet.md.
var cutFor = flag.Duration("fednats.cut", cutDefault(), "how long TestClusterCut cuts the network")

func cutDefault() time.Duration {
	if os.Getenv("CI") != "" {
		return 30 * time.Second
	}
	return 5 * time.Second
}

// load records denials and escalations, as fast as a call may, and keeps count.
type load struct {
	f       *Fleet
	l       fedhttp.DenialLedger
	prefix  string
	n       int
	slowest time.Duration
}

func newLoad(f *Fleet, prefix string) *load { return &load{f: f, l: f.Denials(), prefix: prefix} }

func (l *load) record(t testing.TB, times int) {
	t.Helper()
	for range times {
		id := fmt.Sprint(l.prefix, l.n)
		l.n++
		began := time.Now()
		must(t, l.l.Record(t.Context(), denial(id)))
		l.f.Escalator().Escalate(t.Context(), escalation(id))
		if !denied(l.l, denialIn(l.l, id)) {
			t.Errorf("%s is not denied at once", id)
		}
		l.slowest = max(l.slowest, time.Since(began))
	}
}

// arrived checks that all of the loads is in the cluster, each once, and that every
// replica knows it.
func arrived(t *testing.T, loads ...*load) {
	t.Helper()
	total := 0
	for _, l := range loads {
		total += l.n
		eventually(t, l.prefix+" is published", func() bool {
			s := l.f.Status()
			return s.Denials.Waiting+s.Escalations.Waiting == 0
		})
		if s := l.f.Status(); s.Denials.Lost+s.Escalations.Lost != 0 {
			t.Errorf("%s: lost: %+v", l.prefix, s)
		}
	}
	var list []StoredEscalation
	eventually(t, "the escalations can be read", func() (ok bool) {
		var err error
		list, err = loads[0].f.Escalations(t.Context())
		return err == nil
	})
	seen := map[string]int{}
	for _, e := range list {
		seen[e.Decision.TaskID]++
	}
	for _, l := range loads {
		for n := range l.n {
			if id := fmt.Sprint(l.prefix, n); seen[id] != 1 {
				t.Errorf("escalation %s is there %d times", id, seen[id])
			}
		}
		eventually(t, l.prefix+" knows every denial", func() bool { return l.l.(*ledger).size.Load() == int64(total) })
	}
	if len(list) != total {
		t.Errorf("%d escalations, want %d", len(list), total)
	}
	for _, l := range loads {
		t.Logf("%s: %d of each, the slowest Record, Escalate and Denied together took %v", l.prefix, l.n, l.slowest)
	}
}

// agreed checks that a policy written now is in the books.
func agreed(t *testing.T, f *Fleet, epoch uint64, books ...*fedhttp.PolicyBook) {
	t.Helper()
	eventually(t, "the policy is written", func() bool {
		err := f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(epoch), Digest: "sha256:a"})
		if err == nil {
			err = f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(epoch), Digest: "sha256:a"})
		}
		return err == nil
	})
	for _, b := range books {
		wantBasis(t, b, key(epoch), "accepted sha256:a")
	}
}

// TestClusterNodeDown: a node is shut down, the one that leads; the others go on,
// and it comes back.
func TestClusterNodeDown(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	a, b := c.open(Config{Name: "a", Dir: t.TempDir()}), c.open(Config{Name: "b"})
	bookA, bookB := feed1(t, a), feed1(t, b)
	la, lb := newLoad(a, "a"), newLoad(b, "b")
	la.record(t, 50)
	lb.record(t, 50)
	agreed(t, a, 1, bookA, bookB)
	down := c.leader(a, a.names.escalations())
	var busy sync.WaitGroup
	busy.Go(func() { la.record(t, 200) })
	c.stop(down)
	lb.record(t, 200)
	busy.Wait()
	agreed(t, b, 2, bookA, bookB)
	c.start(down)
	la.record(t, 50)
	arrived(t, la, lb)
	agreed(t, a, 3, bookA, bookB)
}

// TestClusterRestart: all nodes go, and come back.
func TestClusterRestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	a, b := c.open(Config{Name: "a", Dir: t.TempDir()}), c.open(Config{Name: "b"})
	bookA, bookB := feed1(t, a), feed1(t, b)
	la, lb := newLoad(a, "a"), newLoad(b, "b")
	la.record(t, 50)
	agreed(t, a, 1, bookA, bookB)
	for n := range c.nodes {
		c.stop(n)
	}
	la.record(t, 200)
	lb.record(t, 200)
	wantBasis(t, bookA, key(1), "accepted sha256:a") // from memory
	for n := range c.nodes {
		c.start(n)
	}
	arrived(t, la, lb)
	agreed(t, b, 2, bookA, bookB)
}

// TestClusterCut: the network to one replica is cut, and nobody is told.
func TestClusterCut(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	p := newProxy(t, c.client[0])
	a := c.open(Config{Name: "a", Dir: t.TempDir(), URL: p.url(), Options: quickly, MaxStaleness: 2 * time.Second})
	b := c.open(Config{Name: "b"})
	bookA, bookB := feed1(t, a), feed1(t, b)
	la, lb := newLoad(a, "a"), newLoad(b, "b")
	la.record(t, 50)
	agreed(t, a, 1, bookA, bookB)
	p.cut.Store(true)
	began := time.Now()
	la.record(t, 200)
	lb.record(t, 200)
	wantBasis(t, bookA, key(1), "policies_stale")
	if age := a.Status().PoliciesAge; age < 2*time.Second {
		t.Errorf("stale after %v of silence already", age)
	}
	must(t, b.Revoke(t.Context(), key(1), "sha256:a"))
	wantBasis(t, bookB, key(1), "not_accepted")
	for time.Since(began) < *cutFor {
		la.record(t, 5)
		if got := basis(bookA, key(1)); got != "policies_stale" {
			t.Fatalf("revoked, and %s where nobody could say so", got)
		}
		time.Sleep(50 * time.Millisecond)
	}
	p.cut.Store(false)
	wantBasis(t, bookA, key(1), "not_accepted")
	arrived(t, la, lb)
	agreed(t, a, 2, bookA, bookB)
}

// TestClusterFull: what the cluster has no room for waits, and comes once there is.
func TestClusterFull(t *testing.T) {
	t.Parallel()
	c := newCluster(t, func(o *server.Options) { o.JetStreamMaxStore = 64 << 20 })
	f := c.open(Config{Name: "a", MaxBytes: 64 << 10})
	l := newLoad(f, "a")
	l.record(t, 400)
	eventually(t, "it is full", func() bool {
		s := f.Status()
		return s.Escalations.Waiting > 0 && s.Denials.Waiting > 0 && s.LastError != ""
	})
	if s := f.Status(); s.Escalations.Lost+s.Denials.Lost != 0 {
		t.Errorf("lost: %+v", s)
	}
	for _, name := range []string{f.names.escalations(), bucketStream(f.names.denials())} {
		s, err := f.js.Stream(t.Context(), name)
		must(t, err)
		cfg := s.CachedInfo().Config
		cfg.MaxBytes = 4 << 20
		_, err = f.js.UpdateStream(t.Context(), cfg)
		must(t, err)
	}
	arrived(t, l)
}

// TestClusterQuota: the servers' quota of the disk is used up by somebody else. What
// is told meanwhile waits, and comes once there is room.
func TestClusterQuota(t *testing.T) {
	t.Parallel()
	const quota = 8 << 20
	c := newCluster(t, func(o *server.Options) { o.JetStreamMaxStore = quota })
	f, other := c.open(Config{Name: "a", Dir: t.TempDir()}), c.open(Config{Name: "b"})
	l, m := newLoad(f, "a"), newLoad(other, "b")
	l.record(t, 20)
	eventually(t, "there was room", func() bool { return f.Status().Escalations.Published == 20 && f.Status().Denials.Published == 20 })
	ballast := jetstream.StreamConfig{Name: "BALLAST", Subjects: []string{"ballast"}, Replicas: 3}
	eventually(t, "somebody has a stream", func() bool {
		_, err := f.js.CreateOrUpdateStream(t.Context(), ballast)
		return err == nil
	})
	eventually(t, "the quota is used up", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := f.js.Publish(ctx, "ballast", make([]byte, 256<<10))
		var api jetstream.JetStreamError
		return errors.As(err, &api) && api.APIError() != nil
	})
	l.record(t, 200)
	m.record(t, 200)
	eventually(t, "it is full", func() bool {
		s := f.Status()
		return s.Escalations.Waiting > 0 && s.Denials.Waiting > 0 && s.LastError != ""
	})
	t.Logf("full: %+v", f.Status())
	eventually(t, "there is room again", func() bool { return f.js.DeleteStream(t.Context(), ballast.Name) == nil })
	arrived(t, l, m)
}
