package fednats

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fedhttp/fedhttp"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	_, err := Open(t.Context(), Config{
		Conn: &nats.Conn{}, URL: "nats://127.0.0.1", Prefix: "a.b", Replicas: 2, MaxBytes: -1, Parts: 1 << 7, SpoolMax: -1,
		MaxStaleness: time.Millisecond, Name: strings.Repeat("x", 300), Options: []nats.Option{},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, field := range []string{"URL", "Prefix", "Replicas", "MaxBytes", "Parts", "SpoolMax", "MaxStaleness", "Name"} {
		if !strings.Contains(err.Error(), "Config."+field+":") {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
	if want := "Config.MaxBytes: -1 is negative; want a positive one, or 0 for no bound"; !strings.Contains(err.Error(), want) {
		t.Errorf("no %q in: %v", want, err)
	}
	if _, err := Open(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), "Config.URL") {
		t.Errorf("an empty one: %v", err)
	}
	if _, err := Open(t.Context(), Config{Conn: &nats.Conn{}, Options: []nats.Option{nats.Name("x")}}); err == nil || !strings.Contains(err.Error(), "Config.Options") {
		t.Errorf("options without a URL: %v", err)
	}
}

// TestPrefixesApart: two fleets of one account know nothing of each other.
func TestPrefixesApart(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	a, b := open(t, s, Config{Prefix: "a"}), open(t, s, Config{Prefix: "a-b"})
	d := denial("s")
	must(t, a.Denials().Record(t.Context(), d))
	a.Escalator().Escalate(t.Context(), escalation("1"))
	eventually(t, "published", func() bool { s := a.Status(); return s.Denials.Published+s.Escalations.Published == 2 })
	other := b.Denials()
	eventually(t, "b has read its bucket", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		select {
		case <-b.watchers[0].ready:
			return true
		default:
			return false
		}
	})
	if list, err := b.Escalations(t.Context()); err != nil || len(list) != 0 || denied(other, d) {
		t.Errorf("%v, %v, denied %v", list, err, denied(other, d))
	}
}

// TestParts: what is not taken part in is not created, and its methods do no harm.
func TestParts(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{Parts: PartPolicies})
	for name := range f.js.StreamNames(t.Context()).Name() {
		if name != bucketStream(f.names.policies()) {
			t.Errorf("%s was created", name)
		}
	}
	d := denial("s")
	l := f.Denials()
	must(t, l.Record(t.Context(), d))
	if !denied(l, d) {
		t.Error("the ledger keeps nothing")
	}
	f.Coordinator().PolicyUnresolved(t.Context(), unresolved(1))
	f.Escalator().Escalate(t.Context(), escalation("1"))
	source := &countingSource{}
	if f.Anchors(source) != fedhttp.AnchorSource(source) {
		t.Error("anchors are shared")
	}
	for _, err := range []error{
		f.SetDegraded(t.Context(), "org-b", true), f.Degrade(nil), f.AckEscalation(t.Context(), "x", "y"),
	} {
		if err == nil || !strings.Contains(err.Error(), "Config.Parts") {
			t.Errorf("%v", err)
		}
	}
}

// TestEmbedded: a single machine keeps what it knows across a restart.
func TestEmbedded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newServer(t, dir)
	if s.URL() != "" || s.ClusterAddr() != "" {
		t.Errorf("it listens at %q, %q", s.URL(), s.ClusterAddr())
	}
	f := open(t, s, Config{})
	d := denial("s")
	must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(1), Digest: "sha256:a"}))
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:a", Terms: residency}))
	must(t, f.Denials().Record(t.Context(), d))
	f.Escalator().Escalate(t.Context(), escalation("1"))
	f.Coordinator().PolicyUnresolved(t.Context(), unresolved(2))
	must(t, f.Close(t.Context()))
	s.Close()

	s = newServer(t, dir)
	f = open(t, s, Config{})
	wantBasis(t, feed1(t, f), key(1), "accepted sha256:a")
	l := f.Denials()
	eventually(t, "the denial is back", func() bool { return denied(l, d) })
	list, err := f.Escalations(t.Context())
	must(t, err)
	if len(list) != 1 || list[0].Decision.TaskID != "1" || messages(t, f, f.names.unresolved()) != 1 {
		t.Errorf("%+v", list)
	}
}

func TestServerConfig(t *testing.T) {
	t.Parallel()
	s := newNetServer(t, t.TempDir(), "127.0.0.1:0")
	for want, cfg := range map[string]ServerConfig{
		"Dir is empty":           {},
		"ServerConfig.Listen":    {Dir: t.TempDir(), Listen: "127.0.0.1"},
		"ServerConfig.Cluster":   {Dir: t.TempDir(), Cluster: "127.0.0.1:x", Name: "n"},
		"Name is empty":          {Dir: t.TempDir(), Cluster: "127.0.0.1:0"},
		"has to listen":          {Dir: t.TempDir(), Cluster: "127.0.0.1:0", Name: "n"},
		"Routes is set":          {Dir: t.TempDir(), Routes: []string{"nats-route://127.0.0.1:1"}},
		"Routes[0]: missing":     {Dir: t.TempDir(), Cluster: "127.0.0.1:0", Name: "n", Routes: []string{":"}},
		"Routes[1]: it does not": {Dir: t.TempDir(), Cluster: "127.0.0.1:0", Name: "n", Routes: []string{"nats-route://127.0.0.1:1", "nats-route://user:topsecret@127.0.0.1:x"}},
		"address already in use": {Dir: t.TempDir(), Listen: s.s.Addr().String()},
	} {
		if got, err := StartServer(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want an error with %q", got, err, want)
		} else {
			wantNoSecrets(t, want, err.Error())
		}
	}
}

// TestCloseDrains: what was recorded before is published, and nothing goes on.
func TestCloseDrains(t *testing.T) {
	before, _ := goroutines()
	s := newServer(t, t.TempDir())
	observer := open(t, s, Config{})
	conn, err := s.Connect()
	must(t, err)
	f := openAt(t, Config{Conn: conn, Dir: t.TempDir()})
	book := feed1(t, f)
	must(t, f.Degrade(new(fedhttp.Transport)))
	l := f.Denials()
	for n := range 500 {
		must(t, l.Record(t.Context(), denial(fmt.Sprint(n))))
		f.Escalator().Escalate(t.Context(), escalation(fmt.Sprint(n)))
	}
	must(t, f.Close(t.Context()))
	must(t, f.Close(t.Context()))
	if d, e := messages(t, observer, bucketStream(f.names.denials())), messages(t, observer, f.names.escalations()); d != 500 || e != 500 {
		t.Errorf("%d denials and %d escalations were published, want 500 of each", d, e)
	}
	if conn.IsClosed() {
		t.Error("the program's connection is closed")
	}
	if got := basis(book, key(1)); got != "policies_stale" {
		t.Errorf("a book that nothing feeds: %s", got)
	}
	for what, err := range map[string]error{
		"Feed": f.Feed(t.Context(), book), "Accept": f.Accept(t.Context(), fedhttp.Policy{}), "SetDegraded": f.SetDegraded(t.Context(), "p", true),
	} {
		if err != ErrClosed { //nolint:errorlint // as it is
			t.Errorf("%s of a closed fleet: %v", what, err)
		}
	}
	if !denied(l, denialIn(l, "7")) {
		t.Error("the ledger has forgotten")
	}
	if f.Escalator().Escalate(t.Context(), escalation("late")); f.Status().Escalations.Lost != 1 {
		t.Errorf("a late escalation is not counted: %+v", f.Status().Escalations)
	}

	// Without a cluster it ends with its context, and says what is left.
	away := openAt(t, Config{Conn: connect(t, s), Dir: t.TempDir()})
	memory := openAt(t, Config{Conn: connect(t, s)})
	must(t, observer.Close(t.Context()))
	s.Close()
	for _, f := range []*Fleet{away, memory} {
		f.Escalator().Escalate(t.Context(), escalation("1"))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := f.Close(ctx)
		cancel()
		want := "kept on disk"
		if f == memory {
			want = "lost"
		}
		if err == nil || !strings.Contains(err.Error(), "1 escalations") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	conn.Close()
	for _, f := range []*Fleet{observer, away, memory} {
		f.conn.Close()
	}
	eventually(t, "no goroutine is left", func() bool { n, _ := goroutines(); return n <= before })
}

// denialIn returns the denial of a scope as the ledger has it.
func denialIn(l fedhttp.DenialLedger, scope string) fedhttp.Denial {
	d := denial(scope)
	d, _ = l.Denied(d.Peer, fedhttp.Task{Capability: d.Capability, Scope: scope}, fedhttp.Authorization{Epoch: d.Epoch, Digest: d.Digest})
	return d
}

// TestOutage: what is recorded with the cluster away is there once after it is
// back, also by a process that came after the one that recorded it.
func TestOutage(t *testing.T) {
	t.Parallel()
	dir, spool := t.TempDir(), t.TempDir()
	s := newNetServer(t, dir, "127.0.0.1:0")
	address, url := s.s.Addr().String(), s.URL()
	f := openAt(t, Config{URL: url, Dir: spool})
	f.Escalator().Escalate(t.Context(), escalation("0"))
	eventually(t, "published", func() bool { return f.Status().Escalations.Published == 1 })
	s.Close()
	eventually(t, "disconnected", func() bool { return !f.Status().Connected })
	l := f.Denials()
	for n := range 100 {
		must(t, l.Record(t.Context(), denial(fmt.Sprint(n))))
		f.Escalator().Escalate(t.Context(), escalation(fmt.Sprint(n+1)))
		f.Coordinator().PolicyUnresolved(t.Context(), unresolved(uint64(n)))
	}
	if !denied(l, denialIn(l, "42")) {
		t.Error("not denied at once")
	}
	closeFleet(t, f)
	f = openAt(t, Config{URL: url, Dir: spool, Offline: true})
	if st := f.Status(); st.Denials.Waiting != 100 || st.Escalations.Waiting != 100 || st.Unresolved.Waiting != 100 {
		t.Fatalf("after a restart: %+v", st)
	}
	f.Escalator().Escalate(t.Context(), escalation("101"))

	newNetServer(t, dir, address)
	eventually(t, "all is published", func() bool {
		st := f.Status()
		return st.Denials.Published == 100 && st.Escalations.Published == 101 && st.Unresolved.Published == 100
	})
	list, err := f.Escalations(t.Context())
	must(t, err)
	seen := map[string]int{}
	for _, e := range list {
		seen[e.Decision.TaskID]++
	}
	for n := range 102 {
		if seen[fmt.Sprint(n)] != 1 {
			t.Errorf("escalation %d is there %d times", n, seen[fmt.Sprint(n)])
		}
	}
	if n := messages(t, f, f.names.unresolved()); n != 100 {
		t.Errorf("%d unresolved policies", n)
	}
	other := openAt(t, Config{URL: url}).Denials()
	eventually(t, "another replica knows the denials", func() bool { return other.(*ledger).size.Load() == 100 })
	if st := f.Status(); st.Denials.Lost+st.Escalations.Lost+st.Unresolved.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

// TestBucketReplaced: a bucket that is not the one from before is read from its
// beginning, and what only the old one had is no more.
func TestBucketReplaced(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{MaxStaleness: time.Second})
	book := feed1(t, f)
	gone := fedhttp.PolicyKey{Peer: "org-c", Capability: "summarize", Epoch: 1}
	for _, k := range []fedhttp.PolicyKey{key(1), gone} {
		must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: k, Digest: "sha256:a"}))
		must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: k, Digest: "sha256:a"}))
		wantBasis(t, book, k, "accepted sha256:a")
	}
	must(t, f.js.DeleteKeyValue(t.Context(), f.names.policies()))
	must(t, f.setup(t.Context()))
	must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(1), Digest: "sha256:a"}))
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:a"}))
	wantBasis(t, book, gone, "not_advertised")
	wantBasis(t, book, key(1), "accepted sha256:a")
}

// TestTailPurged: revisions that are gone before anybody has seen them keep nothing
// stale, and what they gave is no more.
func TestTailPurged(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{MaxStaleness: time.Second})
	book := feed1(t, f)
	must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(1), Digest: "sha256:a"}))
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:a"}))
	wantBasis(t, book, key(1), "accepted sha256:a")
	stream, err := f.js.Stream(t.Context(), bucketStream(f.names.policies()))
	must(t, err)
	must(t, stream.Purge(t.Context()))
	late := open(t, s, Config{Parts: PartPolicies, MaxStaleness: 8 * time.Second}) // the feed is all that it reads
	wantBasis(t, feed1(t, late), key(1), "not_advertised")
	// What it knows is found to be all that there is, again and again.
	late.mu.Lock()
	fresh := late.watchers[0].fresh
	late.mu.Unlock()
	read := func() (at time.Time, stale bool) {
		fresh.mu.Lock()
		defer fresh.mu.Unlock()
		return fresh.at, fresh.stale
	}
	first, _ := read()
	eventually(t, "what it knows is of much later", func() bool {
		at, stale := read()
		if stale {
			t.Fatal("stale, and nothing is missing")
		}
		return at.Sub(first) > 2*fresh.interval() // it has asked more than once since
	})
}
