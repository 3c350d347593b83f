package fedtest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

func TestDenial(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{Policy: narrowed}, func(t *testing.T, p *fedtest.Peer) {
		a := get(t, p, "/translate/1", "X-Scope", "narrowed")
		wantEqual(t, "status", a.status, http.StatusForbidden)
		wantEqual(t, "evaluated", a.header.Get(fedtest.HeaderPolicyEvaluated), "true")
		wantEqual(t, "reason", a.header.Get(fedtest.HeaderPolicyReason), "SCOPE_NARROWED")
		wantEqual(t, "receipt", a.header.Get(fedtest.HeaderPolicyDigest), "")
		id := a.header.Get(fedtest.HeaderCorrelationID)
		if layer, _ := p.Author(id); !strings.HasPrefix(id, "pe-") || layer != fedtest.LayerPolicy {
			t.Errorf("correlation id %q of %q", id, layer)
		}
		wantEqual(t, "detail", a.problem(t)["detail"], any("SCOPE_NARROWED"))

		e := p.Engine.Log()[0]
		wantEqual(t, "verdict", e.Verdict+" "+e.Reason+" "+e.CorrelationID, "deny SCOPE_NARROWED "+id)
		wantEqual(t, "ran under", e.RanDigest, "")
		wantEqual(t, "capability", e.Capability, "translate")
		wantEqual(t, "task", p.Task("/translate/1"), fedtest.TaskRecord{
			ID: "/translate/1", Client: "default", Sends: 1, Delivered: 1, Evaluations: 1, Denials: 1,
		})
	})
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	p := fedtest.NewUnstartedPeer(fedtest.Config{Policy: func(r fedtest.Request) fedtest.Verdict {
		return fedtest.Verdict{
			Deny: r.Task == "limited", Status: http.StatusTooManyRequests,
			Header: http.Header{"Retry-After": {"7"}, fedtest.HeaderCorrelationID: {"a", "b"}},
		}
	}})
	defer p.Close()
	limited := get(t, p, "/", fedtest.HeaderTask, "limited")
	wantEqual(t, "status", limited.status, http.StatusTooManyRequests)
	wantEqual(t, "retry after", limited.header.Get("Retry-After"), "7")
	if ids := limited.header.Values(fedtest.HeaderCorrelationID); !reflect.DeepEqual(ids, []string{"a", "b"}) {
		t.Errorf("correlation ids %q", ids)
	}
	wantEqual(t, "reason", len(limited.header.Values(fedtest.HeaderPolicyReason)), 0)
	wantEqual(t, "allowed", get(t, p, "/").header.Get("Retry-After"), "7")
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{Policy: narrowed, QuarantineAt: 3}, func(t *testing.T, p *fedtest.Peer) {
		for i := range 5 {
			get(t, p, fmt.Sprint("/task/", i%2), "X-Scope", "narrowed")
		}
		p.Script(fedtest.Allow()) // which no quarantined client gets
		wantEqual(t, "status", get(t, p, "/task/9").status, http.StatusForbidden)
		wantEqual(t, "status of another", get(t, p, "/", fedtest.HeaderClient, "other").status, 200)
		wantEqual(t, "reason", p.Engine.Log()[5].Reason, fedtest.ReasonQuarantined)

		l := p.Engine.LedgerOf(fedtest.DefaultClient)
		if l.QuarantinedAt.IsZero() {
			t.Error("no time of the quarantine")
		}
		want := fedtest.EngineLedger{
			Evaluations: 6, Denials: 6, RefusedInQuarantine: 3,
			MaxEvaluationsPerTask: 3, MaxDenialsPerTask: 3, Quarantined: true, QuarantinedAt: l.QuarantinedAt,
		}
		wantEqual(t, "ledger", l, want)
		wantEqual(t, "other's ledger", p.Engine.LedgerOf("other"), fedtest.EngineLedger{Evaluations: 1, MaxEvaluationsPerTask: 1})
		want.Evaluations++
		wantEqual(t, "sum", p.Engine.Ledger(), want)
		wantEqual(t, "clients", strings.Join(p.Clients(), " "), "default other")
		wantEqual(t, "routing", p.Routing.LedgerOf("other"), fedtest.RoutingLedger{Requests: 1, Delivered: 1, MaxPerTask: 1})
		wantEqual(t, "stranger", p.Routing.LedgerOf("none"), fedtest.RoutingLedger{})
		wantEqual(t, "stranger", p.Engine.LedgerOf("none"), fedtest.EngineLedger{})
		wantEqual(t, "tasks", len(p.Tasks()), 4)
		wantEqual(t, "first task", p.Tasks()[0].ID, "/task/0")
	})
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	terms := map[string]string{"output-licensing": "redistribution-permitted"}
	offer := fedtest.Advertisement{Capability: "translate", Epoch: 7, Digest: fedtest.Digest(terms), Terms: terms}
	byDefault := fedtest.Digest(map[string]string{"output-licensing": "internal-reuse-only"})

	eachMode(t, fedtest.Config{}, func(t *testing.T, p *fedtest.Peer) {
		send := func(client, epoch, digest string) answer {
			t.Helper()
			return get(t, p, "/translate/1", fedtest.HeaderClient, client,
				fedtest.HeaderNegotiationEpoch, epoch, fedtest.HeaderPolicyDigest, digest)
		}
		receipt := func(what string, a answer, want string) {
			t.Helper()
			wantEqual(t, what, a.header.Get(fedtest.HeaderPolicyDigest), want)
			log := p.Engine.Log()
			wantEqual(t, what+": logged", log[len(log)-1].RanDigest, want)
			wantEqual(t, what+": agreed", log[len(log)-1].Agreed, want == offer.Digest)
		}
		p.Advertise(fedtest.Advertisement{Capability: "summarise", Epoch: 1, Digest: "d"})
		p.Advertise(offer)
		receipt("advertised only", send("us", "7", offer.Digest), byDefault)
		p.Agree("us", offer)
		receipt("agreed", send("us", "7", offer.Digest), offer.Digest)
		receipt("another epoch", send("us", "8", offer.Digest), byDefault)
		receipt("no number", send("us", "seven", offer.Digest), byDefault)
		receipt("another digest", send("us", "7", "sha256:0"), byDefault)
		receipt("another client", send("them", "7", offer.Digest), byDefault)
		receipt("no digest", get(t, p, "/translate/1"), byDefault)
		p.Agree("", offer)
		receipt("every client", send("them", "7", offer.Digest), offer.Digest)
		p.Revoke("", offer)
		receipt("revoked", send("them", "7", offer.Digest), byDefault)

		e := p.Engine.Log()[1]
		wantEqual(t, "asked", e.AskedDigest+" "+e.AskedEpoch, offer.Digest+" 7")
		wantEqual(t, "terms", e.RanTerms["output-licensing"], "redistribution-permitted")

		var got []fedtest.Advertisement
		a, err := do(p.Client(), request(t, p.CapabilitiesURL(), ""))
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || !reflect.DeepEqual(got, p.Advertisements()) {
			t.Errorf("%s: %v; want %v", a.body, err, p.Advertisements())
		}
		wantEqual(t, "advertised", len(got), 2)
		p.Withdraw("summarise")
		wantEqual(t, "advertised", len(p.Advertisements()), 1)
	})
}

func TestReceiptAndHandler(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{
		Receipt: func(r fedtest.Request) string { return r.Header.Get("X-Receipt") },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.Copy(w, r.Body)
		}),
	}, func(t *testing.T, p *fedtest.Peer) {
		a, err := do(p.Client(), request(t, p.URL, "body", "X-Receipt", "forged"))
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, "answer", fmt.Sprint(a.status, a.body), "418body")
		wantEqual(t, "receipt", a.header.Get(fedtest.HeaderPolicyDigest), "forged")
		wantEqual(t, "no receipt", len(get(t, p, "/").header.Values(fedtest.HeaderPolicyDigest)), 0)
	})
}

func TestEngineDown(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{}, func(t *testing.T, p *fedtest.Peer) {
		wantEqual(t, "before", get(t, p, "/").status, 200)
		p.StopEngine()
		p.StopEngine()
		down := get(t, p, "/")
		wantEqual(t, "down", down.status, http.StatusBadGateway)
		wantEqual(t, "evaluated", down.header.Get(fedtest.HeaderPolicyEvaluated), "false")
		p.StartEngine()
		p.StartEngine()
		wantEqual(t, "after", get(t, p, "/").status, 200)
		wantEqual(t, "task", p.Task("/"), fedtest.TaskRecord{ID: "/", Client: "default", Sends: 3, Delivered: 2, Evaluations: 2})
	})
}

// An engine that breaks off has counted the request, and a routing layer that
// does not know must not claim that policy was not evaluated.
func TestSeparateEngineBreaksOff(t *testing.T) {
	t.Parallel()
	fedtest.CheckLeaks(t)
	p := fedtest.NewPeer(fedtest.Config{
		SeparateEngine: true,
		ErrorLog:       discardLog,
		Handler:        http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
	})
	defer p.Close()
	a := get(t, p, "/")
	wantEqual(t, "status", a.status, http.StatusBadGateway)
	wantEqual(t, "evaluated", len(a.header.Values(fedtest.HeaderPolicyEvaluated)), 0)
	if id := a.header.Get(fedtest.HeaderCorrelationID); id == "" || strings.HasPrefix(id, "rt-") {
		t.Errorf("correlation id %q", id)
	}
	wantEqual(t, "task", p.Task("/"), fedtest.TaskRecord{ID: "/", Client: "default", Sends: 1, Delivered: 1, Evaluations: 1})
}

func TestSeparateEngineByItself(t *testing.T) {
	t.Parallel()
	fedtest.CheckLeaks(t)
	p := fedtest.NewPeer(fedtest.Config{SeparateEngine: true})
	defer p.Close()
	a, err := do(p.Client(), request(t, p.EngineURL()+"/past?q=1;2", "", "X-Fedtest-Exchange", "1", "Forwarded", "for=x"))
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "status", a.status, 200)
	wantEqual(t, "task", p.Task("/past"), fedtest.TaskRecord{ID: "/past", Client: "default", Evaluations: 1})
	get(t, p, "/through?q=1;2", "X-Fedtest-Exchange", "1", "Forwarded", "for=x")
	log := p.Engine.Log()
	for _, e := range log {
		wantEqual(t, "query", e.Query, "q=1;2")
		wantEqual(t, "forwarded", e.Header.Get("Forwarded"), "for=x")
		wantEqual(t, "exchange", e.Header.Get("X-Fedtest-Exchange"), "")
	}
	wantEqual(t, "host", log[1].Host, strings.TrimPrefix(p.URL, "http://"))
	wantEqual(t, "engine URL of another", newPeer(t, fedtest.Config{}).EngineURL(), "")
}
