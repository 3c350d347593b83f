package fednats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// fakeCluster takes what an outbox publishes.
type fakeCluster struct {
	away atomic.Bool
	mu   sync.Mutex
	got  []string
	fail func(id string) error
}

func (c *fakeCluster) publish(_ context.Context, i *item) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		if err := c.fail(i.ID); err != nil {
			return err
		}
	}
	c.got = append(c.got, i.ID)
	return nil
}

func (c *fakeCluster) ids() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.got)
}

// newTestOutbox runs until the test ends, or stop is called.
func newTestOutbox(t *testing.T, c *fakeCluster, most int, dir string) (o *outbox, stop func()) {
	t.Helper()
	o = newOutbox("things", most)
	o.publish, o.ready, o.log, o.note = c.publish, func() bool { return !c.away.Load() }, slog.New(slog.DiscardHandler), func(error) {}
	if dir != "" {
		j, left, damaged, err := openJournal(dir, "things", o.log)
		must(t, err)
		o.restore(j, left, damaged)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		o.run(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
		o.close()
	})
	t.Cleanup(stop)
	return o, stop
}

func numbered(from, to int) (ids []string) {
	for n := from; n < to; n++ {
		ids = append(ids, fmt.Sprintf("%04d", n))
	}
	return ids
}

func TestOutboxBounded(t *testing.T) {
	t.Parallel()
	var c fakeCluster
	c.away.Store(true)
	o, _ := newTestOutbox(t, &c, 100, "")
	for n, id := range numbered(0, 120) {
		if took := o.add(item{ID: id}); took != (n < 100) {
			t.Errorf("item %d: taken %v", n, took)
		}
	}
	if s := o.status(); s.Waiting != 100 || s.Lost != 20 || s.Published != 0 || s.OnDisk {
		t.Errorf("%+v", s)
	}
	c.away.Store(false)
	o.kick()
	eventually(t, "published", func() bool { return o.status().Waiting == 0 })
	got := c.ids()
	slices.Sort(got)
	if !slices.Equal(got, numbered(0, 100)) {
		t.Errorf("published %v", got)
	}
	if s := o.status(); s.Published != 100 || s.Lost != 20 {
		t.Errorf("%+v", s)
	}
}

// TestOutboxFailures: what fails is tried again, alone; what is never taken is lost;
// what is over is not published.
func TestOutboxFailures(t *testing.T) {
	t.Parallel()
	var failures atomic.Int64
	c := fakeCluster{fail: func(id string) error {
		switch {
		case id == "0003":
			return fmt.Errorf("%w: too large", errNever)
		case id == "0005" && failures.Add(1) <= 3:
			return errors.New("no leader")
		}
		return nil
	}}
	c.away.Store(true)
	o, _ := newTestOutbox(t, &c, 100, "")
	for _, id := range numbered(0, 10) {
		i := item{ID: id}
		if id == "0007" {
			i.Until = time.Now()
		}
		o.add(i)
	}
	c.away.Store(false)
	eventually(t, "published", func() bool { return o.status().Waiting == 0 })
	got := c.ids()
	slices.Sort(got)
	if want := "[0000 0001 0002 0004 0005 0006 0008 0009]"; fmt.Sprint(got) != want {
		t.Errorf("published %v, want %s", got, want)
	}
	if s := o.status(); s.Published != 8 || s.Lost != 1 || s.Expired != 1 {
		t.Errorf("%+v", s)
	}
}

// TestOutboxAlone: nothing overtakes what has to keep its place.
func TestOutboxAlone(t *testing.T) {
	t.Parallel()
	var c fakeCluster
	c.away.Store(true)
	var refused atomic.Int64
	c.fail = func(id string) error {
		if strings.HasPrefix(id, "alone") && refused.Add(1)%2 == 1 {
			return errors.New("once more")
		}
		return nil
	}
	o, _ := newTestOutbox(t, &c, 1000, "")
	for n := range 5 {
		for _, id := range numbered(n*10, n*10+10) {
			o.add(item{ID: id})
		}
		o.add(item{ID: fmt.Sprint("alone", n), Alone: true})
	}
	c.away.Store(false)
	eventually(t, "published", func() bool { return o.status().Waiting == 0 })
	got := c.ids()
	for n := range 5 {
		at := slices.Index(got, fmt.Sprint("alone", n))
		before := slices.Clone(got[:at])
		slices.Sort(before)
		if at != n*11+10 {
			t.Errorf("%d overtakes, or is overtaken: %v", n, got)
		}
	}
}

// TestOutboxOnDisk: what waits survives the process, in its order and once.
func TestOutboxOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "things.spool")
	var c fakeCluster
	c.away.Store(true)
	o, stop := newTestOutbox(t, &c, 100, dir)
	for _, id := range numbered(0, 50) {
		o.add(item{ID: id, Subject: "s." + id, Data: []byte("content of " + id), Alone: id == "0007"})
	}
	lines := func() int {
		b, err := os.ReadFile(path)
		must(t, err)
		return strings.Count(string(b), "\n")
	}
	eventually(t, "written", func() bool { return lines() == 50 })
	// As after SIGKILL, in the middle of a line.
	b, err := os.ReadFile(path)
	must(t, err)
	stop()
	must(t, os.WriteFile(path, append(b, `00000000 {"id":"torn`...), 0o600))

	o, stop = newTestOutbox(t, &c, 100, dir)
	if s := o.status(); s.Waiting != 50 || s.Lost != 1 || !s.OnDisk {
		t.Errorf("%+v", s)
	}
	for n, i := range o.from(0) {
		if i.ID != fmt.Sprintf("%04d", n) || i.Subject != "s."+i.ID || string(i.Data) != "content of "+i.ID || i.Alone != (n == 7) {
			t.Errorf("item %d is %+v", n, i)
		}
	}
	o.add(item{ID: "0050"})
	eventually(t, "written", func() bool { return lines() == 51 })
	c.away.Store(false)
	eventually(t, "published", func() bool { return o.status().Waiting == 0 })
	eventually(t, "the file is empty", func() bool { return lines() == 0 })
	got := c.ids()
	slices.Sort(got)
	if !slices.Equal(got, numbered(0, 51)) {
		t.Errorf("published %v", got)
	}
	stop()
	o, _ = newTestOutbox(t, &c, 100, dir)
	if s := o.status(); s.Waiting != 0 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// TestJournalCompacts: a spool that is never empty does not grow for ever.
func TestJournalCompacts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, _, _, err := openJournal(dir, "things", slog.New(slog.DiscardHandler))
	must(t, err)
	defer j.close()
	var queue []item
	from := func(n int) []item { return queue[min(n, len(queue)):] }
	for n := range 5000 {
		queue = append(queue, item{ID: fmt.Sprintf("%04d", n)})
		j.append(from)
		if n >= 10 {
			queue = queue[1:]
			j.forget(1, len(queue), from)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "things.spool"))
	must(t, err)
	if n := strings.Count(string(b), "\n"); n > 1100 {
		t.Errorf("%d lines for %d items", n, len(queue))
	}
	other := t.TempDir()
	must(t, os.WriteFile(filepath.Join(other, "things.spool"), b, 0o600))
	_, items, damaged, err := openJournal(other, "things", slog.New(slog.DiscardHandler))
	must(t, err)
	if damaged > 0 || len(items) < 10 {
		t.Fatalf("%d items, %d damaged", len(items), damaged)
	}
	for n, i := range items[len(items)-10:] {
		if i.ID != queue[n].ID {
			t.Errorf("item %d is %s, want %s", n, i.ID, queue[n].ID)
		}
	}
}

func TestJournalDamage(t *testing.T) {
	t.Parallel()
	var b []byte
	for _, id := range numbered(0, 10) {
		b = marshalLine(b, &item{ID: id})
	}
	b[len(b)/2] ^= 1
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "things.spool"), b, 0o600))
	_, items, damaged, err := openJournal(dir, "things", slog.New(slog.DiscardHandler))
	must(t, err)
	if len(items) != 9 || damaged != 1 {
		t.Errorf("%d items, %d damaged", len(items), damaged)
	}
}

func TestDirBelongsToOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{Dir: dir})
	if _, err := Open(t.Context(), Config{Conn: connect(t, s), Dir: dir}); err == nil {
		t.Error("two have the same directory")
	}
	must(t, f.Close(t.Context()))
	open(t, s, Config{Dir: dir})
}
