package fedtest_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

func TestStaleAnchorNeverReachesTheEngine(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{}, func(t *testing.T, p *fedtest.Peer) {
		old := p.Anchor().Version
		wantEqual(t, "status before", get(t, p, "/a", fedtest.HeaderAnchorVersion, old).status, 200)
		issued := p.Rotate().IssuedAt

		a := get(t, p, "/b", fedtest.HeaderAnchorVersion, old)
		wantEqual(t, "status", a.status, http.StatusForbidden)
		wantEqual(t, "content type", a.header.Get("Content-Type"), "application/problem+json")
		wantEqual(t, "evaluated", a.header.Get(fedtest.HeaderPolicyEvaluated), "false")
		wantEqual(t, "receipt", a.header.Get(fedtest.HeaderPolicyDigest), "")
		got, err := time.Parse(time.RFC3339, a.header.Get(fedtest.HeaderAnchorIssuedAt))
		if err != nil || !got.Equal(issued) {
			t.Errorf("anchor issued at %v, %v; want %v", got, err, issued)
		}
		id := a.header.Get(fedtest.HeaderCorrelationID)
		if layer, ok := p.Author(id); !strings.HasPrefix(id, "rt-") || !ok || layer != fedtest.LayerRouting {
			t.Errorf("correlation id %q of %q, %v", id, layer, ok)
		}
		problem := a.problem(t)
		wantEqual(t, "title", problem["title"], any("FederationDenied"))
		wantEqual(t, "correlation id in the body", problem["correlation_id"], any(id))

		wantEqual(t, "task", p.Task("/b"), fedtest.TaskRecord{ID: "/b", Client: "default", Sends: 1})
		wantEqual(t, "routing", p.Routing.Ledger(), fedtest.RoutingLedger{Requests: 2, Delivered: 1, MaxPerTask: 1})
		wantEqual(t, "evaluations", p.Engine.Ledger().Evaluations, 1)
		wantEqual(t, "logged id", p.Routing.Log()[1].CorrelationID, id)

		wantEqual(t, "status after", get(t, p, "/b", fedtest.HeaderAnchorVersion, p.Anchor().Version).status, 200)
		wantEqual(t, "sends", p.Sends("/b"), 2)
		wantEqual(t, "evaluations", p.Evaluations("/b"), 1)
	})
}

func TestAnchorChecks(t *testing.T) {
	t.Parallel()
	onlyStrict := func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/strict") }
	for _, tt := range []struct {
		name, path, version string
		cfg                 fedtest.Config
		want                int
	}{
		{"missing passes", "/a", "", fedtest.Config{}, 200},
		{"missing is stale", "/a", "", fedtest.Config{RequireAnchor: true}, 403},
		{"unknown is stale", "/a", "99", fedtest.Config{}, 403},
		{"unchecked", "/lax", "99", fedtest.Config{ChecksAnchor: onlyStrict, RequireAnchor: true}, 200},
		{"checked", "/strict", "99", fedtest.Config{ChecksAnchor: onlyStrict}, 403},
		{"status", "/a", "99", fedtest.Config{StaleStatus: 421}, 421},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := fedtest.NewUnstartedPeer(tt.cfg)
			defer p.Close()
			var header []string
			if tt.version != "" {
				header = []string{fedtest.HeaderAnchorVersion, tt.version}
			}
			wantEqual(t, "status", get(t, p, tt.path, header...).status, tt.want)
		})
	}
}

func TestAnchorEndpoint(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{AnchorTTL: time.Hour, RequireAnchor: true}, func(t *testing.T, p *fedtest.Peer) {
		fetch := func() (got fedtest.Anchor) {
			t.Helper()
			a, err := do(p.Client(), request(t, p.AnchorURL(), ""))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 {
				t.Fatalf("%d %q: %v", a.status, a.body, err)
			}
			return got
		}
		wantEqual(t, "anchor", fetch(), p.Anchor())
		wantEqual(t, "expiry", p.Anchor().ExpiresAt, p.Anchor().IssuedAt.Add(time.Hour))
		before := p.Anchor()
		after := p.Rotate()
		wantEqual(t, "version", before.Version+after.Version, "12")
		if !after.IssuedAt.After(before.IssuedAt) {
			t.Errorf("issued at %v, then at %v", before.IssuedAt, after.IssuedAt)
		}
		wantEqual(t, "fetches since rotation", p.AnchorFetchesSinceRotation(), 0)
		p.On(fedtest.AnchorPath, fedtest.RouteDrop(503))
		p.Script(fedtest.Hang()) // which the anchor endpoint must leave alone
		wantEqual(t, "scripted failure", get(t, p, fedtest.AnchorPath).status, 503)
		wantEqual(t, "anchor", fetch(), after)
		wantEqual(t, "fetches", p.AnchorFetches(), 3)
		wantEqual(t, "fetches since rotation", p.AnchorFetchesSinceRotation(), 2)
		wantEqual(t, "steps left", p.StepsLeft(), 1)

		past := fedtest.Anchor{Version: "old", IssuedAt: time.Unix(1, 0).UTC()}
		p.SetAnchor(past)
		wantEqual(t, "anchor", fetch(), past)
		wantEqual(t, "fetches since rotation", p.AnchorFetchesSinceRotation(), 1)
		wantEqual(t, "version", p.Rotate().Version, "3")
		wantEqual(t, "routing log", len(p.Routing.Log()), 0)
		wantEqual(t, "requests", p.Routing.Ledger().Requests, 0)
	})
}

// With the telling signals hidden, nothing but the number in the correlation
// id may differ between a request that was dropped and one that was denied.
func TestLayersLookTheSame(t *testing.T) {
	t.Parallel()
	eachMode(t, fedtest.Config{Hidden: fedtest.SignalsTelling}, func(t *testing.T, p *fedtest.Peer) {
		p.SetDegraded(true)
		p.On("routing", fedtest.RouteStale())
		p.On("policy", fedtest.Deny("SCOPE_NARROWED"))
		routing := get(t, p, "/", fedtest.HeaderTask, "routing")
		policy := get(t, p, "/", fedtest.HeaderTask, "policy")
		for _, a := range []*answer{&routing, &policy} {
			id := a.header.Get(fedtest.HeaderCorrelationID)
			if _, ok := p.Author(id); !ok {
				t.Errorf("no author of correlation id %q", id)
			}
			a.header.Set(fedtest.HeaderCorrelationID, "ID")
			a.header.Del("Date")
			a.body = strings.ReplaceAll(a.body, id, "ID")
		}
		wantEqual(t, "status", policy.status, routing.status)
		wantEqual(t, "body", policy.body, routing.body)
		if !maps.EqualFunc(routing.header, policy.header, slices.Equal) {
			t.Errorf("routing: %v\npolicy:  %v", routing.header, policy.header)
		}
		wantEqual(t, "sends", p.Sends("routing"), 1)
		wantEqual(t, "evaluations", p.Evaluations("routing"), 0)
		wantEqual(t, "evaluations", p.Evaluations("policy"), 1)
	})
}

func TestEachSignalHides(t *testing.T) {
	t.Parallel()
	p := fedtest.NewUnstartedPeer(fedtest.Config{})
	defer p.Close()
	p.SetDegraded(true)
	for signal, at := range map[fedtest.Signal]struct {
		step   fedtest.Step
		header string
	}{
		fedtest.SignalEvaluated:      {fedtest.Deny("NO"), fedtest.HeaderPolicyEvaluated},
		fedtest.SignalCorrelation:    {fedtest.Deny("NO"), fedtest.HeaderCorrelationID},
		fedtest.SignalReason:         {fedtest.Deny("NO"), fedtest.HeaderPolicyReason},
		fedtest.SignalAnchorIssuedAt: {fedtest.RouteStale(), fedtest.HeaderAnchorIssuedAt},
		fedtest.SignalReceipt:        {fedtest.Allow(), fedtest.HeaderPolicyDigest},
		fedtest.SignalDegraded:       {fedtest.RouteDrop(503), fedtest.HeaderDegraded},
	} {
		p.Script(at.step, fedtest.Hiding(signal, at.step), at.step, at.step)
		shown, hidden := get(t, p, "/"), get(t, p, "/")
		p.Hide(signal)
		hiddenByAll := get(t, p, "/")
		p.Hide(0)
		again := get(t, p, "/")
		for _, a := range []answer{shown, again} {
			if a.header.Get(at.header) == "" {
				t.Errorf("%s is absent", at.header)
			}
		}
		for _, a := range []answer{hidden, hiddenByAll} {
			if len(a.header.Values(at.header)) != 0 {
				t.Errorf("%s is not hidden", at.header)
			}
			if len(a.header) >= len(shown.header) {
				t.Errorf("hiding %s left %v", at.header, a.header)
			}
		}
	}
	p.Script(fedtest.Hiding(fedtest.SignalReason, fedtest.Deny("NO")), fedtest.Hiding(fedtest.SignalDetail, fedtest.Deny("NO")))
	wantEqual(t, "detail", get(t, p, "/").problem(t)["detail"], any("NO"))
	wantEqual(t, "hidden detail", get(t, p, "/").problem(t)["detail"], nil)
}
