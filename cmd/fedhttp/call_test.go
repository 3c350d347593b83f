package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

// peersOf is a file of peers with the one as org-b. The settings are those of a
// peer, one a line.
func peersOf(t *testing.T, peer *fedtest.Peer, settings ...string) string {
	t.Helper()
	text := "peers:\n  - id: org-b\n    origins: [" + peer.URL + "]\n"
	for _, line := range settings {
		text += "    " + line + "\n"
	}
	return write(t, "peers.yaml", text)
}

func newPeer(t *testing.T, cfg fedtest.Config) *fedtest.Peer {
	t.Helper()
	peer := fedtest.NewPeer(cfg)
	t.Cleanup(peer.Close)
	return peer
}

// echo answers with what it was sent.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Set("X-Answer", "42")
	fmt.Fprintf(w, "%s %s %s\n", r.Method, r.URL.RequestURI(), body)
	for _, name := range []string{"User-Agent", "Accept", "Content-Type", "X-One", "X-Empty", "Authorization"} {
		if values, ok := r.Header[name]; ok {
			fmt.Fprintf(w, "%s: %s\n", name, strings.Join(values, "|"))
		}
	}
	fmt.Fprintf(w, "Host: %s\n", r.Host)
}

func TestGet(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{Handler: http.HandlerFunc(echo)})
	peers := peersOf(t, peer)

	r := runWith(t, "", "get", "-peers", peers, "-H", "X-One: 1", "-H", "x-one: 2", "-H", "X-Empty;", "-H", "Accept:", "-H", "Host: b.example",
		strings.Replace(peer.URL, "://", "://user:password@", 1)+"/v1/tasks?a=b#c")
	r.want(t, 0, "GET /v1/tasks?a=b \n", "User-Agent: fedhttp/", "X-One: 1|2\n", "X-Empty: \n", "Authorization: Basic dXNlcjpwYXNzd29yZA==\n", "Host: b.example\n")
	if strings.Contains(r.out, "Accept") || r.err != "" {
		t.Errorf("stdout %s\nstderr %s", r.out, r.err)
	}

	r = runWith(t, "", "get", "-i", "-p", peers, peer.URL+"/x")
	r.want(t, 0, "HTTP/1.1 200 OK\r\n", "X-Answer: 42\r\n", "\r\n\r\nGET /x")
	if explained := explained(t, r.out, onePeer); explained.Status != 200 { // what -i prints, explain reads
		t.Errorf("%+v", explained)
	}

	file := filepath.Join(t.TempDir(), "answer")
	r = runWith(t, "", "get", "-p", peers, "-o", file, peer.URL+"/x")
	if content, err := os.ReadFile(file); r.code != 0 || r.out != "" || err != nil || !strings.HasPrefix(string(content), "GET /x") {
		t.Errorf("%+v, %q, %v", r, content, err)
	}
	runWith(t, "", "get", "-p", peers, "-o", t.TempDir(), peer.URL+"/x").want(t, exitFailed)
}

func TestPost(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{Handler: http.HandlerFunc(echo)})
	peers := peersOf(t, peer)
	file := write(t, "data", "a\r\nb\xff\x00")
	for want, args := range map[string][]string{
		"POST / x=1&y=2\n":             {"-d", "x=1", "-d", "y=2"},
		"POST / ab\xff\n":              {"-d", "@" + file},
		"POST / x&a\r\nb\xff\x00\n":    {"-d", "x", "--data-binary", "@" + file},
		"POST / b&a\n":                 {"--data-binary", "b", "-d", "a"},
		"POST / from stdin\n":          {"--data", "@-"},
		"POST / \nUser-Agent: fedhttp": {},
	} {
		r := runWith(t, "from stdin", append([]string{"post", "-p", peers, peer.URL}, args...)...)
		r.want(t, 0, want)
		if form := strings.Contains(r.out, "Content-Type: application/x-www-form-urlencoded\n"); form != (len(args) > 0) {
			t.Errorf("%q: %s", args, r.out)
		}
	}
	r := runWith(t, "", "post", "-p", peers, "-d", "{}", "-H", "Content-Type: application/json", peer.URL)
	r.want(t, 0, "Content-Type: application/json\n")
	runWith(t, "", "post", "-p", peers, "-d", "@"+file+".none", peer.URL).want(t, exitFailed)
}

func TestCallOutcomes(t *testing.T) {
	t.Parallel()
	task := []string{"--capability", "summarize", "--obligation", "residency=eu"}
	for name, c := range map[string]struct {
		step     fedtest.Step
		settings []string
		args     []string
		code     int
		err      string
		flag     string // which the error names
		sends    int
	}{
		"delivered":         {step: fedtest.Raw(404, nil, "none"), code: 0, sends: 1},
		"rejected":          {step: fedtest.Deny("SCOPE_NARROWED"), code: 10, err: "SCOPE_NARROWED", sends: 1},
		"routing_failed":    {step: fedtest.RouteDrop(503), code: 11, err: "(no_anchor_source)", flag: "; without --anchors nothing is ever sent again\n", sends: 1},
		"ambiguous":         {step: fedtest.Raw(502, nil, ""), code: 12, err: "the author cannot be told", sends: 1},
		"policy_unresolved": {settings: []string{"hold: {max: -1}"}, args: task, code: 13, err: "(not_advertised)"},
		"peer_unavailable": {settings: []string{"require_anchor: true"}, args: []string{"--anchors", write(t, "a.yaml", "")},
			code: 15, err: "(anchor_required)"},
		"task_required":   {settings: []string{"require_task: true"}, code: 17, err: "(no_capability)"},
		"policy_mismatch": {step: fedtest.Raw(200, nil, "withheld"), settings: []string{"receipt: require", "default_terms: {residency: eu}"}, args: task, code: 18, err: "(receipt_missing)", sends: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer := newPeer(t, fedtest.Config{})
			if c.step != nil {
				peer.Script(c.step)
			}
			args := append([]string{"get", "-v", "-p", peersOf(t, peer, c.settings...), peer.URL + "/summarize"}, c.args...)
			r := runWith(t, "", args...)
			r.want(t, c.code, c.err, c.flag, "* outcome ", " "+name+"\n* ")
			if sends := len(peer.Routing.Log()); sends != c.sends {
				t.Errorf("%d sends, want %d", sends, c.sends)
			}
			if strings.Contains(r.out, "withheld") {
				t.Errorf("stdout: %s", r.out)
			}
		})
	}
	peer := newPeer(t, fedtest.Config{})
	peers := peersOf(t, peer)
	runWith(t, "", "get", "-p", peers, "https://elsewhere.example/").want(t, 16, `no configured peer; not sent (unlisted_origin): "https://elsewhere.example" is an origin of no peer in `+peers+": add it there\n")
	for _, args := range [][]string{{"elsewhere"}, {"ftp://x/"}, {"http://[x/"}, {peer.URL, "-H", "nonsense"}, {peer.URL, "-H", "X Y: a"}, {peer.URL, "-H", "X: a\r\nY: b"}, {peer.URL, "-H", ": a"}, {peer.URL, "-H", "X\u00e9;"}, {peer.URL, "--max-time", "-1"}, {peer.URL, "--obligation", "x"}} {
		runWith(t, "", append([]string{"get", "-p", peers}, args...)...).want(t, exitUsage)
	}
	runWith(t, "", "get").want(t, exitUsage, "which URL? Usage: fedhttp get URL [flags]\n")
	runWith(t, "", "get", "-p", peers, "").want(t, exitUsage, "which URL?")
	runWith(t, "", "get", "-p", peers, peer.URL, "more").want(t, exitUsage, `want one URL only, and not "more" too`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out strings.Builder
	if code := run(ctx, []string{"get", "-p", peers, peer.URL}, streams{strings.NewReader(""), &out, &out}); code != 19 {
		t.Errorf("canceled: exit code %d, %s", code, &out)
	}
}

func TestMaxTime(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	peer.Script(fedtest.Hang())
	runWith(t, "", "get", "-p", peersOf(t, peer), "-max-time", "0.05", peer.URL).want(t, 12, "deadline exceeded")
}

// TestResend goes through the whole of a repair: the anchor is fetched, and the
// trace shows the resend.
func TestResend(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	anchors := write(t, "anchors.yaml", "anchors:\n  - {peer: org-b, url: "+peer.URL+fedtest.AnchorPath+"}\n")
	peer.Script(fedtest.RouteDrop(503))
	r := runWith(t, "", "post", "-v", "-d", "x", "-p", peersOf(t, peer, "retry: {min_backoff: 1ms, min_refresh_interval: 1ms}"), "-anchors", anchors, peer.URL+"/v1")
	r.want(t, 0, "* attempts        2\n", "* refreshes       2\n", "federation request", "├─ federation.anchor.refresh", "status_code=503  evidence=[\"header=routing\"]",
		"└─ POST", "resend_count=1", "verdict=routing")
	if n := peer.Sends("/v1"); n != 2 {
		t.Errorf("%d sends", n)
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	terms := map[string]string{"residency": "eu"}
	peer.Agree("", fedtest.Advertisement{Capability: "summarize", Epoch: 4, Digest: fedtest.Digest(terms), Terms: terms})
	peers := peersOf(t, peer, "hold: {max: -1}")
	task := []string{"get", "-v", "-p", peers, "--capability", "summarize", "--obligation", "residency=eu", peer.URL + "/summarize"}
	file := func(extra string) string {
		return write(t, "policies.yaml", "policies:\n  - peer: org-b\n    capability: summarize\n    epoch: 4\n    digest: "+fedtest.Digest(terms)+"\n"+extra)
	}
	for extra, want := range map[string]string{
		"":                                       ", epoch 4, accepted",
		"    terms: {residency: eu, more: x}\n":  ", epoch 4, accepted",
		"    expires_at: 2099-01-01T00:00:00Z\n": ", epoch 4, negotiated",
	} {
		runWith(t, "", append(task, "--policies", file(extra))...).want(t, 0, want)
	}
	for extra, want := range map[string]string{
		"    terms: {residency: us}\n":           "(terms_insufficient)",
		"    terms: {}\n":                        "(terms_insufficient)",
		"    expires_at: 2020-01-01T00:00:00Z\n": "a policy has expired, and lets no task go out\" peer=org-b capability=summarize epoch=4 expires_at=2020-01-01T00:00:00.000Z\n",
	} {
		runWith(t, "", append(task, "--policies", file(extra))...).want(t, 13, want)
	}
	for extra, want := range map[string]string{
		"    unknown: x\n": "unknown", "  - {peer: org-b, capability: summarize, epoch: 4, digest: x}\n": "policies[1]: the peer, capability and epoch",
		"  - {peer: org-b, epoch: 5, digest: x}\n": "policies[1]: capability is missing", "    epoch: -1\n": "epoch",
		"  - {peer: org-b, capability: c, digest: \"\\n\"}\n": ".yaml: policies[1]: fedhttp: policy: Digest has control characters\n",
	} {
		runWith(t, "", append(task, "--policies", file(extra))...).want(t, exitFailed, want)
	}
}

func TestAnchorFile(t *testing.T) {
	t.Parallel()
	path := write(t, "anchors.yaml", "anchors:\n  - {peer: org-b, version: v1, issued_at: 2026-01-01T00:00:00Z}\n")
	a, err := newAnchorFile(path, http.DefaultTransport, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.FetchAnchor(t.Context(), "org-b")
	if err != nil || got.Version != "v1" || got.IssuedAt.Year() != 2026 || !got.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	// Nobody has fetched anything since, so nothing may be sent again.
	if _, err := a.FetchAnchor(t.Context(), "org-b"); err == nil {
		t.Error("a file that nobody has written passes for an anchor that was fetched anew")
	}
	if err := os.WriteFile(path, []byte("anchors:\n  - {peer: org-b, version: v1.1, issued_at: 2026-01-01T00:00:00Z}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := a.FetchAnchor(t.Context(), "org-b"); err != nil || got.Version != "v1.1" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := a.FetchAnchor(t.Context(), "org-c"); err == nil {
		t.Error("an anchor of nobody")
	}
	for _, faulty := range []string{
		"{peer: org-b}", "{version: x}", "{peer: org-b, version: x, url: https://b.example}", "{peer: org-b, url: http://b.example}",
		"{peer: org-b, url: https://u:p@b.example}", "{peer: org-b, version: x}, {peer: org-b, version: y}", "{peer: org-b, versions: x}",
		"{peer: org-b, version: x, issued_at: 2026-02-01T00:00:00Z, expires_at: 2026-01-01T00:00:00Z}",
	} {
		if _, err := newAnchorFile(write(t, "a.yaml", "anchors: ["+faulty+"]"), nil, nil); err == nil {
			t.Errorf("%s is taken", faulty)
		}
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	peer := fedtest.NewTLSPeer(fedtest.Config{})
	t.Cleanup(peer.Close)
	peers := peersOf(t, peer)
	runWith(t, "", "get", "-p", peers, peer.URL).want(t, 11, "certificate")
	ca := write(t, "ca.pem", certificatePEM(t, peer))
	runWith(t, "", "get", "-p", peers, "-cacert", ca, peer.URL).want(t, 0)
	runWith(t, "", "get", "-p", peers, "-cacert", peers, peer.URL).want(t, exitFailed, "no certificate in PEM")
	runWith(t, "", "get", "-p", peers, "-key", ca, peer.URL).want(t, exitUsage, "--key needs --cert")
	runWith(t, "", "get", "-p", peers, "-cert", ca, peer.URL).want(t, exitFailed, "private key")
}

func certificatePEM(t *testing.T, peer *fedtest.Peer) string {
	t.Helper()
	resp, err := peer.Client().Get(peer.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: resp.TLS.PeerCertificates[0].Raw}))
}
