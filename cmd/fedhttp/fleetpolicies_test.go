package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fednats"
)

func (f *testFleet) advertise(t *testing.T, epoch uint64, digest string) {
	t.Helper()
	must(t, f.gossip.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: summarize(epoch), Digest: digest}))
}

func summarize(epoch uint64) fedhttp.PolicyKey {
	return fedhttp.PolicyKey{Peer: "org-b", Capability: "summarize", Epoch: epoch}
}

// waits has the replica tell of tasks that wait.
func (f *testFleet) waits(t *testing.T, epoch uint64, digest string, obligations fedhttp.Terms) {
	t.Helper()
	before := f.replica.Status().Unresolved.Published
	u := fedhttp.Unresolved{
		Peer: "org-b", Capability: "summarize", Epoch: epoch, Digest: digest, Reason: fedhttp.ReasonNotAccepted,
		Obligations: obligations, At: time.Now().UTC(),
	}
	f.replica.Coordinator().PolicyUnresolved(t.Context(), u)
	poll(t, "published", func() bool { return f.replica.Status().Unresolved.Published > before })
}

// change runs accept or revoke for org-b's summarize, as the negotiator.
func (f *testFleet) change(t *testing.T, verb string, epoch uint64, digest string, more ...string) result {
	t.Helper()
	args := []string{"policies", verb, "-peer", "org-b", "-capability", "summarize", "-epoch", fmt.Sprint(epoch), "-digest", digest}
	return f.run(t, "negotiator", append(args, more...)...)
}

func TestFleetPolicies(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t)
	f.run(t, "negotiator", "policies").want(t, 0, "There is none.")
	must(t, f.setup.Advertise(t.Context(), fedhttp.Advertisement{
		PolicyKey: fedhttp.PolicyKey{Peer: "org-c\u009b", Capability: "c", Epoch: 1}, Digest: "d\u202e" + strings.Repeat("x", 1000)[:maxShown],
	}))
	must(t, f.setup.CacheNegotiation(t.Context(), fedhttp.Negotiation{
		PolicyKey: fedhttp.PolicyKey{Peer: "org-c\u009b", Capability: "c", Epoch: 1}, Digest: "negotiated",
		Terms: fedhttp.Terms{"residency": "eu\x1b"}, ExpiresAt: time.Now().Add(50 * time.Hour),
	}))
	f.advertise(t, 4, "sha256:a")
	f.waits(t, 3, "sha256:old", fedhttp.Terms{"residency": "eu"})
	f.waits(t, 4, "sha256:a", fedhttp.Terms{"residency": "eu" + hostile})

	r := f.run(t, "negotiator", "policies")
	r.want(t, 0, "org-b  summarize\n  advertised  epoch 4, sha256:a, since ",
		"  unresolved  epoch 4, sha256:a: not_accepted, for tasks with residency=eu\\x1b[2J\\n\\u202e\\u009b31m\\U0001f600</script>\\x7f, ",
		"  tasks       wait, where they have obligations: sha256:a of epoch 4 is not agreed to\n",
		"org-c\\u009b  c\n", "d\\u202exxx", "negotiated  epoch 1, negotiated, terms residency=eu\\x1b, until ", ", in 2d\n",
		"tasks       go out under negotiated (negotiated) where they ask for no more than residency=eu\\x1b\n")
	if strings.ContainsFunc(r.out, unprintable) || strings.Contains(r.out, "sha256:old") {
		t.Errorf("not printable, or what nobody waits for any more: %q", r.out)
	}
	lines := jsonLines(t, f.run(t, "negotiator", "policies", "-json", "-peer", "org-b").out)
	if len(lines) != 2 || lines[0]["kind"] != "advertised" || lines[0]["digest"] != "sha256:a" || lines[0]["epoch"] != 4.0 ||
		lines[1]["kind"] != "unresolved" || lines[1]["reason"] != "not_accepted" ||
		fmt.Sprint(lines[1]["obligations"]) != "map[residency:eu"+hostile+"]" {
		t.Errorf("%v", lines)
	}

	// What was accepted is not waited for any more; who asks for other terms still waits.
	f.change(t, "accept", 4, "sha256:a", "-term", "residency=us").want(t, 0,
		"accepted for org-b, summarize: epoch 4, sha256:a, terms residency=us\n\n",
		"tasks       go out under sha256:a (accepted) where they ask for no more than residency=us\n")
	if l := jsonLines(t, f.run(t, "negotiator", "policies", "-json", "-peer", "org-b").out); fmt.Sprint(l[1]["terms"]) != "map[residency:us]" {
		t.Errorf("%v", l)
	}
	f.run(t, "negotiator", "policies", "-peer", "org-b").want(t, 0, "unresolved  epoch 4")
	f.change(t, "accept", 4, "sha256:a").want(t, 0, "accepted    epoch 4, sha256:a\n", "tasks       go out under sha256:a (accepted)\n")
	lines = jsonLines(t, f.run(t, "negotiator", "policies", "-json", "-peer", "org-b").out)
	if terms, there := lines[1]["terms"]; len(lines) != 2 || lines[1]["kind"] != "accepted" || !there || terms != nil {
		t.Errorf("%v", lines)
	}
}

// TestAgreementShown: what was done is shown, however far behind the list is.
func TestAgreementShown(t *testing.T) {
	t.Parallel()
	c := &agreement{key: summarize(4), digest: "d"}
	accepted := func(epoch uint64, digest string) fednats.StoredPolicy {
		return fednats.StoredPolicy{Policy: fedhttp.Policy{PolicyKey: summarize(epoch), Digest: digest}}
	}
	negotiated := func(epoch uint64, digest string) fednats.StoredNegotiation {
		return fednats.StoredNegotiation{Negotiation: fedhttp.Negotiation{PolicyKey: summarize(epoch), Digest: digest}}
	}
	p := &fednats.Policies{
		Accepted:   []fednats.StoredPolicy{accepted(4, "d"), accepted(4, "other"), accepted(5, "d")},
		Negotiated: []fednats.StoredNegotiation{negotiated(4, "d"), negotiated(5, "d")},
	}
	c.acceptIn(p, fedhttp.Terms{"residency": "eu"})
	if len(p.Accepted) != 3 || p.Accepted[2].PolicyKey != c.key || p.Accepted[2].Digest != "d" || p.Accepted[2].Terms["residency"] != "eu" || len(p.Negotiated) != 2 {
		t.Errorf("accepted: %+v", p)
	}
	c.revokeIn(p)
	if len(p.Accepted) != 2 || p.Accepted[0].Digest != "other" || p.Accepted[1].Epoch != 5 || len(p.Negotiated) != 1 || p.Negotiated[0].Epoch != 5 {
		t.Errorf("revoked: %+v", p)
	}
}

// TestAccept: what is accepted counts where it is what is advertised, to the replicas
// as to the words that say so.
func TestAccept(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t)
	book := &fedhttp.PolicyBook{}
	must(t, f.replica.Feed(t.Context(), book))
	under := func(want string) {
		t.Helper()
		task := fedhttp.Task{Capability: "summarize", Obligations: fedhttp.Terms{"residency": "eu"}}
		poll(t, "tasks go out under "+want, func() bool {
			auth, err := book.Authorize("org-b", task, nil, time.Now())
			return err == nil && auth.Digest == want || err != nil && want == ""
		})
	}
	for _, missing := range []string{"-digest", "-epoch", "-peer", "-capability"} {
		args := []string{"policies", "accept", "-peer", "org-b", "-capability", "summarize", "-epoch", "4", "-digest", "sha256:a"}
		for i, arg := range args {
			if arg == missing {
				args = append(args[:i:i], args[i+2:]...)
				break
			}
		}
		f.run(t, "negotiator", args...).want(t, exitUsage, missing[1:])
	}
	f.change(t, "accept", 4, "sha256:a", "-term", "x").want(t, exitUsage, "--term")
	f.change(t, "accept", 4, "").want(t, exitUsage, "digest is empty")

	f.change(t, "accept", 4, "sha256:a").want(t, 0, "accepted    epoch 4, sha256:a: not advertised\n", "tasks       wait", "nothing is advertised\n")
	f.advertise(t, 3, "sha256:old")
	f.change(t, "accept", 4, "sha256:a").want(t, 0, "epoch 4, sha256:a: not yet, epoch 3 is advertised\n", "tasks       wait", "sha256:old of epoch 3 is not agreed to")
	f.advertise(t, 4, "sha256:b")
	f.change(t, "accept", 4, "sha256:a").want(t, 0, "epoch 4, sha256:a: not what is advertised, which is sha256:b\n", "tasks       wait", "sha256:b of epoch 4 is not agreed to")
	under("")
	f.change(t, "accept", 4, "sha256:b").want(t, 0, "tasks       go out under sha256:b (accepted)\n")
	under("sha256:b")
	f.advertise(t, 5, "sha256:c")
	f.change(t, "accept", 4, "sha256:b").want(t, 0, "epoch 4, sha256:b: over, epoch 5 is advertised\n", "tasks       wait")
	under("")

	f.change(t, "accept", 5, "sha256:c").want(t, 0, "tasks       go out under sha256:c (accepted)\n")
	under("sha256:c")
	r := f.change(t, "revoke", 5, "sha256:C")
	r.want(t, exitFailed, "nothing is revoked: for org-b, summarize nothing lets tasks go out under epoch 5, sha256:C\n")
	f.change(t, "revoke", 5, "sha256:c").want(t, 0, "revoked for org-b, summarize: epoch 5, sha256:c\n\n", "tasks       wait")
	under("")
	must(t, f.setup.CacheNegotiation(t.Context(), fedhttp.Negotiation{PolicyKey: summarize(5), Digest: "sha256:n", ExpiresAt: time.Now().Add(time.Hour)}))
	under("sha256:n")
	f.change(t, "revoke", 5, "sha256:n").want(t, 0, "revoked", "tasks       wait")
	under("")

	for _, user := range []string{"operator", "gossip", "replica"} {
		args := []string{"policies", "accept", "-peer", "org-b", "-capability", "summarize", "-epoch", "5", "-digest", "sha256:c"}
		f.run(t, user, args...).want(t, exitFailed, `the role "negotiator"`)
	}
	under("")
}

func TestFleetPoliciesFollow(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t)
	f.advertise(t, 1, "sha256:one")
	f.waits(t, 1, "sha256:one", fedhttp.Terms{"residency": "eu"})
	text := follow(t, f.args("negotiator", "policies", "-follow"))
	lines := follow(t, f.args("negotiator", "policies", "-follow", "-json", "-peer", "org-b"))
	text.until("tasks       wait")
	lines.until("unresolved")
	f.waits(t, 2, "sha256:two", fedhttp.Terms{"residency": "eu" + hostile})
	after := text.until("sha256:two")
	if !strings.HasPrefix(after, "org-b  summarize  unresolved  epoch 2, sha256:two: not_accepted, for tasks with residency=eu\\x1b") ||
		strings.ContainsFunc(after, unprintable) {
		t.Errorf("%q", after)
	}
	if l := jsonLines(t, lines.until("sha256:two")); len(l) != 1 || l[0]["kind"] != "unresolved" || l[0]["epoch"] != 2.0 {
		t.Errorf("%v", l)
	}
	for _, f := range []*following{text, lines} {
		if r := f.stop(); r.code != 0 || r.err != "" || r.out != "" {
			t.Errorf("interrupted: %+v", r)
		}
	}
}
