package realtest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// hostilePage asks another peer, and the gateway itself, in the name of whoever
// looks at it.
const hostilePage = `<html><body><script>
fetch("/org-1/stolen", {method: "POST", body: "a task"});
fetch("/-/status", {headers: {Accept: "application/json"}}).then(r => r.text()).then(t => fetch("/org-0/told", {method: "POST", body: t}));
</script><iframe src="/org-1/framed"></iframe></body></html>`

// TestBrowser: to a browser all peers of a gateway are one site, so it shows none of
// their pages.
func TestBrowser(t *testing.T) {
	t.Parallel()
	chromium := binary(t, "chromium")
	var asked, other atomic.Int64
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, hostilePage)
	}))
	defer page.Close()
	second := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { other.Add(1) }))
	defer second.Close()
	g := newGateway(t, newTrust(t), page.URL, second.URL)
	dump := func(url string) string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
			"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+t.TempDir(),
			"--virtual-time-budget=5000", "--dump-dom", url).Output()
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		return string(out)
	}
	if text := dump(g.url + "/org-0/page"); !strings.Contains(text, "the gateway is for programs") {
		t.Errorf("%s", text)
	}
	if asked.Load() != 0 || other.Load() != 0 {
		t.Errorf("the peer was asked %d times, the other one %d times", asked.Load(), other.Load())
	}
	if text := dump(g.url + "/-/status"); !strings.Contains(text, "org-0") { // which is for people
		t.Errorf("%s", text)
	}
}
