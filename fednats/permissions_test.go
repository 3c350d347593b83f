package fednats

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/fedhttp/fedhttp"
)

// documentedUsers reads the configuration in docs/fleet.md, as it is there.
func documentedUsers(t *testing.T) *server.Options {
	t.Helper()
	doc, err := os.ReadFile("../docs/fleet.md")
	must(t, err)
	found := regexp.MustCompile("(?s)```hocon\n(.*?)```").FindSubmatch(doc)
	if found == nil {
		t.Fatal("docs/fleet.md has no configuration")
	}
	conf := t.TempDir() + "/nats.conf"
	text := regexp.MustCompile(`\$[A-Z]+_PASSWORD`).ReplaceAllString(string(found[1]), `"secret"`)
	must(t, os.WriteFile(conf, []byte(text), 0o600))
	parsed, err := server.ProcessConfigFile(conf)
	must(t, err)
	return parsed
}

func documentedServer(t *testing.T) *Server {
	t.Helper()
	parsed := documentedUsers(t)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	s, err := StartServer(ctx, ServerConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0", Configure: func(o *server.Options) {
		o.Users, o.Accounts, o.NoAuthUser = parsed.Users, parsed.Accounts, parsed.NoAuthUser
	}})
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

// TestPermissions: each role of docs/fleet.md can do what it is there for, and
// nothing of what the others are.
func TestPermissions(t *testing.T) {
	t.Parallel()
	s := documentedServer(t)
	as := func(user string, parts Parts) *Fleet {
		return openAt(t, Config{URL: s.URL(), Name: user, Parts: parts, Options: []nats.Option{
			nats.UserInfo(user, "secret"), nats.CustomInboxPrefix("_INBOX_" + user),
		}})
	}
	as("setup", 0)
	replica, other := as("replica", 0), as("replica", 0)
	negotiator := as("negotiator", PartPolicies|PartUnresolved)
	gossip, operator := as("gossip", PartPolicies), as("operator", PartEscalations|PartDegraded|PartDenials)

	// What a replica does.
	book := feed1(t, replica)
	d := denial("s")
	must(t, replica.Denials().Record(t.Context(), d))
	eventually(t, "the denial is shared", func() bool { return denied(other.Denials(), d) })
	replica.Coordinator().PolicyUnresolved(t.Context(), unresolved(1))
	replica.Escalator().Escalate(t.Context(), escalation("1"))
	eventually(t, "all is published", func() bool {
		s := replica.Status()
		return s.Unresolved.Published == 1 && s.Escalations.Published == 1
	})
	source := &countingSource{fetch: func(context.Context, int64) (fedhttp.Anchor, error) { return fedhttp.Anchor{Version: "v"}, nil }}
	for _, f := range []*Fleet{replica, other} {
		if _, err := f.Anchors(source).FetchAnchor(t.Context(), "org-b"); err != nil || source.calls.Load() != 1 {
			t.Errorf("%v, %d fetches", err, source.calls.Load())
		}
	}
	flagged := &flagRecorder{set: map[string]bool{}}
	must(t, replica.Degrade(flagged))

	// What the others do.
	must(t, gossip.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(1), Digest: "sha256:a"}))
	told, refused := make(chan fedhttp.Unresolved, 1), make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	go func() { refused <- negotiator.FollowUnresolved(ctx, func(u fedhttp.Unresolved) { told <- u }) }()
	select {
	case u := <-told:
		if u.Capability != "summarize" || u.Epoch != 1 {
			t.Errorf("%+v", u)
		}
		cancel()
		if err := <-refused; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	case err := <-refused:
		t.Fatalf("the negotiator may not follow: %v; %s", err, negotiator.Status().LastError)
	}
	must(t, negotiator.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:a"}))
	wantBasis(t, book, key(1), "accepted sha256:a")
	list, err := operator.Escalations(t.Context())
	must(t, err)
	must(t, operator.AckEscalation(t.Context(), list[0].ID, "alice"))
	must(t, operator.SetDegraded(t.Context(), "org-b", true))
	eventually(t, "the flag is shared", func() bool { return flagged.is("org-b") })
	operator.Denials().Forget("org-b", "summarize")
	eventually(t, "the denial is forgotten", func() bool { return !denied(replica.Denials(), d) })

	// What none of them may.
	publish := func(f *Fleet, subject string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := f.js.Publish(ctx, subject, nil)
			return err
		}
	}
	policies, denials := bucketSubject(replica.names.policies()), bucketSubject(replica.names.denials())
	evil := fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:evil"}
	forbidden(t, "a replica accepts", replica, policies+"acc.", func(ctx context.Context) error { return replica.Accept(ctx, evil) })
	forbidden(t, "gossip accepts", gossip, policies+"acc.", func(ctx context.Context) error { return gossip.Accept(ctx, evil) })
	forbidden(t, "gossip negotiates", gossip, policies+"neg.", func(ctx context.Context) error {
		return gossip.CacheNegotiation(ctx, fedhttp.Negotiation{PolicyKey: key(1), Digest: "sha256:evil", ExpiresAt: time.Now().Add(time.Hour)})
	})
	forbidden(t, "an operator accepts", operator, policies+"acc.x", publish(operator, policies+"acc.x"))
	forbidden(t, "an operator denies", operator, denials+"den.x", publish(operator, denials+"den.x"))
	anchor := bucketSubject(negotiator.names.anchors()) + "anchor.org-b"
	forbidden(t, "a negotiator sets an anchor", negotiator, anchor, publish(negotiator, anchor))
	forbidden(t, "a replica deletes a stream", replica, "$JS.API.STREAM.DELETE.", func(ctx context.Context) error {
		return replica.js.DeleteStream(ctx, replica.names.escalations())
	})
	forbidden(t, "a replica purges a bucket", replica, "$JS.API.STREAM.PURGE.", func(ctx context.Context) error {
		_, err := replica.conn.RequestWithContext(ctx, "$JS.API.STREAM.PURGE."+bucketStream(replica.names.policies()), nil)
		return err
	})
	if got := basis(book, key(1)); got != "accepted sha256:a" {
		t.Errorf("%s", got)
	}
}

// forbidden checks that the server says that a program may not publish to a subject,
// and that what it tries comes to nothing.
func forbidden(t *testing.T, what string, f *Fleet, subject string, try func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	tried := make(chan error, 1)
	go func() { tried <- try(ctx) }()
	eventually(t, what+": the server refuses it", func() bool {
		last := strings.ToLower(f.Status().LastError)
		return strings.Contains(last, "permissions violation for publish") && strings.Contains(last, strings.ToLower(subject)) || len(tried) > 0
	})
	cancel()
	if err := <-tried; err == nil {
		t.Error(what)
	}
}

type flagRecorder struct {
	mu  sync.Mutex
	set map[string]bool
}

func (r *flagRecorder) SetDegraded(peer string, degraded bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set[peer] = degraded
}

func (r *flagRecorder) is(peer string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.set[peer]
}
