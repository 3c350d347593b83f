package fedhttp_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// Section 11 of docs/design.md, row by row.

// TestBadURLs: a URL is normalised to its peer, or refused; never a panic.
func TestBadURLs(t *testing.T) {
	t.Parallel()
	var sends atomic.Int64
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		sends.Add(1)
		return answering(response(200))(r)
	})
	tr := newTestTransport(t, fedhttp.Config{Base: base, Peers: []fedhttp.Peer{
		{ID: "b", Origins: []string{stubURL, "https://xn--bcher-kva.example", "http://[::1]:8080"}},
		{ID: "zone", Origins: []string{"http://[fe80::1%25eth0]:80"}, AllowPlaintext: true},
	}})
	for name, test := range map[string]struct {
		url  *url.URL
		peer string // "": refused
	}{
		"nil":                      {nil, ""},
		"zero":                     {&url.URL{}, ""},
		"empty host":               {&url.URL{Scheme: "https", Path: "/x"}, ""},
		"port alone":               {&url.URL{Scheme: "https", Host: ":443"}, ""},
		"no scheme":                {&url.URL{Host: "b.example"}, ""},
		"userinfo":                 {&url.URL{Scheme: "https", Host: "b.example", User: url.UserPassword("u", "p")}, "b"},
		"userinfo within the host": {&url.URL{Scheme: "https", Host: "u:p@b.example"}, ""},
		"trailing dot":             {&url.URL{Scheme: "https", Host: "b.example."}, "b"},
		"two trailing dots":        {&url.URL{Scheme: "https", Host: "b.example.."}, ""},
		"upper case":               {&url.URL{Scheme: "https", Host: "B.EXAMPLE"}, "b"},
		"scheme in upper case":     {&url.URL{Scheme: "HTTPS", Host: "b.example"}, ""},
		"default port":             {&url.URL{Scheme: "https", Host: "b.example:443"}, "b"},
		"default port with a zero": {&url.URL{Scheme: "https", Host: "b.example:0443"}, "b"},
		"empty port":               {&url.URL{Scheme: "https", Host: "b.example:"}, "b"},
		"all at once":              {&url.URL{Scheme: "https", Host: "B.Example.:0443"}, "b"},
		"another port":             {&url.URL{Scheme: "https", Host: "b.example:8443"}, ""},
		"the other scheme's port":  {&url.URL{Scheme: "https", Host: "b.example:80"}, ""},
		"the other scheme":         {&url.URL{Scheme: "http", Host: "b.example"}, ""},
		"another scheme":           {&url.URL{Scheme: "ftp", Host: "b.example"}, ""},
		"port 0":                   {&url.URL{Scheme: "https", Host: "b.example:0"}, ""},
		"port 65536":               {&url.URL{Scheme: "https", Host: "b.example:65536"}, ""},
		"port -1":                  {&url.URL{Scheme: "https", Host: "b.example:-1"}, ""},
		"port with letters":        {&url.URL{Scheme: "https", Host: "b.example:https"}, ""},
		"two ports":                {&url.URL{Scheme: "https", Host: "b.example:443:443"}, ""},
		"punycode":                 {&url.URL{Scheme: "https", Host: "XN--BCHER-KVA.example"}, "b"},
		"not ASCII":                {&url.URL{Scheme: "https", Host: "bücher.example"}, ""},
		"full-width letters":       {&url.URL{Scheme: "https", Host: "ｂ.example"}, ""},
		"not UTF-8":                {&url.URL{Scheme: "https", Host: "b\xff.example"}, ""},
		"line break":               {&url.URL{Scheme: "https", Host: "b.example\r\nX: y"}, ""},
		"blank":                    {&url.URL{Scheme: "https", Host: " b.example"}, ""},
		"escape":                   {&url.URL{Scheme: "https", Host: "b%2eexample"}, ""},
		"IPv6":                     {&url.URL{Scheme: "http", Host: "[0:0::1]:08080"}, "b"},
		"IPv6 without brackets":    {&url.URL{Scheme: "http", Host: "::1:8080"}, ""},
		"IPv6 with an open end":    {&url.URL{Scheme: "http", Host: "[::1:8080"}, ""},
		"IPv6 with its zone":       {&url.URL{Scheme: "http", Host: "[fe80::1%eth0]"}, "zone"},
		"IPv6 with another zone":   {&url.URL{Scheme: "http", Host: "[fe80::1%eth1]"}, ""},
		"IPv6 without its zone":    {&url.URL{Scheme: "http", Host: "[fe80::1]"}, ""},
		"opaque without a host":    {&url.URL{Scheme: "https", Opaque: "b.example/x"}, ""},
		"huge":                     {&url.URL{Scheme: "https", Host: strings.Repeat("b.", 1<<20) + "example"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			all := newBodies()
			req, err := http.NewRequest(http.MethodPost, stubURL, all.add())
			if err != nil {
				t.Fatal(err)
			}
			req.URL, req.Host = test.url, "" // the Host is that of the URL
			before := sends.Load()
			resp, err := tr.RoundTrip(req)
			d, err := decisionOf(t, resp, err)
			if d.Peer != test.peer {
				t.Errorf("the peer is %q, want %q", d.Peer, test.peer)
			}
			if unknown := errors.Is(err, fedhttp.ErrUnknownPeer); unknown != (test.peer == "") {
				t.Errorf("the error is %v", err)
			}
			if sent := sends.Load() > before; sent != (test.peer != "") {
				t.Errorf("it was sent: %v", sent)
			}
			if err != nil && !printableASCII(err.Error(), 1000) {
				t.Errorf("the error is not bounded and printable: %.200q", err)
			}
			if err != nil && d.Reason != fedhttp.ReasonBadURL && d.Reason != fedhttp.ReasonUnlistedOrigin {
				t.Errorf("the reason is %v", d.Reason)
			}
			all.check(t, false)
		})
	}
}

func printableASCII(s string, most int) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) <= most
}

// TestRoutesCannotBeDodged: however a path is spelled, what a server would take
// for "/v1/tasks" has the obligations of "/v1/tasks".
func TestRoutesCannotBeDodged(t *testing.T) {
	t.Parallel()
	var sends atomic.Int64
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		sends.Add(1)
		return answering(response(200))(r)
	})
	p := testPeer("b", stubURL)
	p.Hold.Max = -1
	owes := fedhttp.Terms{"residency": "eu"}
	p.Routes = []fedhttp.Route{
		{Pattern: "/v1/tasks", Task: fedhttp.Task{Capability: "any", Obligations: owes}},
		{Pattern: "POST /v2/tasks/{id}", Task: fedhttp.Task{Capability: "post", Obligations: owes}},
		{Pattern: "GET /v3/tree/", Task: fedhttp.Task{Capability: "tree", Obligations: owes}},
		{Pattern: "/v4/{$}", Task: fedhttp.Task{Capability: "root", Obligations: owes}},
	}
	tr := newTestTransport(t, fedhttp.Config{Base: base, Peers: []fedhttp.Peer{p}, Logger: quietLogger})
	for _, test := range []struct {
		method, target string
		capability     string // "": no route
	}{
		{"GET", "/v1/tasks", "any"}, {"POST", "/v1/tasks", "any"}, {"BREW", "/v1/tasks", "any"}, {"", "/v1/tasks", "any"},
		{"GET", "//v1/tasks", "any"}, {"GET", "/v1//tasks", "any"}, {"GET", "/./v1/./tasks", "any"}, {"GET", "//v1/./tasks", "any"},
		{"GET", "/x/../v1/tasks", "any"}, {"GET", "/../v1/tasks", "any"}, {"GET", "/v1/%74asks", "any"}, {"GET", "/v1/tasks?x=/../y", "any"},
		{"GET", "/v1/x/%2e%2e/tasks", "any"}, {"GET", "/%2E/v1/tasks", "any"},
		{"GET", "/v3/tree/../../v5", "tree"}, {"GET", "/v3/tree/%2e%2E/../v5", "tree"}, {"GET", "/v3/tree/./a%2Fb/..", "tree"}, {"GET", "/.v5", ""},
		{"POST", "/v2/x/%2e%2e/tasks/a%2Fb", "post"}, {"POST", "/v2/x/../tasks/a%2Fb", "post"}, {"POST", "/v2/tasks/..%2Fa", "post"},
		{"POST", "/v2/tasks/7", "post"}, {"POST", "//v2/tasks/./7", "post"}, {"GET", "/v2/tasks/7", ""}, {"POST", "/v2/tasks/a%2Fb", "post"},
		{"GET", "/v3/tree/leaf", "tree"}, {"HEAD", "/v3/tree/leaf", "tree"}, {"GET", "/v3/tree/", "tree"}, {"GET", "/v3/tree", "tree"}, {"GET", "//v3/tree", "tree"},
		{"GET", "/v4/", "root"}, {"GET", "/v4/x", ""}, {"GET", "/v5", ""}, {"GET", "", ""},
	} {
		req, err := http.NewRequest(test.method, stubURL+test.target, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Method = test.method
		checkRoute(t, tr, &sends, req, test.capability)
	}
	// net/http sends Opaque as it is, in place of the path.
	for _, opaque := range []string{"/v1/tasks", "//b.example/v1/tasks"} {
		req, err := http.NewRequest(http.MethodGet, stubURL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.URL.Opaque = opaque
		before := sends.Load()
		if _, err := tr.RoundTrip(req); err == nil || sends.Load() != before {
			t.Errorf("the opaque target %q was sent without its obligations", opaque)
		}
	}
}

func checkRoute(t *testing.T, tr *fedhttp.Transport, sends *atomic.Int64, req *http.Request, capability string) {
	t.Helper()
	before := sends.Load()
	resp, err := tr.RoundTrip(req)
	d, err := decisionOf(t, resp, err)
	if d.Capability != capability {
		t.Errorf("%s %s: capability %q, want %q", req.Method, req.URL, d.Capability, capability)
	}
	if unresolved := errors.Is(err, fedhttp.ErrPolicyUnresolved); unresolved != (capability != "") || unresolved == (sends.Load() > before) {
		t.Errorf("%s %s: %v, %d sends", req.Method, req.URL, err, sends.Load()-before)
	}
}

func TestBadTasks(t *testing.T) {
	t.Parallel()
	p := testPeer("b", stubURL)
	p.Hold.MaxWait = time.Hour
	tr := newTestTransport(t, fedhttp.Config{Base: roundTripFunc(failing), Peers: []fedhttp.Peer{p}, Logger: quietLogger})
	if d, err := get(t, tr, fedhttp.Task{Obligations: fedhttp.Terms{"a": "b"}}); !errors.Is(err, fedhttp.ErrTaskRequired) || d.Attempts != 0 {
		t.Errorf("obligations without a capability: %v", err)
	}
	late := *heldTask
	for _, at := range []time.Time{time.Now().Add(-time.Nanosecond), time.Unix(0, 0), time.Unix(math.MinInt32, 0)} {
		late.PolicyDeadline = at
		if d, err := get(t, tr, late); !errors.Is(err, fedhttp.ErrPolicyUnresolved) || d.Reason != fedhttp.ReasonPolicyDeadline || d.Attempts != 0 {
			t.Errorf("a deadline at %v: %v", at, err)
		}
	}
	weird := fedhttp.Task{ID: "\x00\xff\n", Capability: strings.Repeat("\x1b[31m", 10_000), Scope: "\r\n", Obligations: fedhttp.Terms{"\xff": ""}, PolicyDeadline: time.Unix(0, 0)}
	if _, err := get(t, tr, weird); !errors.Is(err, fedhttp.ErrPolicyUnresolved) || !printableASCII(err.Error(), 4096) {
		t.Errorf("a task of odd bytes: %.300q", err)
	}
}

// TestBadAnswers: whatever a peer writes, the error is bounded and printable.
func TestBadAnswers(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
	t.Cleanup(peer.Close)
	p := testPeer("b", peer.URL)
	p.Breaker.Failures, p.Denial.HoldOff = -1, -1
	p.Signals.ReadProblemDetail = true
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{p}, Logger: quietLogger})
	huge := strings.Repeat("A", 200_000)
	wire := func(lines ...string) fedtest.Step {
		return fedtest.Wire("HTTP/1.1 " + strings.Join(lines, "\r\n") + "\r\nContent-Length: 0\r\n\r\n")
	}
	evidence := make([]string, 0, 101)
	for range 100 {
		evidence = append(evidence, "X-Federation-Policy-Evaluated: false")
	}
	for name, test := range map[string]struct {
		step    fedtest.Step
		outcome fedhttp.Outcome
	}{
		"no HTTP":                {fedtest.Wire(huge + "\x1b[31m\r\n\r\n"), fedhttp.OutcomeAmbiguous},
		"a status of letters":    {fedtest.Wire("HTTP/1.1 " + huge + "\r\n\r\n"), fedhttp.OutcomeAmbiguous},
		"a header of no name":    {fedtest.Wire("HTTP/1.1 200 OK\r\n" + huge + "\r\n\r\n"), fedhttp.OutcomeAmbiguous},
		"100 evidence headers":   {wire(append([]string{"403 Forbidden"}, evidence...)...), fedhttp.OutcomeAmbiguous},
		"conflicting duplicates": {wire("403 Forbidden", "X-Federation-Policy-Evaluated: true", "X-Federation-Policy-Evaluated: false"), fedhttp.OutcomeAmbiguous},
		"a huge signal":          {wire("403 Forbidden", "X-Federation-Policy-Evaluated: "+huge), fedhttp.OutcomeAmbiguous},
		"a huge correlation id":  {wire("403 Forbidden", "X-Correlation-ID: "+huge), fedhttp.OutcomeAmbiguous},
		"odd bytes":              {wire("403 Forbidden", "X-Federation-Policy-Evaluated: true", "X-Correlation-ID: a\xff\xfe\u202eb", "X-Federation-Policy-Reason: \u202e\xff\t\""+huge), fedhttp.OutcomeRejected},
		"odd problem details":    {fedtest.Raw(403, http.Header{"X-Federation-Policy-Evaluated": {"true"}, "Content-Type": {"application/problem+json"}}, `{"detail":"a\u0000\u001b[31m\n\u202e`+huge[:3000]+`"}`), fedhttp.OutcomeRejected},
		"no status at all":       {fedtest.Wire("\r\n\r\n"), fedhttp.OutcomeAmbiguous},
	} {
		peer.Script(test.step)
		resp, err := tr.RoundTrip(newGet(t, peer.URL))
		if resp != nil {
			resp.Body.Close()
		}
		d, err := decisionOf(t, resp, err)
		if d.Outcome != test.outcome || d.Attempts != 1 {
			t.Errorf("%s: %v (%v) after %d attempts, want %v after one", name, d.Outcome, d.Reason, d.Attempts, test.outcome)
		}
		if !printableASCII(err.Error(), 4096) {
			t.Errorf("%s: the error has %d bytes, and is: %.200q", name, len(err.Error()), err)
		}
		for what, text := range map[string]string{"correlation id": d.CorrelationID, "policy reason": d.PolicyReason} {
			if !printableASCII(text, 10*256) {
				t.Errorf("%s: the %s is not bounded and printable: %.200q", name, what, text)
			}
		}
	}
	if n := len(peer.Routing.Log()); n != 10 {
		t.Errorf("%d sends, want 10", n)
	}
}

func newGet(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// TestBadBodies: a body that drips or never ends holds up neither a resend nor
// a rejection's reason for longer than its bound, and leaks nothing.
func TestBadBodies(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	peer := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
	t.Cleanup(peer.Close)
	p := testPeer("b", peer.URL)
	p.Denial.HoldOff = -1
	p.Signals.ReadProblemDetail = true
	p.Retry.AttemptTimeout = 3 * time.Second // a machine may be busy
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{p}, Anchors: risingAnchors(), Logger: quietLogger})
	no := http.Header{"X-Federation-Policy-Evaluated": {"false"}}
	yes := http.Header{"X-Federation-Policy-Evaluated": {"true"}, "Content-Type": {"application/problem+json"}}
	for name, test := range map[string]struct {
		step    fedtest.Step
		outcome fedhttp.Outcome
	}{
		"endless, to be replaced":          {fedtest.Endless(403, no, 0), fedhttp.OutcomeDelivered},
		"dripping, to be replaced":         {fedtest.Endless(403, no, time.Millisecond), fedhttp.OutcomeDelivered},
		"endless problem details":          {fedtest.Endless(403, yes, 0), fedhttp.OutcomeRejected},
		"dripping problem details":         {fedtest.Endless(403, yes, time.Millisecond), fedhttp.OutcomeRejected},
		"problem details that never begin": {fedtest.Endless(403, yes, time.Hour), fedhttp.OutcomeRejected},
	} {
		peer.Script(test.step, fedtest.Raw(200, nil, ""))
		resp, err := tr.RoundTrip(newGet(t, peer.URL))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d, _ := fedhttp.DecisionFromResponse(resp); d.Outcome != test.outcome {
			t.Errorf("%s: %v (%v), want %v", name, d.Outcome, d.Reason, test.outcome)
		}
		resp.Body.Close()
		if test.outcome == fedhttp.OutcomeRejected { // the second step was not taken
			resp, err := tr.RoundTrip(newGet(t, peer.URL))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
	}
	if left := peer.StepsLeft(); left != 0 {
		t.Errorf("%d steps were not taken", left)
	}
}

// TestBadAnchorSource is what an anchor must not be; the last good one stays.
func TestBadAnchorSource(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	now := time.Now()
	for name, bad := range map[string]fedhttp.Anchor{
		"older":              {Version: "v0", IssuedAt: now.Add(-2 * time.Hour)},
		"expired":            {Version: "v2", IssuedAt: now, ExpiresAt: now},
		"empty":              {IssuedAt: now},
		"zero":               {},
		"of the future":      {Version: "v2", IssuedAt: now.Add(time.Minute + 10*time.Second)},
		"of the far future":  {Version: "v2", IssuedAt: time.Unix(1<<60, 0)},
		"expired in the eld": {Version: "v2", ExpiresAt: time.Unix(1, 0)},
	} {
		var n atomic.Int64
		tr := newTestTransport(t, fedhttp.Config{
			Base: answering(routed()), Peers: []fedhttp.Peer{testPeer("b", stubURL)}, Logger: quietLogger,
			Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
				if n.Add(1) == 1 {
					return fedhttp.Anchor{Version: "v1", IssuedAt: now.Add(-time.Hour)}, nil
				}
				return bad, nil
			}),
		})
		d, _ := get(t, tr, fedhttp.Task{})
		if d.Reason != fedhttp.ReasonRefreshFailed || d.Attempts != 1 {
			t.Errorf("%s: %v after %d attempts, want refresh_failed after one", name, d.Reason, d.Attempts)
		}
		if v := tr.Status()[0].AnchorVersion; v != "v1" {
			t.Errorf("%s: the anchor is %q, want v1 as before", name, v)
		}
	}
	// A little ahead of our clock is not the future.
	tr := newTestTransport(t, fedhttp.Config{
		Base: answering(response(200)), Peers: []fedhttp.Peer{testPeer("b", stubURL)},
		Anchors: anchorFunc(func(context.Context, string) (fedhttp.Anchor, error) {
			return fedhttp.Anchor{Version: "v1", IssuedAt: time.Now().Add(30 * time.Second)}, nil
		}),
	})
	if d, _ := get(t, tr, fedhttp.Task{}); d.AnchorVersion != "v1" {
		t.Errorf("the anchor is %q, want v1", d.AnchorVersion)
	}
}
