package fedhttp_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fedhttp/fedhttp"
)

const capturesDir = "testdata/captures"

// capture is what a recorded answer comes to. The table, verdicts.json, is data:
// the tests against the real servers hold those to it too.
type capture struct {
	Want   string `json:"want"`   // outcome/reason, with no dialect and with dialects that nobody has pinned
	Pinned string `json:"pinned"` // with every dialect pinned; "" for Want
	Heard  string `json:"heard"`  // the evidence of the dialects, where nobody has pinned them
	Sends  int64  `json:"sends"`  // 0: one
	Broken bool   `json:"broken"` // the body ends before its length
	Why    string `json:"why"`
}

const (
	captureGood     = "delivered"
	captureRejected = "rejected/denied"
)

func readCaptures(t *testing.T) map[string]capture {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(capturesDir, "verdicts.json"))
	if err != nil {
		t.Fatal(err)
	}
	var captures map[string]capture
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&captures); err != nil {
		t.Fatal(err)
	}
	return captures
}

// everyDialect is every vocabulary, with a hop that is believed or without.
func everyDialect(hops ...fedhttp.Hop) (all []fedhttp.Dialect) {
	for kind := fedhttp.DialectProxyStatus; ; kind++ {
		if _, err := kind.MarshalText(); err != nil {
			return all
		}
		all = append(all, fedhttp.Dialect{Kind: kind, Hops: hops})
	}
}

// TestCaptures serves each recorded answer, byte for byte, to a transport that
// would gladly send again: there is always a newer anchor, and the body can be
// read anew.
func TestCaptures(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(capturesDir, "*.http"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures: %v", err)
	}
	captures := readCaptures(t)
	missing := maps.Clone(captures)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".http")
		row, ok := captures[name]
		if !ok || row.Why == "" {
			t.Errorf("%s: no row, or one without a reason", file)
			continue
		}
		delete(missing, name)
		recorded, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playCapture(t, row, recorded, row.Want, "", nil)
			playCapture(t, row, recorded, row.Want, row.Heard, everyDialect())
			pinned := row.Want
			if row.Pinned != "" {
				pinned = row.Pinned
			}
			heard := strings.TrimSuffix(row.Heard, " ignored=unpinned")
			playCapture(t, row, recorded, pinned, heard, everyDialect(fedhttp.Hop{Name: "front"}))
		})
	}
	for name := range missing {
		t.Errorf("%s: a row without a file", name)
	}
}

// captureServer answers every request with the recorded bytes and ends the connection.
func captureServer(t *testing.T, recorded []byte) (server *rawServer, requests *atomic.Int64) {
	t.Helper()
	requests = &atomic.Int64{}
	return listenRaw(t, nil, func(conn net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		requests.Add(1)
		if _, err := io.Copy(io.Discard, req.Body); err == nil {
			_, _ = conn.Write(recorded)
		}
	}), requests
}

func playCapture(t *testing.T, row capture, recorded []byte, want, heard string, dialects []fedhttp.Dialect) {
	t.Helper()
	server, requests := captureServer(t, recorded)
	peer := testPeer("b", server.url)
	peer.Signals.Dialects = dialects
	// The server ends each connection after its answer, which does not say so: one that
	// is kept may take the next send and end under it.
	base := &http.Transport{DisableKeepAlives: true}
	tr := newTestTransport(t, fedhttp.Config{
		Base: base, Anchors: fenceEager(), Escalator: fenceQuiet, Peers: []fedhttp.Peer{peer},
	})
	req, err := http.NewRequest(http.MethodPost, server.url+"/v1/tasks", strings.NewReader("a task"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	d := captureDecision(t, resp, err)
	got := d.Outcome.String()
	if d.Reason != fedhttp.ReasonNone {
		got += "/" + d.Reason.String()
	}
	if got != want {
		t.Errorf("%d dialects: %s, want %s", len(dialects), got, want)
	}
	if d.Escalated == (want == captureGood || want == captureRejected) {
		t.Errorf("%d dialects: escalated is %v", len(dialects), d.Escalated)
	}
	var evidence []string
	for _, e := range d.Evidence {
		if e.Source != fedhttp.SourceHeader {
			evidence = append(evidence, e.String())
		}
	}
	if got := strings.Join(evidence, ", "); got != heard {
		t.Errorf("%d dialects: heard %q, want %q", len(dialects), got, heard)
	}
	checkCaptureBody(t, row, recorded, resp)
	server.drain(base)
	if n, want := requests.Load(), max(1, row.Sends); n != want || int64(d.Attempts) != want {
		t.Errorf("%d dialects: the server has had %d requests of %d attempts, want %d", len(dialects), n, d.Attempts, want)
	}
}

func captureDecision(t *testing.T, resp *http.Response, err error) fedhttp.Decision {
	t.Helper()
	if err != nil {
		return fenceDecision(t, err)
	}
	d, ok := fedhttp.DecisionFromResponse(resp)
	if !ok {
		t.Fatal("a response without a decision")
	}
	return d
}

// checkCaptureBody: whatever was made of the answer, the caller gets it as it came.
func checkCaptureBody(t *testing.T, row capture, recorded []byte, resp *http.Response) {
	t.Helper()
	if len(recorded) == 0 || resp == nil {
		if len(recorded) > 0 || resp != nil {
			t.Error("want a response where there is one, and none where there is none")
		}
		return
	}
	defer resp.Body.Close()
	_, want, ok := bytes.Cut(recorded, []byte("\r\n\r\n"))
	if !ok {
		t.Fatal("the capture has no end of its header")
	}
	got, err := io.ReadAll(resp.Body)
	if !bytes.Equal(got, want) {
		t.Errorf("the caller reads %q, want %q", got, want)
	}
	if broken := errors.Is(err, io.ErrUnexpectedEOF); broken != row.Broken || err != nil && !broken {
		t.Errorf("reading the body: %v", err)
	}
}

// TestCaptureOfAHostThatIsNotServed: Caddy answers 200 with an empty body for a
// host that it does not serve. The answer looks like a success, and for a task
// with obligations only a receipt tells that nobody has done it.
func TestCaptureOfAHostThatIsNotServed(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	recorded, err := os.ReadFile(filepath.Join(capturesDir, "caddy-unknown-host.http"))
	if err != nil {
		t.Fatal(err)
	}
	const digest = "sha256:agreed"
	terms := fedhttp.Terms{"output-licensing": "internal-reuse-only"}
	for _, c := range []struct {
		mode fedhttp.ReceiptMode
		task fedhttp.Task
		want string
	}{
		{fedhttp.VerifyReceipt, fedhttp.Task{Capability: "summarize", Obligations: terms}, "delivered"},
		{fedhttp.RequireReceipt, fedhttp.Task{Capability: "summarize", Obligations: terms}, "policy_mismatch/receipt_missing"},
		{fedhttp.RequireReceipt, fedhttp.Task{Capability: "summarize"}, "delivered"},
	} {
		t.Run(fmt.Sprint(c.mode, " ", len(c.task.Obligations)), func(t *testing.T) {
			t.Parallel()
			server, requests := captureServer(t, recorded)
			book := &fedhttp.PolicyBook{}
			key := fedhttp.PolicyKey{Peer: "b", Capability: "summarize", Epoch: 1}
			if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: digest}); err != nil {
				t.Fatal(err)
			}
			book.Accept(fedhttp.Policy{PolicyKey: key, Digest: digest, Terms: terms})
			peer := testPeer("b", server.url)
			peer.Receipt = c.mode
			base := &http.Transport{}
			var told recorder[fedhttp.Escalation]
			tr := newTestTransport(t, fedhttp.Config{
				Base: base, Anchors: fenceEager(), Book: book, Peers: []fedhttp.Peer{peer},
				Escalator: escalatorFunc(func(_ context.Context, e fedhttp.Escalation) { told.add(e) }),
			})
			ctx := fedhttp.ContextWithTask(t.Context(), c.task)
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.url+"/v1/tasks", strings.NewReader("a task"))
			if err != nil {
				t.Fatal(err)
			}
			resp, err := tr.RoundTrip(req)
			if err == nil {
				defer resp.Body.Close()
			}
			d := captureDecision(t, resp, err)
			got := d.Outcome.String()
			if d.Reason != fedhttp.ReasonNone {
				got += "/" + d.Reason.String()
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if withheld := errors.Is(err, fedhttp.ErrPolicyMismatch); withheld != (c.want != "delivered") || withheld != (resp == nil) {
				t.Errorf("response %v, error %v", resp != nil, err)
			}
			if c.want != "delivered" && told.wait(t, 1)[0].Kind != fedhttp.EscalationPolicyMismatch {
				t.Errorf("escalated %v", told.snapshot())
			}
			server.drain(base)
			if n := requests.Load(); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// TestCapturesTwins: servers answer the same bytes where the request was never
// delivered and where the application had it. It is why they are ambiguous.
func TestCapturesTwins(t *testing.T) {
	t.Parallel()
	captures := readCaptures(t)
	for _, twins := range [][]string{
		{"nginx-upstream-refused", "nginx-upstream-closed", "nginx-upstream-rst", "nginx-no-live-upstreams"},
		{"nginx-unknown-host-404", "nginx-unknown-route"},
		{"haproxy-unknown-host", "haproxy-unknown-route", "haproxy-upstream-refused", "haproxy-upstream-down-healthcheck"},
		{"haproxy-upstream-closed", "haproxy-upstream-garbage", "haproxy-upstream-rst"},
		{"haproxy-deny-403", "haproxy-mtls-optional-nocert-403"},
		{"caddy-upstream-refused", "caddy-upstream-closed", "caddy-upstream-rst", "caddy-upstream-garbage", "caddy-forward-auth-down"},
	} {
		var first []string
		for _, name := range twins {
			recorded, err := os.ReadFile(filepath.Join(capturesDir, name+".http"))
			if err != nil {
				t.Fatal(err)
			}
			lines := slices.DeleteFunc(strings.Split(string(recorded), "\r\n"), func(line string) bool {
				return strings.HasPrefix(line, "Date: ")
			})
			if first == nil {
				first = lines
			} else if !slices.Equal(first, lines) {
				t.Errorf("%s differs from %s", name, twins[0])
			}
			if row := captures[name]; row.Want != captures[twins[0]].Want {
				t.Errorf("%s and %s are the same and not judged alike", name, twins[0])
			}
		}
	}
}
