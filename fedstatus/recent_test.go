package fedstatus_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// This file has the tests of what a Transport remembers of its last escalations and denials.

// TestEscalationsReplaced: as many escalations of a peer as are remembered, between calls
// that succeed, do not hide that another peer has one.
func TestEscalationsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fedhttp.Config{}, "one", "many")
		fails := func(peer, id string) {
			if err := r.call(t.Context(), peer, fedhttp.Task{ID: id}, ambiguous(id)); err != nil {
				t.Fatal(err)
			}
		}
		fails("one", "c")
		at := time.Now().UTC()
		time.Sleep(time.Minute)
		for i := range 100 {
			fails("many", fmt.Sprint("c", i))
			if err := r.call(t.Context(), "many", fedhttp.Task{ID: "well"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		s := r.json(t)
		if s.Summary.NeedAttention != 2 || s.Summary.RecentEscalations != 101 {
			t.Errorf("%+v", s.Summary)
		}
		for _, p := range s.Peers {
			if p.ID == "one" && !p.LastEscalationAt.Equal(at) {
				t.Errorf("%+v, want its escalation at %v", p, at)
			}
		}
	})
}

// TestSecretsCut: a URL in what a caller named is known for one where the library has cut it
// before its host.
func TestSecretsCut(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, fedhttp.Config{}, "denies", "fails")
		name := strings.Repeat("x", 256-len(" https://"+secret)) + " https://" + secret + "@anchors.example/"
		for peer, step := range map[string]fedtest.Step{"denies": fedtest.Deny("NARROWED"), "fails": ambiguous("c-1")} {
			if err := r.call(t.Context(), peer, fedhttp.Task{ID: "task", Capability: name, Scope: name}, step); err != nil {
				t.Errorf("%s: %v", peer, err)
			}
		}
		s := r.json(t)
		if len(s.Denials) != 1 || len(s.Escalations) != 1 {
			t.Fatalf("there is not all that there should be: %+v", s)
		}
		for what, got := range map[string]string{
			"scope": s.Denials[0].Scope, "capability": s.Denials[0].Capability, "capability of an escalation": s.Escalations[0].Capability,
		} {
			if strings.Contains(got, secret) || !strings.HasSuffix(got, "...") {
				t.Errorf("%s: %q", what, got)
			}
		}
	})
}
