package fednats

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

func escalation(id string) fedhttp.Escalation {
	return fedhttp.Escalation{
		Kind: fedhttp.EscalationAmbiguous, At: time.Now().UTC().Round(0),
		Decision: fedhttp.Decision{
			Peer: "org-b", Capability: "summarize", TaskID: id, Outcome: fedhttp.OutcomeAmbiguous, Reason: fedhttp.ReasonNoSignal,
			Delivery: fedhttp.DeliveryPossible, CorrelationID: "c-" + id, Attempts: 1, HeldFor: time.Second, Escalated: true,
			Evidence: []fedhttp.Evidence{{Source: fedhttp.SourceHeader, Layer: fedhttp.LayerPolicy}},
		},
	}
}

func unresolved(epoch uint64) fedhttp.Unresolved {
	return fedhttp.Unresolved{
		Peer: "org-b", Capability: "summarize", Epoch: epoch, Digest: "sha256:a", Reason: fedhttp.ReasonNotAccepted,
		Obligations: residency, At: time.Now().UTC().Round(0),
	}
}

func messages(t testing.TB, f *Fleet, stream string) uint64 {
	t.Helper()
	s, err := f.js.Stream(t.Context(), stream)
	must(t, err)
	return s.CachedInfo().State.Msgs
}

func TestEscalations(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	a, b, operator := open(t, s, Config{Name: "a"}), open(t, s, Config{Name: "b"}), open(t, s, Config{Parts: PartEscalations})
	one, two := escalation("1"), escalation("2")
	a.Escalator().Escalate(t.Context(), one)
	eventually(t, "published", func() bool { return a.Status().Escalations.Published == 1 })
	b.Escalator().Escalate(t.Context(), two)
	eventually(t, "published", func() bool { return b.Status().Escalations.Published == 1 })
	got, err := operator.Escalations(t.Context())
	must(t, err)
	if len(got) != 2 || got[0].From != "a" || !reflect.DeepEqual(got[0].Escalation, one) || !reflect.DeepEqual(got[1].Escalation, two) {
		t.Fatalf("%+v; want %+v and %+v", got, one, two)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var followed []string
	var done sync.WaitGroup
	done.Go(func() {
		_ = operator.FollowEscalations(ctx, func(e StoredEscalation) {
			mu.Lock()
			followed = append(followed, e.Decision.TaskID+e.AckedBy)
			mu.Unlock()
		})
	})
	must(t, operator.AckEscalation(t.Context(), got[0].ID, "alice"))
	must(t, operator.AckEscalation(t.Context(), got[0].ID, "bob"))
	rest, err := operator.Escalations(t.Context())
	must(t, err)
	if len(rest) != 1 || rest[0].ID != got[1].ID {
		t.Errorf("%+v are open, want the second", rest)
	}
	// The same once more, by a replica that never had the answer: it is known, even
	// where it was acknowledged.
	must(t, a.publish(t.Context(), &item{
		ID: "another id", Subject: a.names.escalationSubject() + got[0].ID, Data: []byte(`{}`), Once: true,
	}))
	three := escalation("3")
	b.Escalator().Escalate(t.Context(), three)
	eventually(t, "followed", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(followed) > 0 && followed[len(followed)-1] == "3"
	})
	mu.Lock()
	if l := fmt.Sprint(followed); l != "[1 2 1alice 3]" && l != "[2 1alice 3]" {
		t.Errorf("followed %s", l)
	}
	mu.Unlock()
	cancel()
	done.Wait()
	if err := operator.AckEscalation(t.Context(), "org-b.unknown", "alice"); err == nil {
		t.Error("one that is unknown is acknowledged")
	}
	if n := messages(t, a, a.names.escalations()); n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
}

func TestUnresolvedOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	var fleets []*Fleet
	for range 4 {
		fleets = append(fleets, open(t, s, Config{}))
	}
	for _, f := range fleets {
		for epoch := range uint64(3) {
			f.Coordinator().PolicyUnresolved(t.Context(), unresolved(epoch))
		}
	}
	for _, f := range fleets {
		eventually(t, "published", func() bool { return f.Status().Unresolved.Published == 3 })
	}
	stream, err := fleets[0].js.Stream(t.Context(), fleets[0].names.unresolved())
	must(t, err)
	state := stream.CachedInfo().State
	if state.Msgs != 3 || state.LastSeq != 3 {
		t.Errorf("%d messages, and %d ever; want 3", state.Msgs, state.LastSeq)
	}
	epochs := map[uint64]bool{}
	for seq := uint64(1); seq <= 3; seq++ {
		msg, err := stream.GetMsg(t.Context(), seq)
		must(t, err)
		var u fedhttp.Unresolved
		must(t, json.Unmarshal(msg.Data, &u))
		epochs[u.Epoch] = true
		want := unresolved(u.Epoch)
		if u.At = want.At; !reflect.DeepEqual(u, want) {
			t.Errorf("%+v, want %+v", u, want)
		}
	}
	if len(epochs) != 3 {
		t.Errorf("epochs %v", epochs)
	}
}

func TestDegrade(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	operator, replica := open(t, s, Config{}), open(t, s, Config{})
	must(t, operator.SetDegraded(t.Context(), "org-c", true))
	tr, err := fedhttp.NewTransport(fedhttp.Config{Peers: []fedhttp.Peer{
		{ID: "org-b", Origins: []string{"https://b.example"}}, {ID: "org-c", Origins: []string{"https://c.example"}},
	}})
	must(t, err)
	t.Cleanup(func() { tr.Close() })
	must(t, replica.Degrade(tr))
	degraded := func(b, c bool) func() bool {
		return func() bool { s := tr.Status(); return s[0].Degraded == b && s[1].Degraded == c }
	}
	eventually(t, "the flag from before", degraded(false, true))
	must(t, operator.SetDegraded(t.Context(), "org-b", true))
	must(t, operator.SetDegraded(t.Context(), "org-c", false))
	eventually(t, "the flags that came", degraded(true, false))

	// One that cannot be read changes nothing, and is reported.
	bucket, err := operator.bucket(t.Context(), operator.names.degraded())
	must(t, err)
	for key, value := range map[string]string{"org-b": `{"peer":"org-c","degraded":false}`, "org-c": `{`} {
		_, err = bucket.PutString(t.Context(), key, value)
		must(t, err)
	}
	eventually(t, "refused", func() bool { return replica.Status().Refused == 2 })
	if !degraded(true, false)() {
		t.Error("a value that was refused has changed a flag")
	}
	must(t, bucket.Delete(t.Context(), "org-b"))
	eventually(t, "a deleted flag is none", degraded(false, false))
}
