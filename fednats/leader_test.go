package fednats

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/fedhttp/fedhttp"
)

// TestLeaderIsAsked: a follower may not have heard yet of what was advertised a moment
// ago. To a writer that asks it, what was advertised before that is on record already.
func TestLeaderIsAsked(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f, watching := open(t, s, Config{}), connect(t, s)
	bucket := bucketStream(f.names.policies())
	asked := func(subject string) *nats.Subscription {
		sub, err := watching.SubscribeSync(subject)
		must(t, err)
		return sub
	}
	leader, anybody := asked("$JS.API.STREAM.MSG.GET."+bucket), asked("$JS.API.DIRECT.GET."+bucket+".>")
	must(t, watching.Flush())
	for _, digest := range []string{"sha256:a", "sha256:b", "sha256:a", "sha256:a"} {
		must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(1), Digest: digest}))
	}
	must(t, f.conn.Flush())
	must(t, watching.Flush())
	for sub, want := range map[*nats.Subscription]int{leader: 4, anybody: 0} {
		if n, _, err := sub.Pending(); err != nil || n != want {
			t.Errorf("%s: %d questions, %v; want %d", sub.Subject, n, err, want)
		}
	}
	last, err := f.records.GetLastMsg(bucket, bucketSubject(f.names.policies())+"adv.org-b.summarize")
	if err != nil || last.Sequence != 3 {
		t.Errorf("%+v, %v; want three revisions, since a repetition is none", last, err)
	}
}
