package fednats

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
)

func TestFreshness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []bool
		f := newFreshness(time.Minute, func(stale bool) { told = append(told, stale) })
		want := func(what string, stale bool, times int) {
			t.Helper()
			synctest.Wait()
			_, is := f.age()
			f.mu.Lock()
			defer f.mu.Unlock()
			if is != stale || len(told) != times || told[times-1] != stale {
				t.Errorf("%s: stale %v, told %v", what, is, told)
			}
		}
		want("nothing was read", true, 1)
		if age, _ := f.age(); age >= 0 {
			t.Errorf("age %v before anything was read", age)
		}
		begin := time.Now()
		time.Sleep(10 * time.Second)
		f.advance(begin)
		want("read", false, 2)
		time.Sleep(50*time.Second - 1)
		want("just in time", false, 2)
		time.Sleep(time.Nanosecond)
		want("a minute old", true, 3)
		time.Sleep(time.Nanosecond)
		f.advance(begin.Add(1)) // an answer that took a minute
		want("an old answer", true, 3)
		f.advance(time.Now())
		want("heard again", false, 4)
		for range 10 {
			time.Sleep(30 * time.Second)
			f.advance(time.Now())
		}
		f.advance(begin)
		want("kept fresh", false, 4)
		if age, _ := f.age(); age != 0 {
			t.Errorf("age %v", age)
		}
		time.Sleep(time.Minute)
		want("silent again", true, 5)
		f.advance(time.Now())
		want("heard again", false, 6)
		f.end()
		want("at the end", true, 7)
		f.advance(time.Now().Add(1))
		time.Sleep(time.Hour)
		want("after the end", true, 7)
	})
}

// TestStale: with the cluster away, what was agreed counts for MaxStaleness, and
// again once it is back. Nothing is asked for in between.
func TestStale(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newNetServer(t, dir, "127.0.0.1:0")
	f := openAt(t, Config{URL: s.URL(), MaxStaleness: time.Second})
	book := feed1(t, f)
	must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(1), Digest: "sha256:a"}))
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:a"}))
	wantBasis(t, book, key(1), "accepted sha256:a")
	address := s.s.Addr().String()
	s.Close()
	wantBasis(t, book, key(1), "policies_stale")
	if st := f.Status(); !st.PoliciesStale || st.PoliciesAge < time.Second || st.Connected {
		t.Errorf("%+v", st)
	}
	if _, err := book.Authorize("org-b", fedhttp.Task{Capability: "summarize"}, nil, time.Now()); err != nil {
		t.Errorf("a task without obligations: %v", err)
	}

	newNetServer(t, dir, address)
	wantBasis(t, book, key(1), "accepted sha256:a")
	if st := f.Status(); st.PoliciesStale || !st.Connected || st.Server == "" {
		t.Errorf("%+v", st)
	}
}

// TestOffline: a replica that starts with the cluster away decides what it can, and
// takes part once the cluster is there.
func TestOffline(t *testing.T) {
	t.Parallel()
	s := newNetServer(t, t.TempDir(), "127.0.0.1:0")
	address := s.s.Addr().String()
	s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, Config{URL: "nats://" + address}); err == nil {
		t.Fatal("Open succeeds without a cluster")
	}
	f := openAt(t, Config{URL: "nats://" + address, Offline: true})
	book := new(fedhttp.PolicyBook)
	if err := f.Feed(ctx, book); err == nil {
		t.Error("Feed says that all is read")
	}
	if got := basis(book, key(1)); got != "policies_stale" {
		t.Errorf("%s", got)
	}
	d := denial("s")
	must(t, f.Denials().Record(t.Context(), d))
	if !denied(f.Denials(), d) {
		t.Error("not denied")
	}
	f.Escalator().Escalate(t.Context(), escalation("1"))

	newNetServer(t, t.TempDir(), address)
	eventually(t, "all is shared", func() bool {
		s := f.Status()
		return s.Denials.Published == 1 && s.Escalations.Published == 1 && !s.PoliciesStale
	})
	wantBasis(t, book, key(1), "not_advertised")
}
