package main

import (
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
	book := &fedhttp.PolicyBook{}
	var before []policy
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
		{"other terms", []policy{with(func(p *policy) { p.Terms = map[string]string{} })}, "", false},
		{"another digest", []policy{with(func(p *policy) { p.Digest = "d4b" })}, "d4b", false},
		{"gone", nil, "", false},
		{"two epochs", []policy{with(func(p *policy) { p.Epoch, p.Digest = 5, "d5" }), agreed}, "d5", false},
		{"an epoch back", []policy{agreed}, "", true},
	} {
		err := apply(book, before, step.file)
		before = step.file
		auth, denied := book.Authorize("org-b", task, nil, now)
		digest := auth.Digest
		if denied != nil {
			digest = ""
		}
		if digest != step.digest || (err != nil) != step.fault {
			t.Errorf("%s: goes under %q (%v), want %q; %v", step.what, digest, denied, step.digest, err)
		}
	}
}
