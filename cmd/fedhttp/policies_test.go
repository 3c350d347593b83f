package main

import (
	"strconv"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// TestApply goes from one state of the file to the next.
func TestApply(t *testing.T) {
	t.Parallel()
	now := time.Now()
	task := fedhttp.Task{Capability: "c", Obligations: fedhttp.Terms{"residency": "eu"}}
	agreed := policy{Peer: "org-b", Capability: "c", Epoch: 4, Digest: "d4"}
	with := func(change func(*policy)) policy {
		p := agreed
		change(&p)
		return p
	}
	w := &policyWatch{book: &fedhttp.PolicyBook{}}
	for _, step := range []struct {
		what   string
		file   []policy
		digest string // that the task goes under; "": it does not
		fault  bool
	}{
		{"nothing", nil, "", false},
		{"agreed", []policy{agreed}, "d4", false},
		{"the same", []policy{agreed}, "d4", false},
		{"to end, and ended", []policy{with(func(p *policy) { p.ExpiresAt = now.Add(-time.Second) })}, "", false},
		{"to end", []policy{with(func(p *policy) { p.ExpiresAt = now.Add(time.Hour) })}, "d4", false},
		{"ended sooner", []policy{with(func(p *policy) { p.ExpiresAt = now.Add(-time.Minute) })}, "", false},
		{"to end later", []policy{with(func(p *policy) { p.ExpiresAt = now.Add(time.Hour) })}, "d4", false},
		{"to end, with other terms", []policy{with(func(p *policy) { p.ExpiresAt, p.Terms = now.Add(time.Hour), map[string]string{} })}, "", false},
		{"agreed for good", []policy{agreed}, "d4", false},
		{"other terms", []policy{with(func(p *policy) { p.Terms = map[string]string{} })}, "", false},
		{"another digest", []policy{with(func(p *policy) { p.Digest = "d4b" })}, "d4b", false},
		{"gone", nil, "", false},
		{"two epochs", []policy{with(func(p *policy) { p.Epoch, p.Digest = 5, "d5" }), agreed}, "d5", false},
		{"an epoch back, which changes nothing", []policy{agreed}, "d5", true},
		{"one that is in order, one that is not", []policy{{Peer: "org-c", Capability: "c", Digest: "d"}, agreed}, "d5", true},
		{"a digest that no header can have", []policy{with(func(p *policy) { p.Epoch, p.Digest = 6, "\n" })}, "d5", true},
		{"gone once more", nil, "", false},
		{"back, an epoch back", []policy{agreed}, "", true},
		{"back", []policy{with(func(p *policy) { p.Epoch, p.Digest = 5, "d5" })}, "d5", false},
	} {
		err := w.take(step.file)
		auth, denied := w.book.Authorize("org-b", task, nil, now)
		digest := auth.Digest
		if denied != nil {
			digest = ""
		}
		if digest != step.digest || (err != nil) != step.fault {
			t.Errorf("%s: goes under %q (%v), want %q; %v", step.what, digest, denied, step.digest, err)
		}
	}
	if _, denied := w.book.Authorize("org-c", task, nil, now); denied == nil {
		t.Error("an entry of a file with faults is taken")
	}
}

// TestApplyRenews: a negotiation that is to last longer, and terms that are added, take the
// place of the ones before without a moment in which there are none.
func TestApplyRenews(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(time.Hour)
	for name, renewed := range map[string]func(i int) policy{
		"negotiation": func(i int) policy {
			return policy{Peer: "org-b", Capability: "c", Epoch: 1, Digest: "d", ExpiresAt: end.Add(time.Duration(i) * time.Second)}
		},
		"policy": func(i int) policy {
			return policy{Peer: "org-b", Capability: "c", Epoch: 1, Digest: "d", Terms: map[string]string{"residency": "eu", "round": strconv.Itoa(i)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &policyWatch{book: &fedhttp.PolicyBook{}}
			if err := w.take([]policy{renewed(0)}); err != nil {
				t.Fatal(err)
			}
			task := fedhttp.Task{Capability: "c", Obligations: fedhttp.Terms{"residency": "eu"}}
			stop, refused := make(chan struct{}), make(chan error, 1)
			go func() {
				for {
					_, err := w.book.Authorize("org-b", task, nil, time.Now())
					select {
					case <-stop:
						refused <- nil
						return
					default:
					}
					if err != nil {
						refused <- err
						return
					}
				}
			}()
			for i := range 3000 {
				if err := w.take([]policy{renewed(i)}); err != nil {
					t.Error(err)
				}
			}
			close(stop)
			if err := <-refused; err != nil {
				t.Errorf("while it is renewed: %v", err)
			}
		})
	}
}
