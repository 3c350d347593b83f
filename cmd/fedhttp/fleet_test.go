package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fednats"
)

const (
	within = 40 * time.Second // of anything that has to happen; a bound, not a measure
	secret = "s3cretWord"
)

// testFleet is a server with the roles of docs/fleet.md, and what replicas do there.
type testFleet struct {
	url     string // with a user's name to put in
	setup   *fednats.Fleet
	replica *fednats.Fleet
	gossip  *fednats.Fleet
}

func newTestFleet(t *testing.T) *testFleet {
	t.Helper()
	doc, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```hocon\n(.*?)```").FindSubmatch(doc)
	if found == nil {
		t.Fatal("docs/fleet.md has no configuration")
	}
	text := regexp.MustCompile(`\$[A-Z]+_PASSWORD`).ReplaceAllString(string(found[1]), `"`+secret+`"`)
	conf, err := server.ProcessConfigFile(write(t, "nats.conf", text))
	if err != nil {
		t.Fatal(err)
	}
	s := startServer(t, func(o *server.Options) {
		o.Users, o.Accounts, o.NoAuthUser = conf.Users, conf.Accounts, conf.NoAuthUser
	})
	f := &testFleet{url: strings.Replace(s.URL(), "://", "://%:"+secret+"@", 1)}
	f.setup = f.as(t, "setup", 0)
	f.replica = f.as(t, "replica", 0)
	f.gossip = f.as(t, "gossip", fednats.PartPolicies)
	return f
}

func startServer(t *testing.T, configure func(*server.Options)) *fednats.Server {
	t.Helper()
	return startServerAt(t, "127.0.0.1:0", t.TempDir(), configure)
}

func startServerAt(t *testing.T, address, dir string, configure func(*server.Options)) *fednats.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	s, err := fednats.StartServer(ctx, fednats.ServerConfig{Dir: dir, Listen: address, Configure: func(o *server.Options) {
		o.SyncAlways = false
		if configure != nil {
			configure(o)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func (f *testFleet) as(t *testing.T, user string, parts fednats.Parts) *fednats.Fleet {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	fleet, err := fednats.Open(ctx, fednats.Config{
		URL: strings.Replace(f.url, "%", user, 1), Name: user + "-1", Parts: parts, Logger: slog.New(slog.DiscardHandler),
		Options: []nats.Option{nats.CustomInboxPrefix("_INBOX_" + user)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fleet.Close(ctx) })
	return fleet
}

// args are a command line in a role.
func (f *testFleet) args(user string, args ...string) []string {
	return append(args, "-nats", strings.Replace(f.url, "%", user, 1), "-inbox-prefix", "_INBOX_"+user, "-timeout", within.String())
}

func (f *testFleet) run(t *testing.T, user string, args ...string) result {
	t.Helper()
	r := runWith(t, "", f.args(user, args...)...)
	if strings.Contains(r.out+r.err, secret) {
		t.Errorf("%q: the password is printed: %s %s", args, r.out, r.err)
	}
	return r
}

// escalate has the replica escalate, and waits until the cluster has it.
func (f *testFleet) escalate(t *testing.T, task string, change func(*fedhttp.Decision)) {
	t.Helper()
	e := fedhttp.Escalation{Kind: fedhttp.EscalationAmbiguous, At: time.Now().UTC(), Decision: fedhttp.Decision{
		Peer: "org-b", Capability: "summarize", TaskID: task, Outcome: fedhttp.OutcomeAmbiguous, Reason: fedhttp.ReasonNoSignal,
		Delivery: fedhttp.DeliveryPossible, CorrelationID: "c-" + task, Attempts: 1,
		Evidence: []fedhttp.Evidence{{Source: fedhttp.SourceHeader, Layer: fedhttp.LayerPolicy}},
	}}
	if change != nil {
		change(&e.Decision)
	}
	before := f.replica.Status().Escalations.Published
	f.replica.Escalator().Escalate(t.Context(), e)
	poll(t, "published", func() bool { return f.replica.Status().Escalations.Published > before })
}

func poll(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// following is a command line that goes on until it is stopped.
type following struct {
	t     *testing.T
	lines chan string
	stop  func() result
}

func follow(t *testing.T, args []string) *following {
	t.Helper()
	ctx, interrupt := context.WithCancelCause(t.Context())
	cancel := func() { interrupt(errors.New("as signal.NotifyContext has it: interrupt signal received")) }
	in, out := io.Pipe()
	f := &following{t: t, lines: make(chan string, 1000)}
	done := make(chan result, 1)
	var errs strings.Builder
	go func() {
		code := run(ctx, args, streams{strings.NewReader(""), out, &errs})
		out.Close()
		done <- result{code: code, err: errs.String()}
	}()
	go func() {
		defer close(f.lines)
		for lines := bufio.NewScanner(in); lines.Scan(); {
			f.lines <- lines.Text()
		}
	}()
	f.stop = func() result {
		cancel()
		r := <-done
		for line := range f.lines {
			r.out += line + "\n"
		}
		return r
	}
	t.Cleanup(cancel)
	return f
}

// until returns the lines up to the first that has a text.
func (f *following) until(part string) string {
	f.t.Helper()
	limit := time.After(within)
	all := ""
	for {
		select {
		case line, open := <-f.lines:
			if !open {
				f.t.Fatalf("it has ended; %q is missing in\n%s%s", part, all, f.stop().err)
			}
			if all += line + "\n"; strings.Contains(line, part) {
				return all
			}
		case <-limit:
			f.t.Fatalf("%q is missing in\n%s", part, all)
		}
	}
}

// jsonLines reads lines of JSON in printable ASCII.
func jsonLines(t *testing.T, out string) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(out) {
		if strings.ContainsFunc(strings.TrimSuffix(line, "\n"), unprintable) {
			t.Errorf("not printable: %q", line)
		}
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		all = append(all, v)
	}
	return all
}

// hostile is what nothing that is printed may have as it is.
const hostile = "\x1b[2J\n\u202e\u009b31m\U0001F600</script>\x7f"

// TestFleetErrors: an error names what to look at, and whatever fails, no password is printed.
func TestFleetErrors(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t)
	as := func(user, password string) string {
		return strings.Replace(strings.Replace(f.url, "%", user, 1), secret, password, 1)
	}
	open := startServer(t, nil).URL()
	gone := strings.Replace(open, "://", "://u:"+secret+"@", 1)
	gone = gone[:strings.LastIndex(gone, ":")] + ":1"
	nothing := filepath.Join(t.TempDir(), "nothing")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "--nats"},
		{[]string{"-nats", "nats://u:" + secret + "%zz@127.0.0.1"}, exitUsage, "--nats"},
		{[]string{"-nats", "nats://u:" + secret + "/x@127.0.0.1"}, exitUsage, "--nats"},
		{[]string{"-nats", "nats://" + secret + "#x@127.0.0.1"}, exitUsage, "--nats"},
		{[]string{"-nats", "nats://" + secret + "?x@127.0.0.1"}, exitUsage, "--nats"},
		{[]string{"-nats", "http://u:" + secret + "@127.0.0.1"}, exitUsage, "--nats"},
		{[]string{"-nats", gone}, exitFailed, "nats://127.0.0.1:1: fednats: nats: no servers available for connection: nothing listens there; see to --nats"},
		{[]string{"-nats", as("operator", secret+"x")}, exitFailed, "--creds"},
		{[]string{"-nats", as("operator", secret), "-creds", nothing}, exitFailed, "--creds: open"},
		{[]string{"-nats", as("operator", secret), "-tls-ca", nothing}, exitFailed, "--tls-ca"},
		{[]string{"-nats", as("operator", secret), "-tls-ca", write(t, "ca.pem", "x")}, exitFailed, "no certificate in PEM"},
		{[]string{"-nats", as("operator", secret), "-tls-key", nothing}, exitUsage, "--tls-cert"},
		{[]string{"-nats", as("operator", secret), "-prefix", "a b"}, exitUsage, "--prefix"},
		{[]string{"-nats", as("operator", secret), "-inbox-prefix", "a.>"}, exitUsage, "--inbox-prefix"},
		{[]string{"-nats", as("operator", secret), "-timeout", "0s"}, exitUsage, "--timeout"},
		// The server says what it does not permit, so none of these waits for its end.
		{[]string{"-nats", as("operator", secret), "-timeout", "1h"}, exitFailed, "--inbox-prefix"},
		{[]string{"-nats", as("gossip", secret), "-inbox-prefix", "_INBOX_gossip", "-timeout", "1h"}, exitFailed, `the role "operator"`},
		{[]string{"-nats", as("operator", secret), "-inbox-prefix", "_INBOX_operator", "-prefix", "other", "-timeout", "1h"}, exitFailed, "--prefix"},
		{[]string{"-nats", open, "-prefix", "other"}, exitFailed, "see to --prefix"},
	} {
		r := runWith(t, "", append([]string{"escalations"}, c.args...)...)
		r.want(t, c.code, c.want)
		if strings.Contains(r.out+r.err, secret) || r.out != "" {
			t.Errorf("%q prints %q and %q", c.args, r.out, r.err)
		}
	}
	// A slip in a prefix has not become a fleet.
	conn, err := nats.Connect(open)
	must(t, err)
	defer conn.Close()
	js, err := conn.JetStream()
	must(t, err)
	for name := range js.StreamNames() {
		t.Errorf("there is a stream %s", name)
	}
}
