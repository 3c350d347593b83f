package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestCallWaits: a call that waits for its policy says so, and goes out once the
// policy is in the file.
func TestCallWaits(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	terms := map[string]string{"residency": "eu"}
	peer.Agree("", fedtest.Advertisement{Capability: "summarize", Epoch: 1, Digest: fedtest.Digest(terms), Terms: terms})
	policies := write(t, "policies.yaml", "policies: []\n")
	args := []string{"get", "-p", peersOf(t, peer), "-policies", policies, "-capability", "summarize", "-obligation", "residency=eu", peer.URL + "/summarize"}
	start := func(ctx context.Context) (logs *lockedBuffer, code chan int) {
		logs, code = &lockedBuffer{}, make(chan int, 1)
		go func() { code <- run(ctx, args, streams{strings.NewReader(""), logs, logs}) }()
		eventually(t, func() bool {
			return strings.Contains(logs.String(), "no policy is in the file") && strings.Contains(logs.String(), `waiting for the policy of org-b for "summarize" in `)
		})
		return logs, code
	}
	ctx, interrupt := context.WithCancel(t.Context())
	logs, code := start(ctx)
	interrupt()
	if c := <-code; c != 13 {
		t.Errorf("interrupted: exit code %d: %s", c, logs)
	}
	logs, code = start(t.Context())
	agreed := fmt.Sprintf("policies:\n  - {peer: org-b, capability: summarize, epoch: 1, digest: %q}\n  - {peer: org-z, capability: c, digest: d}\n", fedtest.Digest(terms))
	if err := os.WriteFile(policies, []byte(agreed), 0o600); err != nil {
		t.Fatal(err)
	}
	if c := <-code; c != 0 || strings.Count(logs.String(), "waiting") != 1 || !strings.Contains(logs.String(), "not configured\" peer=org-z") {
		t.Errorf("exit code %d: %s", c, logs)
	}
}

// TestCallWithoutPolicies: what can never come is not waited for.
func TestCallWithoutPolicies(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	route := "routes: [{pattern: /summarize, task: {capability: summarize, obligations: {residency: eu}}}]"
	r := runWith(t, "", "get", "-p", peersOf(t, peer, route), peer.URL+"/summarize")
	r.want(t, 13, "(not_advertised)", "without --policies there is none")
	if strings.Contains(r.err, "waiting") {
		t.Errorf("%s", r.err)
	}
}

// TestCallOutput: the decision stands, whatever becomes of the body.
func TestCallOutput(t *testing.T) {
	t.Parallel()
	const denied = "HTTP/1.1 403 x\r\nX-Federation-Policy-Evaluated: true\r\nContent-Length: 100\r\n\r\nhalf"
	peer := newPeer(t, fedtest.Config{})
	peers := peersOf(t, peer, "denial: {hold_off: -1s}")
	peer.Otherwise(fedtest.Wire(denied))
	r := runWith(t, "", "get", "-v", "-p", peers, peer.URL)
	r.want(t, 10, "half", "(denied); and the response broke off: unexpected EOF\n", "* outcome   rejected")
	peer.Otherwise(fedtest.Wire(strings.Replace(denied, "403", "404", 1)))
	runWith(t, "", "get", "-p", peers, peer.URL).want(t, exitFailed, "half", "fedhttp: the response broke off: unexpected EOF\n")

	// Nothing is sent where the response could not be kept.
	sends := len(peer.Routing.Log())
	folder := t.TempDir()
	runWith(t, "", "post", "-p", peers, "-o", filepath.Join(folder, "none", "x"), peer.URL).want(t, exitFailed, "no such file")
	if n := len(peer.Routing.Log()) - sends; n != 0 {
		t.Errorf("%d requests were sent", n)
	}

	// A file keeps what it has until there is a response, and is not made without one.
	file := write(t, "answer", "what was there before, and is longer")
	none := filepath.Join(folder, "new")
	peer.Script(fedtest.CloseConnection(), fedtest.CloseConnection(), fedtest.Raw(200, nil, "new"))
	runWith(t, "", "get", "-p", peers, "-o", file, peer.URL).want(t, 12)
	runWith(t, "", "get", "-p", peers, "-o", none, peer.URL).want(t, 12)
	if content, err := os.ReadFile(file); string(content) != "what was there before, and is longer" {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := os.Stat(none); !os.IsNotExist(err) {
		t.Errorf("a file without a response: %v", err)
	}
	runWith(t, "", "get", "-p", peers, "-o", file, peer.URL).want(t, 0)
	if content, err := os.ReadFile(file); string(content) != "new" {
		t.Errorf("%q, %v", content, err)
	}
	runWith(t, "", "get", "-p", peers, "-o", os.DevNull, peer.URL).want(t, exitFailed, "EOF") // a device has no length
	if _, err := os.Stat(os.DevNull); err != nil {
		t.Error(err)
	}
}
