package fedhttp_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fedhttp/fedhttp"
)

// TestNoBook: without a book nothing can be agreed, so a route whose task needs an
// agreement is a fault, and such a task from a context is not held.
func TestNoBook(t *testing.T) {
	t.Parallel()
	peer := testPeer("b", stubURL)
	peer.DefaultTerms = fedhttp.Terms{"residency": "eu"}
	peer.Routes = []fedhttp.Route{
		{Pattern: "/granted", Task: fedhttp.Task{Capability: "c", Obligations: fedhttp.Terms{"residency": "eu"}}},
		{Pattern: "/plain", Task: fedhttp.Task{Capability: "c"}},
	}
	base := answering(response(200))
	tr, err := fedhttp.NewTransport(fedhttp.Config{Base: base, Peers: []fedhttp.Peer{peer}, Logger: quietLogger})
	if err != nil {
		t.Fatalf("nothing here needs an agreement: %v", err)
	}
	defer tr.Close()

	oblige := peer
	oblige.Routes = slices.Concat(peer.Routes, []fedhttp.Route{
		{Pattern: "/other", Task: fedhttp.Task{Capability: "c", Obligations: fedhttp.Terms{"residency": "us"}}},
	})
	refused, err := fedhttp.NewTransport(fedhttp.Config{Base: base, Peers: []fedhttp.Peer{oblige}})
	if refused != nil {
		t.Error("NewTransport takes a route whose task could never go out")
	}
	for _, err := range []error{err, tr.SetPeers([]fedhttp.Peer{oblige})} {
		var fault *fedhttp.ConfigError
		if !errors.As(err, &fault) || fault.PeerID != "b" || fault.Field != "Routes[2].Task.Obligations" || !strings.Contains(fault.Error(), "set it to a *PolicyBook") {
			t.Errorf("%v", err)
		}
	}
	withBook, err := fedhttp.NewTransport(fedhttp.Config{Base: base, Book: &fedhttp.PolicyBook{}, Peers: []fedhttp.Peer{oblige}})
	if err != nil {
		t.Fatal(err)
	}
	defer withBook.Close()

	d, err := get(t, tr, fedhttp.Task{Capability: "c", Obligations: fedhttp.Terms{"residency": "us"}})
	if !errors.Is(err, fedhttp.ErrPolicyUnresolved) || d.Reason != fedhttp.ReasonNotAdvertised || d.HeldFor != 0 || !strings.Contains(err.Error(), "Config.Book is nil") {
		t.Errorf("%v after %v", err, d.HeldFor)
	}
}

// TestPendingSaysWhatIsMissing: by the error alone one knows what to agree to.
func TestPendingSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	key := fedhttp.PolicyKey{Peer: "b", Capability: heldTask.Capability, Epoch: 4}
	for name, c := range map[string]struct {
		prepare func(*fedhttp.PolicyBook) error
		want    string
	}{
		"not_advertised": {func(*fedhttp.PolicyBook) error { return nil }, "the book knows of no policy that the peer offers it under"},
		"not_accepted": {func(b *fedhttp.PolicyBook) error {
			return b.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "sha256:9f"})
		}, `digest "sha256:9f" of epoch 4, which is neither accepted nor negotiated`},
		"terms_insufficient": {func(b *fedhttp.PolicyBook) error {
			b.Accept(fedhttp.Policy{PolicyKey: key, Digest: "d", Terms: fedhttp.Terms{}})
			return b.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "d"})
		}, `the terms agreed for digest "d" of epoch 4 do not grant all of its obligations`},
		"policies_stale": {func(b *fedhttp.PolicyBook) error { b.SetStale(true); return nil }, "until SetStale(false)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				book := &fedhttp.PolicyBook{}
				if err := c.prepare(book); err != nil {
					t.Fatal(err)
				}
				never := testPeer("b", stubURL)
				never.Hold.Max = -1
				for _, peer := range []fedhttp.Peer{testPeer("b", stubURL), never} {
					tr := newTestTransport(t, fedhttp.Config{Base: answering(response(200)), Book: book, Peers: []fedhttp.Peer{peer}})
					d, err := get(t, tr, *heldTask)
					if !errors.Is(err, fedhttp.ErrPolicyUnresolved) || !strings.Contains(err.Error(), c.want) {
						t.Errorf("after %v: %v; want %s", d.HeldFor, err, c.want)
					}
					if held := d.HeldFor > 0; held != (peer.Hold.Max == 0) || held && d.Reason != fedhttp.ReasonHoldTimeout {
						t.Errorf("%v after %v", d.Reason, d.HeldFor)
					}
				}
			})
		})
	}
}

// TestLateTurn: a task whose policy was agreed in time, and whose turn was not.
func TestLateTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &fedhttp.PolicyBook{}
		peer := testPeer("b", stubURL)
		peer.Hold.ReleaseRate = 0.001
		tr := newTestTransport(t, fedhttp.Config{Base: answering(response(200)), Book: book, Peers: []fedhttp.Peer{peer}})
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				task := *heldTask
				task.PolicyDeadline = time.Now().Add(time.Minute)
				_, err := get(t, tr, task)
				errs <- err
			}()
		}
		synctest.Wait()
		key := fedhttp.PolicyKey{Peer: "b", Capability: heldTask.Capability}
		book.Accept(fedhttp.Policy{PolicyKey: key, Digest: "d"})
		if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "d"}); err != nil {
			t.Fatal(err)
		}
		if err := <-errs; err != nil {
			t.Error(err)
		}
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "its turn by Hold.ReleaseRate") {
			t.Errorf("%v", err)
		}
	})
}

// TestUnknownPeerNamesTheOrigin: and what would make it a peer's, and no secret of the URL.
func TestUnknownPeerNamesTheOrigin(t *testing.T) {
	t.Parallel()
	oblige := fedhttp.ContextWithTask(t.Context(), *heldTask)
	for _, c := range []struct {
		ctx       context.Context
		unlisted  fedhttp.UnlistedPolicy
		url, host string
		want      string
	}{
		{t.Context(), fedhttp.RefuseUnlisted, "https://u:hunter2@Other.example:443/hunter2?hunter2", "", `"https://other.example" is none of a peer's Origins: add it there, or let such requests pass with Config.Unlisted`},
		{oblige, fedhttp.PassUnlisted, "https://other.example/", "", `"https://other.example" is none of a peer's Origins, and a task with obligations goes to no one else`},
		{t.Context(), fedhttp.RefuseUnlisted, "ftp://other.example/", "", `scheme "ftp" is not http or https`},
		{t.Context(), fedhttp.RefuseUnlisted, "https://other.example/", "b.example", `the Host "b.example" does not go with "https://other.example"`},
	} {
		tr := newTestTransport(t, fedhttp.Config{Base: answering(response(200)), Unlisted: c.unlisted, Peers: []fedhttp.Peer{testPeer("b", stubURL)}})
		req, err := http.NewRequestWithContext(c.ctx, http.MethodGet, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		_, err = tr.RoundTrip(req)
		if !errors.Is(err, fedhttp.ErrUnknownPeer) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v; want %s", c.url, err, c.want)
		}
	}
}

// TestRefusalSaysWhatToDo: by the error alone one knows what the request lacks, how long
// a denial lasts, and which digest a receipt has.
func TestRefusalSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		peer func(*fedhttp.Peer)
		task fedhttp.Task
		last *http.Response // nil: a denial comes first, and nothing is sent then
		err  error
		want string
	}{
		"required": {func(p *fedhttp.Peer) { p.RequireTask = true }, fedhttp.Task{}, nil, fedhttp.ErrTaskRequired, "the peer has RequireTask, and neither"},
		"obliged":  {func(*fedhttp.Peer) {}, fedhttp.Task{Obligations: heldTask.Obligations}, nil, fedhttp.ErrTaskRequired, "its obligations need one"},
		"denied": {func(*fedhttp.Peer) {}, fedhttp.Task{Capability: "c", Scope: "s\n1"}, nil, fedhttp.ErrScopeDenied,
			`the denial of scope "s\n1" holds until 2000-01-01T00:15:00Z, or until the peer advertises another policy`},
		"denied without a scope": {func(*fedhttp.Peer) {}, fedhttp.Task{Capability: "c"}, nil, fedhttp.ErrScopeDenied, "the denial holds until 2000-01-01T00:15:00Z"},
		"budget": {func(p *fedhttp.Peer) { p.Denial = fedhttp.DenialPolicy{Budget: 1, HoldOff: -1} }, fedhttp.Task{Capability: "c"}, nil, fedhttp.ErrScopeDenied,
			"the peer has denied 1 times within 1h0m0s (Denial.Budget, Window)"},
		"receipt differs": {func(*fedhttp.Peer) {}, *heldTask, response(200, "X-Federation-Policy-Digest", "d", "X-Federation-Policy-Digest", "other\n"),
			fedhttp.ErrPolicyMismatch, `its receipt names digest "other\n"; the task was sent under "d" of epoch 4`},
		"receipt missing": {func(p *fedhttp.Peer) { p.Receipt = fedhttp.RequireReceipt }, *heldTask, response(200),
			fedhttp.ErrPolicyMismatch, "it has no X-Federation-Policy-Digest, and the peer's Receipt requires one"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				book, key := &fedhttp.PolicyBook{}, fedhttp.PolicyKey{Peer: "b", Capability: heldTask.Capability, Epoch: 4}
				book.Accept(fedhttp.Policy{PolicyKey: key, Digest: "d"})
				if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "d"}); err != nil {
					t.Fatal(err)
				}
				peer := testPeer("b", stubURL)
				c.peer(&peer)
				answer := c.last
				if answer == nil {
					answer = denied()
				}
				tr := newTestTransport(t, fedhttp.Config{Base: answering(answer), Book: book, Peers: []fedhttp.Peer{peer}})
				_, err := get(t, tr, c.task)
				if c.last == nil {
					_, err = get(t, tr, c.task)
				}
				if !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v; want %s", err, c.want)
				}
			})
		})
	}
}
