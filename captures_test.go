package fedhttp_test

import (
	"bufio"
	"bytes"
	"context"
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

// capture is what a recorded answer comes to.
type capture struct {
	want   string // outcome/reason, with no dialect and with dialects that nobody has pinned
	pinned string // with every dialect pinned; "" for want
	heard  string // the evidence of the dialects, unpinned
	sends  int    // 0: one
	broken bool   // the body ends before its length
	why    string
}

const (
	captureGood      = "delivered"
	captureAmbiguous = "ambiguous/no_signal"
	captureRejected  = "rejected/denied"
	captureDistrust  = "routing_failed/peer_distrusts_us"
)

// captures has a row for every file in testdata/captures.
var captures = map[string]capture{
	"caddy-app-403-passthrough": {want: captureAmbiguous, why: "the application's 403, relayed (Via); it may be its policy engine's, and says so nowhere"},
	"caddy-bad-request-400":     {want: captureGood, why: "400 is no status of the routing layer; the caller mends its request"},
	"caddy-body-too-large-413":  {want: captureGood, why: "413 is about the request itself, whoever says it"},
	"caddy-body-too-large-413-chunked": {
		want: captureGood, why: "as with a length; the application may have had the beginning of the body",
	},
	"caddy-deny-403-body":           {want: captureAmbiguous, why: "Caddy's own 403, by a rule of its configuration: neither the policy engine nor a route is named"},
	"caddy-deny-403-error":          {want: captureAmbiguous, why: "as above, through its error handler"},
	"caddy-deny-403":                {want: captureAmbiguous, why: "as above, with an empty body"},
	"caddy-file-404":                {want: captureGood, why: "404 is not routing: what is not there and what one may not see look the same"},
	"caddy-forward-auth-down":       {want: captureAmbiguous, why: "the bytes of every 502 of Caddy's; the authorizer may have decided"},
	"caddy-mtls-expired-handshake":  {want: captureAmbiguous, why: "the end of a connection without a byte, after the request was written; the TLS alert that would tell is not in it"},
	"caddy-mtls-good":               {want: captureGood, why: "the application answered"},
	"caddy-mtls-nocert-handshake":   {want: captureAmbiguous, why: "as with an expired certificate"},
	"caddy-mtls-wrongca-handshake":  {want: captureAmbiguous, why: "as with an expired certificate"},
	"caddy-plain-http-to-https-400": {want: captureGood, why: "400; a wrong scheme in our own configuration, which no refresh mends"},
	"caddy-unknown-host":            {want: captureGood, why: "200 without a word of the application's; only a receipt tells, see TestCaptureOfAHostThatIsNotServed"},
	"caddy-upstream-closed":         {want: captureAmbiguous, why: "the application had the request and closed the connection: it may have done the task"},
	"caddy-upstream-garbage":        {want: captureAmbiguous, why: "the application had the request"},
	"caddy-upstream-refused":        {want: captureAmbiguous, why: "nothing was delivered, but the bytes are those of caddy-upstream-closed"},
	"caddy-upstream-rst":            {want: captureAmbiguous, why: "the application had the request"},
	"caddy-upstream-timeout":        {want: captureAmbiguous, why: "the application has the request, and may still be at it"},
	"caddy-upstream-tls-untrusted":  {want: captureAmbiguous, why: "nothing was delivered, and Caddy does not say so"},

	"haproxy-app-503-passthrough":       {want: captureAmbiguous, why: "the application's own 503, which names no author; Retry-After names none either"},
	"haproxy-bad-request-400":           {want: captureGood, why: "400 is no status of the routing layer"},
	"haproxy-basic-401":                 {want: captureAmbiguous, why: "a 401 of HAProxy's own; the policy engine could say the same"},
	"haproxy-body-too-large-413":        {want: captureGood, why: "413 is about the request itself"},
	"haproxy-deny-403":                  {want: captureAmbiguous, why: "'administrative rules' are HAProxy's, not the policy engine's, and the page proves nothing"},
	"haproxy-mtls-expired-handshake":    {want: captureAmbiguous, why: "the end of a connection without a byte, after the request was written"},
	"haproxy-mtls-good":                 {want: captureGood, why: "the application answered"},
	"haproxy-mtls-nocert-handshake":     {want: captureAmbiguous, why: "as with an expired certificate"},
	"haproxy-mtls-optional-nocert-403":  {want: captureAmbiguous, why: "the bytes of haproxy-deny-403"},
	"haproxy-mtls-wrongca-handshake":    {want: captureAmbiguous, why: "as with an expired certificate"},
	"haproxy-plain-http-to-https":       {want: captureAmbiguous, why: "the connection ended without a byte after the request was written"},
	"haproxy-unknown-host":              {want: captureAmbiguous, why: "the bytes of every 503 of HAProxy's"},
	"haproxy-unknown-route":             {want: captureAmbiguous, why: "the bytes of every 503 of HAProxy's"},
	"haproxy-upstream-closed":           {want: captureAmbiguous, why: "the application had the request"},
	"haproxy-upstream-down-healthcheck": {want: captureAmbiguous, why: "the bytes of every 503 of HAProxy's, which also follow retries after a dispatch"},
	"haproxy-upstream-garbage":          {want: captureAmbiguous, why: "the application had the request"},
	"haproxy-upstream-refused":          {want: captureAmbiguous, why: "nothing was delivered, but the bytes are those of every 503 of HAProxy's"},
	"haproxy-upstream-rst":              {want: captureAmbiguous, why: "the application had the request"},
	"haproxy-upstream-truncated-body":   {want: captureGood, broken: true, why: "the application answered 200; that its body breaks off the caller learns as it reads"},

	"nginx-app-503-passthrough":        {want: captureAmbiguous, why: "the application's own 503, which names no author"},
	"nginx-auth-request-down-500":      {want: captureGood, why: "500 is the application's, unless the peer's failure_statuses say otherwise; see docs/peers/nginx.md"},
	"nginx-bad-request-400":            {want: captureGood, why: "400 is no status of the routing layer"},
	"nginx-basic-401":                  {want: captureAmbiguous, why: "a 401 of nginx's own; the policy engine could say the same"},
	"nginx-body-too-large-413":         {want: captureGood, why: "413 is about the request itself"},
	"nginx-body-too-large-413-chunked": {want: captureGood, why: "413 is about the request itself"},
	"nginx-deny-403":                   {want: captureAmbiguous, why: "the same page for a deny rule and for a policy service's 403 that nginx has put its own in the place of"},
	"nginx-mtls-good":                  {want: captureGood, why: "the application answered"},
	"nginx-mtls-nocert-400":            {want: captureGood, pinned: captureDistrust, heard: "nginx=routing ignored=unpinned", why: "400, and the page is only to be believed of a server that we know for an nginx: it wants our certificate, whatever we refresh"},
	"nginx-mtls-wrongca-400":           {want: captureGood, pinned: captureDistrust, heard: "nginx=routing ignored=unpinned", why: "as above: its anchor for us is stale"},
	"nginx-no-live-upstreams":          {want: captureAmbiguous, why: "nothing was delivered this time, but the bytes are those of every 502 of nginx's"},
	"nginx-plain-http-to-https-400":    {want: captureGood, why: "a wrong scheme in our own configuration; its page is none of the two about certificates"},
	"nginx-ratelimit-429":              {want: captureAmbiguous, why: "nginx's own limit and the policy engine's look alike"},
	"nginx-unknown-host-404":           {want: captureGood, why: "404 is not routing"},
	"nginx-unknown-route":              {want: captureGood, why: "404 is not routing"},
	"nginx-upstream-closed":            {want: captureAmbiguous, why: "the application had the request"},
	"nginx-upstream-refused":           {want: captureAmbiguous, why: "nothing was delivered, but the bytes are those of nginx-upstream-closed"},
	"nginx-upstream-rst":               {want: captureAmbiguous, why: "the application had the request"},
	"nginx-upstream-timeout":           {want: captureAmbiguous, why: "the application has the request, and may still be at it"},
	"nginx-upstream-tls-untrusted-502": {want: captureAmbiguous, why: "nothing was delivered, but the bytes are those of every 502 of nginx's"},
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
	missing := maps.Clone(captures)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".http")
		row, ok := captures[name]
		if !ok || row.why == "" {
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
			playCapture(t, row, recorded, row.want, "", nil)
			playCapture(t, row, recorded, row.want, row.heard, everyDialect())
			pinned := row.want
			if row.pinned != "" {
				pinned = row.pinned
			}
			heard := strings.TrimSuffix(row.heard, " ignored=unpinned")
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
	base := &http.Transport{}
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
	if n, want := requests.Load(), max(1, int64(row.sends)); n != want || int64(d.Attempts) != want {
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
	if broken := errors.Is(err, io.ErrUnexpectedEOF); broken != row.broken || err != nil && !broken {
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
			if row := captures[name]; row.want != captures[twins[0]].want {
				t.Errorf("%s and %s are the same and not judged alike", name, twins[0])
			}
		}
	}
}
