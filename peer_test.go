package fedhttp_test

import (
	"errors"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fedhttp/fedhttp"
)

// faultyPeers is a configuration in which every field that can be wrong is, and
// what the one error must say of each: the peer and the field's name.
func faultyPeers() ([]fedhttp.Peer, []string) {
	peers := []fedhttp.Peer{
		{ID: "b", Origins: []string{"https://b.example", "https://B.example.:443"}}, // its own origin twice is no fault
		{},
		{ID: "b", Origins: []string{"https://b2.example"}},
		{ID: "c", Origins: []string{"https://c.example", "https://b.example:0443"}},
		{ID: "d\n", Origins: []string{
			"http://d.example", "ftp://d.example", "https://user:hunter2@d.example", "https://d.example/v1", "https://bücher.example",
			"d.example", "https://d.example:0", "%zz", "", "https://d.example#",
		}},
		{
			ID: "e", Origins: []string{"https://e.example"},
			Routes: []fedhttp.Route{
				{Pattern: "v1"}, {Pattern: "POST e.example/v1"}, {Pattern: "/{"}, {Pattern: ""}, {Pattern: "/a"}, {Pattern: "/a"},
				{Pattern: "/b", Task: fedhttp.Task{Obligations: fedhttp.Terms{"a": "b"}}},
			},
			Signals: fedhttp.Signals{
				PolicyEvaluated: "a b", CorrelationID: "a:b", AnchorIssuedAt: "\x00", PolicyReason: "é", Receipt: "(", Degraded: "a,b",
				CorrelationPrefixes: map[string]fedhttp.Layer{"": fedhttp.LayerPolicy, "x": 9, "a.]\"b,": fedhttp.LayerPolicy, strings.Repeat("p", 5000) + ",": fedhttp.LayerPolicy}, FailureStatuses: []int{200, 1000},
			},
			Retry: fedhttp.RetryPolicy{
				MaxAttempts: -1, MinBackoff: -1, MaxBackoff: -1, MinRefreshInterval: -1, AttemptTimeout: -1, BudgetRatio: math.NaN(),
			},
			Breaker: fedhttp.BreakerPolicy{OpenFor: -1, Trials: -1},
			Hold:    fedhttp.HoldPolicy{MaxWait: -1, ReleaseRate: -1},
			Denial:  fedhttp.DenialPolicy{Budget: -1, Window: -1},
			Receipt: 9, Propagation: 9,
		},
		{ID: "f", Origins: []string{"https://f.example"}, Retry: fedhttp.RetryPolicy{MinBackoff: 2, MaxBackoff: 1, BudgetRatio: math.Inf(1)}},
		{ID: strings.Repeat("g", 257), Origins: []string{"https://g.example"}},
		{ID: "h", Origins: []string{"https://h.example"}, Signals: fedhttp.Signals{
			PolicyEvaluated: "X-One", Receipt: "x-one", PolicyReason: "x-federation-degraded", AnchorIssuedAt: "X-Federation-Correlation-Id",
			PolicyDigest: "X-One", AnchorVersion: "X-Federation-Negotiation-Epoch", NegotiationEpoch: "x-two",
		}},
		{ID: "i", Origins: []string{"https://i.example"}, Signals: fedhttp.Signals{PolicyDigest: "X-One", NegotiationEpoch: "X-One"}},
	}
	return peers, []string{
		`Peers[1] (""): ID`, `Peers[1] (""): Origins`, `Peers[2] ("b"): ID`, `Peers[3] ("c"): Origins[1]: https://b.example is claimed by peer "b" too`, `Peers[4] ("d\n"): ID`,
		`Origins[0]`, `Origins[1]`, `Origins[2]`, `Origins[3]`, `Origins[4]`, `Origins[5]`, `Origins[6]`, `Origins[7]`, `Origins[8]`, `Origins[9]`,
		`Routes[0].Pattern`, `Routes[1].Pattern`, `Routes[2].Pattern`, `Routes[3].Pattern`, `Routes[5].Pattern`, `Routes[6].Task.Capability`,
		`Signals.PolicyEvaluated`, `Signals.CorrelationID`, `Signals.AnchorIssuedAt`, `Signals.PolicyReason`, `Signals.Receipt`, `Signals.Degraded`,
		`Signals.CorrelationPrefixes[""]: an empty`, `Signals.CorrelationPrefixes["x"]: "`, `Signals.CorrelationPrefixes["a.]\"b,"]: the prefix`,
		`Signals.FailureStatuses[0]: 200`, `Signals.FailureStatuses[1]: 1000`,
		`Retry.MaxAttempts`, `("e"): Retry.MinBackoff`, `Retry.MaxBackoff`, `Retry.MinRefreshInterval`, `Retry.AttemptTimeout`, `("e"): Retry.BudgetRatio`,
		`Breaker.OpenFor`, `Breaker.Trials`, `Hold.MaxWait`, `Hold.ReleaseRate`, `Denial.Budget`, `Denial.Window`,
		`("e"): Receipt`, `("e"): Propagation`, `("f"): Retry.MinBackoff`, `("f"): Retry.BudgetRatio`, `Peers[7]`,
		`Peers[8] ("h"): Signals.Receipt: "X-One" is the header of Signals.PolicyEvaluated too`,
		`Signals.PolicyReason: "X-Federation-Degraded" is the header of Signals.Degraded too`,
		`Signals.AnchorIssuedAt: "X-Federation-Correlation-Id" is the header of Signals.CorrelationID too`,
		`Peers[9] ("i"): Signals.NegotiationEpoch: "X-One" is the header of Signals.PolicyDigest too`,
	}
}

// TestEveryFaultInOneError: both NewTransport and SetPeers name every fault in
// the words of the fields, and change nothing.
func TestEveryFaultInOneError(t *testing.T) {
	t.Parallel()
	peers, want := faultyPeers()
	tr, err := fedhttp.NewTransport(fedhttp.Config{Peers: peers, Unlisted: 9})
	if err == nil || tr != nil {
		t.Fatalf("NewTransport = %v, %v; want an error alone", tr, err)
	}
	good := newTestTransport(t, fedhttp.Config{Base: answering(response(200)), Peers: []fedhttp.Peer{testPeer("b", stubURL)}})
	again := good.SetPeers(peers)
	if again == nil {
		t.Fatal("SetPeers accepts them")
	}
	if s := good.Status(); len(s) != 1 || s[0].ID != "b" {
		t.Errorf("SetPeers has failed and changed something: %+v", s)
	}
	for _, fault := range append([]string{"Unlisted"}, want...) {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("NewTransport does not name %s", fault)
		}
		if fault != "Unlisted" && !strings.Contains(again.Error(), fault) {
			t.Errorf("SetPeers does not name %s", fault)
		}
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), ".go:") {
		t.Error("the error shows a password or a place in our source")
	}
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if !printableASCII(line, 1200) {
			t.Errorf("a line is not bounded and printable: %.300q", line)
		}
	}
	if strings.Contains(err.Error(), `Peers[0]`) && !strings.Contains(err.Error(), "of Peers[0]") {
		t.Error("the peer without a fault has one")
	}
	if t.Failed() {
		t.Logf("%v", err)
	}
}

func TestGoodPeers(t *testing.T) {
	t.Parallel()
	newTestTransport(t, fedhttp.Config{})
	newTestTransport(t, fedhttp.Config{Unlisted: fedhttp.PassUnlisted, Anchors: risingAnchors(), Peers: []fedhttp.Peer{
		{ID: "loopback", Origins: []string{"http://127.0.0.1", "http://[::1]:80", "http://localhost", "http://a.localhost:8080"}},
		{ID: "plain", Origins: []string{"http://10.0.0.1"}, AllowPlaintext: true},
		{ID: strings.Repeat("g", 256), Origins: []string{"https://g.example"}},
		{
			ID: "limits", Signals: fedhttp.Signals{Receipt: "X-Digest", PolicyDigest: "X-Digest", AnchorVersion: "X-Federation-Negotiation-Epoch", NegotiationEpoch: "X-Epoch", CorrelationID: "X-Federation-Correlation-ID"},
			Origins: []string{"https://l.example"}, RequireAnchor: true, Receipt: fedhttp.IgnoreReceipt, Propagation: fedhttp.PropagateNone,
			Breaker: fedhttp.BreakerPolicy{Failures: -1}, Hold: fedhttp.HoldPolicy{Max: -1}, Denial: fedhttp.DenialPolicy{HoldOff: -1},
			Retry:  fedhttp.RetryPolicy{MinBackoff: 1, MaxBackoff: 1},
			Routes: []fedhttp.Route{{Pattern: "GET /a/{id}"}, {Pattern: "/a/"}, {Pattern: "POST\t/a/{rest...}"}},
		},
	}})
}

// TestRouteCompletesTask: a route fills what the caller leaves open, and never
// takes an obligation away.
func TestRouteCompletesTask(t *testing.T) {
	t.Parallel()
	p := testPeer("b", stubURL)
	p.DefaultTerms = fedhttp.Terms{"residency": "eu", "licence": "open"}
	p.Hold.Max = -1
	p.Routes = []fedhttp.Route{
		{Pattern: "/", Task: fedhttp.Task{Capability: "all"}},
		{Pattern: "/v1/tasks", Task: fedhttp.Task{ID: "r", Capability: "route", Scope: "s", Obligations: fedhttp.Terms{"residency": "eu"}}},
	}
	var sends atomic.Int64
	tr := newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{p}, Logger: quietLogger, Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
		sends.Add(1)
		return answering(response(200))(r)
	})})
	for _, test := range []struct {
		task           fedhttp.Task
		capability, id string
		sent           bool
	}{
		{fedhttp.Task{}, "route", "r", true},
		{fedhttp.Task{ID: "mine", Capability: "own"}, "own", "mine", true},
		{fedhttp.Task{Obligations: fedhttp.Terms{"licence": "open"}}, "route", "r", true},
		{fedhttp.Task{Obligations: fedhttp.Terms{"licence": "closed"}}, "route", "r", false},
		{fedhttp.Task{Obligations: fedhttp.Terms{"residency": "us"}}, "route", "r", false},
	} {
		before := sends.Load()
		d, err := get(t, tr, test.task)
		if d.Capability != test.capability || d.TaskID != test.id {
			t.Errorf("%+v became capability %q, id %q; want %q, %q", test.task, d.Capability, d.TaskID, test.capability, test.id)
		}
		if sent := sends.Load() > before; sent != test.sent || errors.Is(err, fedhttp.ErrPolicyUnresolved) == sent {
			t.Errorf("%+v: sent %v, %v", test.task, sent, err)
		}
	}
}
