package main

import (
	"os"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestRequireAnchor: a peer that nothing is sent to without an anchor needs a flag, and
// the error has both.
func TestRequireAnchor(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	peers := peersOf(t, peer, "require_anchor: true")
	want := peers + `: peers[0].require_anchor: nothing can be sent to "org-b" without an anchor; give --anchors FILE`
	runWith(t, "", "get", "-peers", peers, peer.URL).want(t, exitFailed, want)
	runWith(t, "", "proxy", "-peers", peers, "-listen", "127.0.0.1:0").want(t, exitFailed, want)

	reloaded := peersOf(t, peer)
	p := startProxy(t, "-peers", reloaded)
	text, err := os.ReadFile(peers)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(reloaded, text, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return strings.Contains(p.logs.String(), "require_anchor needs --anchors") })
	if a := p.do(t, "GET", "/org-b/", nil); a.StatusCode != 200 {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}
