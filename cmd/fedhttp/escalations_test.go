package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp"
)

func TestEscalations(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t)
	f.run(t, "operator", "escalations").want(t, 0, "There is none.")
	if r := f.run(t, "operator", "escalations", "-json"); r.code != 0 || r.out != "" {
		t.Errorf("%+v", r)
	}
	f.escalate(t, "t1", nil)
	f.escalate(t, "t2", func(d *fedhttp.Decision) {
		d.Peer, d.PolicyReason, d.PolicyDigest, d.CorrelationID = "org-c", "because"+hostile, "sha256:a", hostile+strings.Repeat("x", 1000)
		d.Evidence = nil
	})
	r := f.run(t, "operator", "escalations")
	r.want(t, 0, "capability      summarize\n", "task            t1\n", "what            ambiguous, no_signal\n",
		"delivery        possible\n", "correlation id  c-t1\n", "evidence        header=policy\n", "by              replica-1\n", "s ago\n",
		"peer says       because\\x1b[2J\\n\\u202e\\u009b31m\\U0001f600</script>\\x7f\n", "under           sha256:a\n")
	if strings.ContainsFunc(r.out, unprintable) || strings.Contains(r.out, strings.Repeat("x", maxShown+1)) {
		t.Errorf("not printable, or not bounded: %q", r.out)
	}
	lines := jsonLines(t, f.run(t, "operator", "escalations", "-json").out)
	if len(lines) != 2 || lines[0]["task_id"] != "t1" || lines[0]["from"] != "replica-1" || lines[0]["kind"] != "ambiguous" ||
		lines[1]["policy_reason"] != "because"+hostile || lines[1]["peer"] != "org-c" || lines[0]["acked_by"] != nil {
		t.Fatalf("%v", lines)
	}
	if none, list := lines[1]["evidence"].([]any); !list || len(none) > 0 {
		t.Errorf("no evidence is %v; want an empty list", lines[1]["evidence"])
	}
	if one := jsonLines(t, f.run(t, "operator", "escalations", "-json", "-peer", "org-c").out); len(one) != 1 || one[0]["id"] != lines[1]["id"] {
		t.Errorf("of org-c: %v", one)
	}

	first, second := lines[0]["id"].(string), lines[1]["id"].(string)
	f.run(t, "operator", "escalations", "ack", first).want(t, exitUsage, "--by")
	f.run(t, "operator", "escalations", "ack", "-by", "alice").want(t, exitUsage)
	// One that is unknown does not keep the others back.
	r = f.run(t, "operator", "escalations", "ack", "org-b.unknown", first, "a*", "-by", "alice")
	r.want(t, exitFailed, first+": acknowledged by alice\n", `no escalation "org-b.unknown"`, `no escalation "a*"`)
	f.run(t, "operator", "escalations", "ack", first, "-by", "bob").want(t, 0, first+": was acknowledged before, by alice, ")
	if open := jsonLines(t, f.run(t, "operator", "escalations", "-json").out); len(open) != 1 || open[0]["id"] != second {
		t.Errorf("open are %v", open)
	}
	all := jsonLines(t, f.run(t, "operator", "escalations", "-json", "-all").out)
	if len(all) != 2 || all[1]["id"] != first || all[1]["acked_by"] != "alice" || all[1]["acked_at"] == nil {
		t.Errorf("all are %v", all)
	}
	f.run(t, "operator", "escalations", "-all").want(t, 0, "acknowledged    by alice, ")
	f.run(t, "negotiator", "escalations", "ack", second, "-by", "eve").want(t, exitFailed, `the role "operator"`)
}

func TestEscalationsFollow(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t)
	f.escalate(t, "t0", nil)
	f.escalate(t, "t1", nil)
	ids := jsonLines(t, f.run(t, "operator", "escalations", "-json").out)
	gone, open := ids[0]["id"].(string), ids[1]["id"].(string)
	f.run(t, "operator", "escalations", "ack", gone, "-by", "alice").want(t, 0)

	text := follow(t, f.args("operator", "escalations", "-follow"))
	lines := follow(t, f.args("operator", "escalations", "-follow", "-json", "-peer", "org-b"))
	before := text.until("evidence") + lines.until("t1")
	f.escalate(t, "other", func(d *fedhttp.Decision) { d.Peer = "org-c" })
	f.escalate(t, "t2", nil)
	text.until("c-t2")
	f.run(t, "operator", "escalations", "ack", open, "-by", "bob").want(t, 0)
	text.until("acknowledged    by bob")
	after := lines.until(`"acked_by":"bob"`)
	if strings.Contains(before+after, "t0") || strings.Contains(after, "org-c") || !strings.Contains(after, "c-t2") {
		t.Errorf("before: %s\nafter: %s", before, after)
	}
	jsonLines(t, after)
	for _, f := range []*following{text, lines} {
		if r := f.stop(); r.code != 0 || r.err != "" {
			t.Errorf("interrupted: %+v", r)
		}
	}
}

// TestFollowRestart: who follows goes on when the server is back, and is told of each
// once.
func TestFollowRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startServerAt(t, "127.0.0.1:0", dir, nil)
	f := &testFleet{url: s.URL()}
	f.setup = f.as(t, "setup", 0)
	f.replica, f.gossip = f.setup, f.setup
	f.escalate(t, "t1", nil)
	f.advertise(t, 1, "sha256:one")
	f.waits(t, 1, "sha256:one", nil)
	escalations := follow(t, []string{"escalations", "-follow", "-json", "-nats", f.url})
	policies := follow(t, []string{"policies", "-follow", "-json", "-nats", f.url})
	escalations.until("c-t1")
	policies.until("advertised")
	s.Close()
	startServerAt(t, strings.TrimPrefix(f.url, "nats://"), dir, nil)
	f.escalate(t, "t2", nil)
	f.waits(t, 2, "sha256:two", nil)
	for _, f := range []struct {
		*following
		old, new string
	}{{escalations, "c-t1", "c-t2"}, {policies, "sha256:one", "sha256:two"}} {
		if told := f.until(f.new); strings.Contains(told, f.old) {
			t.Errorf("told again: %s", told)
		}
		if r := f.stop(); r.code != 0 || !strings.Contains(r.err, "RECONNECTING") {
			t.Errorf("%+v", r)
		}
	}
}

// noRoom is a disk that is full.
type noRoom struct{}

func (noRoom) Write([]byte) (int, error) { return 0, errors.New("no room") }

// TestFleetNoRoom: what could not be printed is no success.
func TestFleetNoRoom(t *testing.T) {
	t.Parallel()
	f := newTestFleet(t)
	f.escalate(t, "t1", nil)
	f.advertise(t, 1, "sha256:one")
	f.waits(t, 1, "sha256:one", fedhttp.Terms{"residency": "eu"})
	for _, more := range [][]string{nil, {"-json"}, {"-follow"}, {"-follow", "-json"}} {
		for command, user := range map[string]string{"escalations": "operator", "policies": "negotiator"} {
			var errs strings.Builder
			args := f.args(user, append([]string{command}, more...)...)
			if code := run(t.Context(), args, streams{strings.NewReader(""), noRoom{}, &errs}); code != exitFailed || errs.String() != "fedhttp: no room\n" {
				t.Errorf("%s %v: exit code %d, %q", command, more, code, errs.String())
			}
		}
	}
}
