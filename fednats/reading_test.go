package fednats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/fedhttp/fedhttp"
)

// lagging is a cluster that makes readers at a server which has nothing of a stream
// yet, as one that was restarted, until it has everything.
type lagging struct {
	jetstream.JetStream
	on atomic.Bool
}

func (l *lagging) CreateConsumer(ctx context.Context, stream string, cfg jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	if l.on.Load() {
		return l.JetStream.CreateConsumer(ctx, stream, cfg)
	}
	c, err := l.JetStream.CreateConsumer(ctx, "empty", cfg)
	return elsewhere{c}, err
}

// elsewhere is a consumer of a server that is not the stream's leader.
type elsewhere struct{ jetstream.Consumer }

func (e elsewhere) CachedInfo() *jetstream.ConsumerInfo {
	info := *e.Consumer.CachedInfo()
	info.Cluster = &jetstream.ClusterInfo{Leader: "behind"}
	return &info
}

// TestReaderBehind: a server that has nothing yet, and so nothing more to say, is not
// taken for a fleet in which nothing is on record; nor is one that never comes on asked
// for ever.
func TestReaderBehind(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	writer := open(t, s, Config{})
	must(t, writer.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(1), Digest: "sha256:a"}))
	must(t, writer.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:a"}))
	writer.Escalator().Escalate(t.Context(), escalation("1"))
	eventually(t, "published", func() bool { return writer.Status().Escalations.Published == 1 })

	f := open(t, s, Config{})
	_, err := f.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "empty"})
	must(t, err)
	behind := &lagging{JetStream: f.js}
	f.js = behind
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	book := new(fedhttp.PolicyBook)
	if err := f.Feed(ctx, book); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("fed: %v", err)
	}
	if status := f.Status(); !status.PoliciesStale || status.PoliciesAge >= 0 {
		t.Errorf("%+v", status)
	}
	if list, err := f.Escalations(ctx); err == nil {
		t.Errorf("a list of %d", len(list))
	}
	if p, err := f.Policies(ctx); err == nil {
		t.Errorf("a list of %+v", p)
	}

	behind.on.Store(true)
	wantBasis(t, book, key(1), "accepted sha256:a")
	list, err := f.Escalations(t.Context())
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %+v", err, list)
	}
}

// TestLastIsNoMore: where the last revisions are gone, as those that have ended by their
// time are, a reader knows that it has come to the end, and stays as fresh as it was.
func TestLastIsNoMore(t *testing.T) {
	t.Parallel()
	lastIsNoMore(t, open(t, newServer(t, t.TempDir()), Config{MaxStaleness: time.Second}))
}

// TestClusterLastIsNoMore is the same on three servers.
func TestClusterLastIsNoMore(t *testing.T) {
	t.Parallel()
	lastIsNoMore(t, newCluster(t, nil).open(Config{MaxStaleness: 2 * time.Second}))
}

func lastIsNoMore(t *testing.T, f *Fleet) {
	t.Helper()
	must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(1), Digest: "sha256:a"}))
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:a"}))
	early := feed1(t, f)
	for n := range uint64(3) {
		must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(n + 2), Digest: "sha256:a"}))
	}
	for seq := uint64(3); seq < 6; seq++ {
		must(t, mustStream(t, f).Purge(t.Context(), jetstream.WithPurgeSubject(fmt.Sprint("$KV.*.acc.*.*.", seq-1, ".>"))))
	}
	late := feed1(t, f)
	f.mu.Lock()
	watchers := f.watchers
	f.mu.Unlock()
	// A first reading that a busy cluster interrupts is begun again.
	before := replaysOf(watchers)
	began := time.Now()
	eventually(t, "both have been fresh after that", func() bool {
		for _, w := range watchers {
			if age, stale := w.fresh.age(); stale || time.Since(began) < age || time.Since(began) < 3*time.Second {
				return false
			}
		}
		return true
	})
	for _, book := range []*fedhttp.PolicyBook{early, late} {
		if got := basis(book, key(1)); got != "accepted sha256:a" {
			t.Errorf("%s", got)
		}
	}
	if after := replaysOf(watchers); !slices.Equal(after, before) {
		t.Errorf("read %v times, and before %v", after, before)
	}
}

// replaysOf is how often each has read everything.
func replaysOf(watchers []*watcher) (replays []int) {
	for _, w := range watchers {
		w.mu.Lock()
		replays = append(replays, w.replays)
		w.mu.Unlock()
	}
	return replays
}
