package realtest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
)

// The same situations, through `fedhttp proxy`, for clients that are not Go.

var built struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// fedhttpBinary builds the command, once.
func fedhttpBinary(t *testing.T) string {
	t.Helper()
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "fedhttp"); built.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-C", "../cmd/fedhttp", "-o", filepath.Join(built.dir, "fedhttp"), ".").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "fedhttp")
}

// gateway is a running `fedhttp proxy` before some origins.
type gateway struct {
	url   string
	peers map[string]string // by origin
}

// newGateway starts a gateway whose peers have every dialect pinned, and ever
// newer anchors. It has the certificate that the servers trust.
func newGateway(t *testing.T, trust *trust, origins ...string) *gateway {
	t.Helper()
	path := fedhttpBinary(t)
	var version atomic.Int64
	anchors := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"version": strconv.FormatInt(version.Add(1), 10)})
	}))
	t.Cleanup(anchors.Close)

	g := &gateway{peers: map[string]string{}}
	peers, sources := "peers:\n", "anchors:\n"
	for i, origin := range origins {
		id := fmt.Sprintf("org-%d", i)
		g.peers[origin] = id
		peers += fmt.Sprintf("  - id: %s\n    origins: [%q]\n    breaker: {failures: -1}\n    denial: {hold_off: -1s}\n"+
			"    retry: {min_backoff: 1ms, min_refresh_interval: 1ms}\n    signals:\n      dialects:\n", id, origin)
		for _, d := range everyDialect() {
			peers += fmt.Sprintf("        - {kind: %v, hops: [{name: front}]}\n", d.Kind)
		}
		sources += fmt.Sprintf("  - {peer: %s, url: %q}\n", id, anchors.URL)
	}
	trust.write(t, "peers.yaml", []byte(peers))
	trust.write(t, "anchors.yaml", []byte(sources))
	addrs := start(t, path, 1, func(_ string, addrs []string) []string {
		return []string{
			"proxy", "--peers", trust.file("peers.yaml"), "--anchors", trust.file("anchors.yaml"), "--listen", addrs[0],
			"--cacert", trust.file("ca.pem"), "--cert", trust.file("client.pem"),
		}
	}, func(string, []string) string { return "" })
	g.url = "http://" + addrs[0]
	return g
}

// serves reports whether the situation can be had through the gateway: it sends
// its own certificate, and the Host of the peer's origin.
func (g *gateway) serves(s *site, at situation) bool {
	return g != nil && at.host == "" && (at.client == nil || at.client == &s.trust.good) && g.peers[s.origin(at)] != "" &&
		(at.client != nil || !strings.HasPrefix(s.origin(at), "https:"))
}

// urllib is the client of Python's standard library.
const urllib = `
import sys, urllib.error, urllib.request
body = sys.argv[3].encode() if len(sys.argv) > 3 else None
request = urllib.request.Request(sys.argv[1], data=body, headers={"X-Task": sys.argv[2]})
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
try:
    answer = opener.open(request, timeout=60)
except urllib.error.HTTPError as e:
    answer = e
print("HTTP/1.1", answer.status)
print("Fedhttp-Decision:", answer.headers["Fedhttp-Decision"])
`

var (
	statusLine    = regexp.MustCompile(`(?m)^HTTP/1\.1 (\d+)`)
	decisionField = regexp.MustCompile(`(?mi)^Fedhttp-Decision: outcome=(\w+)(?:, reason=(\w+))?.*, resends=(\d+)`)
)

// call sends the request with curl or Python: a POST, or where it is to be sent
// again, a GET, since the gateway keeps no bodies.
func (g *gateway) call(t *testing.T, s *site, at situation, client, task string) result {
	t.Helper()
	url := g.url + "/" + g.peers[s.origin(at)] + s.path(at)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := []string{"-c", urllib, url, task}
	body := []string{"a task"}
	if client == "curl" {
		args = []string{"-sS", "--noproxy", "*", "-o", os.DevNull, "-D", "-", "-H", headerTask + ": " + task, url}
		body = []string{"--data-binary", "a task"}
	}
	if at.sends <= 1 {
		args = append(args, body...)
	}
	cmd := exec.CommandContext(ctx, binary(t, client), args...)
	out, err := cmd.CombinedOutput() // curl fails where a body breaks off, which one does
	status, decision := statusLine.FindSubmatch(out), decisionField.FindSubmatch(out)
	if status == nil || decision == nil {
		t.Errorf("%s: %v\n%s", client, err, out)
		return result{}
	}
	r := result{what: string(decision[1]), decision: fedhttp.Decision{}}
	if len(decision[2]) > 0 {
		r.what += "/" + string(decision[2])
	}
	r.status, _ = strconv.Atoi(string(status[1]))
	resends, _ := strconv.Atoi(string(decision[3]))
	r.decision.Attempts = resends + 1
	return r
}
