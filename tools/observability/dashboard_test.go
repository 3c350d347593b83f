package observability

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	grafana "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// dataSource is the dashboard's variable for its data source.
const dataSource = "${datasource}"

// variables of Grafana's own, and of the dashboard, and what stands for them here.
var variables = strings.NewReplacer(
	"$__rate_interval", "5m", "$__range", "20m", "$job", ".*", "$peer", ".*",
)

var (
	labelValues = regexp.MustCompile(`^label_values\((.+), *([a-z_]+)\)$`)
	legendLabel = regexp.MustCompile(`\{\{ *([^ }]*) *\}\}`)
)

// classicDashboard is the schema that Grafana 11 knows, and later ones take.
type classicDashboard = dashboard.Dashboard //nolint:staticcheck // deprecated for one that only later ones know

// readDashboard reads the dashboard as strictly as Grafana's schema has it.
func readDashboard(t *testing.T) classicDashboard {
	t.Helper()
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(bargauge.VariantConfig())
	runtime.RegisterPanelcfgVariant(statetimeline.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(grafana.VariantConfig())
	text, err := os.ReadFile(filepath.Join(docs, "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d classicDashboard
	// The strict reading finds all faults, and is of no use beyond that: its error
	// is one even without any, and it loses the panels then.
	var faults cog.BuildErrors
	if err := new(classicDashboard).UnmarshalJSONStrict(text); !errors.As(err, &faults) && err != nil || len(faults) > 0 {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDashboard checks the panels: names, data, legends, and what a reader needs.
func TestDashboard(t *testing.T) {
	t.Parallel()
	e := exported(t)
	past := e.replay()
	var asked []string
	ids, titles := map[uint32]bool{}, map[string]bool{}
	panels := 0
	for _, item := range readDashboard(t).Panels {
		p := item.Panel
		if p == nil {
			if row := item.RowPanel; ids[row.Id] || len(row.Panels) > 0 {
				t.Errorf("row %q: its id is another's, or it hides panels that nobody checks", *row.Title)
			} else {
				ids[row.Id] = true
			}
			continue
		}
		panels++
		title := deref(p.Title)
		fault := func(format string, args ...any) {
			t.Helper()
			t.Errorf("panel %q: "+format, append([]any{title}, args...)...)
		}
		if ids[*p.Id] || titles[title] || title == "" {
			fault("its id or title is another's")
		}
		ids[*p.Id], titles[title] = true, true
		if len(deref(p.Description)) < 40 {
			fault("its description does not say what to do")
		}
		for _, word := range e.unknownWords(deref(p.Description)) {
			fault("its description names %s, which is nothing", word)
		}
		if deref(p.FieldConfig.Defaults.Unit) == "" {
			fault("it has no unit")
		}
		if !usesVariable(p.Datasource) {
			fault("its data source is not %s", dataSource)
		}
		if _, known := cog.NewRuntime().ConfigForPanelcfgVariant(p.Type); !known {
			fault("its type %q is none that this check reads", p.Type)
		}
		if len(p.Targets) == 0 {
			fault("it asks for nothing")
		}
		for _, target := range p.Targets {
			q, ok := target.(*grafana.Dataquery)
			if !ok {
				fault("a query is a %T", target)
				continue
			}
			if !usesVariable(q.Datasource) {
				fault("a query's data source is not %s", dataSource)
			}
			expr := variables.Replace(q.Expr)
			found, faults := e.lookUp(expr)
			if len(faults) > 0 {
				fault("%s", list(faults))
				continue
			}
			asked = append(asked, found.metrics...)
			ofPeers := slices.DeleteFunc(slices.Clone(found.metrics), func(name string) bool { return !e.hasLabel(name, peerLabel) })
			if strings.Count(q.Expr, `job=~"$job"`) != len(found.metrics) || strings.Count(q.Expr, peerLabel+`=~"$peer"`) != len(ofPeers) {
				fault("a part of it does not follow the variables: %s", q.Expr)
			}
			shown, err := past.at(t.Context(), expr, replayed)
			switch {
			case err != nil:
				fault("%v in %s", err, expr)
			case len(shown) == 0 && !found.unseen:
				fault("the job's metrics show nothing for %s", expr)
			}
			for _, label := range legendLabel.FindAllStringSubmatch(deref(q.LegendFormat), -1) {
				has := func(l labels.Labels) bool { return l.Has(label[1]) }
				anywhere := false
				for _, s := range shown {
					anywhere = anywhere || has(s.Metric)
				}
				if !anywhere && len(shown) > 0 {
					fault("the legend's label %q is on no result of %s", label[1], expr)
				}
			}
		}
	}
	if panels < 10 {
		t.Errorf("only %d panels", panels)
	}
	for _, family := range e.unused(asked) {
		t.Errorf("no panel shows %s", family)
	}
}

// TestVariables checks the choices at the top of the dashboard.
func TestVariables(t *testing.T) {
	t.Parallel()
	e := exported(t)
	d := readDashboard(t)
	var got []string
	for _, v := range d.Templating.List {
		got = append(got, v.Name)
		if v.Type == dashboard.VariableTypeDatasource {
			continue
		}
		if !usesVariable(v.Datasource) || deref(v.AllValue) != ".*" {
			t.Errorf("$%s: its data source is not %s, or All does not mean .*, which takes in what has no peer", v.Name, dataSource)
		}
		text, _ := v.Query.Map["query"].(string)
		call := labelValues.FindStringSubmatch(text)
		if call == nil {
			t.Errorf("$%s: %q is no label_values(selector, label)", v.Name, text)
			continue
		}
		found, faults := e.lookUp(variables.Replace(call[1]))
		if len(faults) > 0 {
			t.Errorf("$%s: %s", v.Name, list(faults))
		}
		for _, metric := range found.metrics {
			if !e.hasLabel(metric, call[2]) {
				t.Errorf("$%s: %s has no label %q", v.Name, metric, call[2])
			}
		}
		if deref(v.Definition) != text {
			t.Errorf("$%s: its definition is not its query", v.Name)
		}
	}
	if want := []string{"datasource", "job", "peer"}; !slices.Equal(got, want) {
		t.Errorf("variables %q, want %q", got, want)
	}
	for _, a := range d.Annotations.List {
		t.Errorf("annotation %q: nobody checks it", a.Name)
	}
}

func usesVariable(ds *common.DataSourceRef) bool {
	return ds != nil && deref(ds.Type) == "prometheus" && deref(ds.Uid) == dataSource
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// replayed is a time at which a query finds what the job did.
const replayed = 30 * time.Minute

// replay is the job as a Prometheus sees it that scrapes it every 15 s for half
// an hour. It was idle for a third of that, and then its counters rose evenly.
func (e *exposition) replay() *memory {
	m := &memory{}
	for name, metric := range e.metrics {
		for _, s := range metric.series {
			with := labels.NewBuilder(labels.FromMap(s.labels))
			with.Set(model.MetricNameLabel, name)
			with.Set("job", "example")
			with.Set("instance", "127.0.0.1:9464")
			kept := m.series(with.Labels())
			for at := time.Duration(0); at <= replayed; at += 15 * time.Second {
				value := s.value
				if metric.counter {
					value *= max(0, (at-replayed/3).Seconds()) / (replayed * 2 / 3).Seconds()
				}
				kept.add(at, value)
			}
		}
	}
	return m
}

// TestMisspelled shows that a wrong name is found, whatever part of a query it is.
func TestMisspelled(t *testing.T) {
	t.Parallel()
	e := exported(t)
	for _, c := range []struct{ expr, fault string }{
		{`federation_client_decisions_total{federation_outcome="ambiguous"}`, ""},
		{`federation_client_decisions_total{federation_outcome=~"ambiguous|canceled", job="a"}`, ""},
		{`sum by (job, federation_peer_id) (federation_client_held)`, ""},
		{`federation_client_decisions_total{federation_reason="hold_full"}`, ""}, // which the job does not show
		{`federation_client_hold_duration_seconds_bucket{federation_reason="", le="5"}`, ""},
		{`federation_client_decision_total`, "no metric"},
		{`federation_client_decisions`, "no metric"},
		{`federation_client_hold_duration_seconds`, "no metric"},
		{`{__name__="federation_client_decision_total"}`, "no metric"},
		{`{federation_outcome="ambiguous"}`, "no metric"},
		{`rate(federation_client_decision_total[5m])`, "no metric"},
		{`federation_client_decisions_total{outcome="ambiguous"}`, `no label "outcome"`},
		{`federation_client_held{federation_outcome="ambiguous"}`, `no label "federation_outcome"`},
		{`federation_client_decisions_total{le="5"}`, `no label "le"`},
		{`sum by (peer) (federation_client_held)`, `no label "peer"`},
		{`sum without (peer) (federation_client_held)`, `no label "peer"`},
		{`federation_client_held * on (federation_outcome) federation_client_held`, `no label "federation_outcome"`},
		{`federation_client_held * ignoring (peer) federation_client_held`, `no label "peer"`},
		{`federation_client_held * on (job) group_left (federation_outcome) federation_client_held`, `no label "federation_outcome"`},
		{`federation_client_decisions_total{federation_outcome="ambigous"}`, `"ambigous" is no outcome`},
		{`federation_client_decisions_total{federation_outcome!="ambigous"}`, `"ambigous" is no outcome`},
		{`federation_client_decisions_total{federation_outcome=""}`, "always has federation_outcome"},
		{`federation_client_decisions_total{federation_outcome=~"ambiguous|cancelled"}`, `"cancelled" is no outcome`},
		{`federation_client_decisions_total{federation_outcome=~"ambig.*"}`, "no list of values"},
		{`federation_client_decisions_total{federation_reason="no-signal"}`, `"no-signal" is no reason`},
		{`federation_client_attempts_total{federation_verdict="policy"}`, `"policy" is no verdict`},
		{`federation_client_attempts_total{federation_resend="yes"}`, `no federation_resend is "yes"`},
		{`federation_client_escalations_total{federation_escalation_kind="mismatch"}`, `"mismatch" is no escalation kind`},
		{`federation_client_anchor_refreshes_total{federation_anchor_result="error"}`, "error is none of"},
		{`federation_client_breaker_state{federation_breaker_state="half_open"}`, `no federation_breaker_state is "half_open"`},
		{`http_client_request_duration_seconds_count{otel_scope_name=~"fedhttp|"}`, "fedhttp"},
		{`http_client_request_duration_seconds_count{server_address=~"peer.*"}`, "no server_address is like"},
		{`label_replace(federation_client_held, "x", "$1", "job", "(.*)")`, "makes labels"},
		{`federation_client_held{`, "parse error"},
	} {
		_, faults := e.lookUp(c.expr)
		if got := list(faults); (c.fault == "") != (got == "") || !strings.Contains(got, c.fault) {
			t.Errorf("%s\nis judged %q, want %q", c.expr, got, c.fault)
		}
	}
	if got := e.unused([]string{"federation_client_held"}); len(got) != len(e.families)-1 || slices.Contains(got, "federation_client_held") {
		t.Errorf("unused: %q", got)
	}
	if name := fmt.Sprint(names.FindString("see `federation_client_helt`.")); e.known(name) {
		t.Errorf("%s is known", name)
	}
}
