package observability

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
	"go.yaml.in/yaml/v3"
)

const (
	rulesFile = "alerts.yaml"
	testsFile = "alerts_test.yaml"
)

// readRules reads the alerts as Prometheus does.
func readRules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join(docs, rulesFile), false, model.LegacyValidation, promQL, slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(list(errs))
	}
	var rules []rulefmt.Rule
	for _, group := range groups.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules
}

var labelInText = regexp.MustCompile(`\$labels\.([a-zA-Z_]+)`)

// TestAlerts checks the names in the rules, and what a reader needs.
func TestAlerts(t *testing.T) {
	t.Parallel()
	e := exported(t)
	seen := map[string]bool{}
	for _, rule := range readRules(t) {
		if rule.Alert == "" || seen[rule.Alert] {
			t.Errorf("%q: no alert, or its name is another's", rule.Alert+rule.Record)
		}
		seen[rule.Alert] = true
		if _, faults := e.lookUp(rule.Expr); len(faults) > 0 {
			t.Errorf("%s: %s", rule.Alert, list(faults))
		}
		if severity := rule.Labels["severity"]; severity != "warning" && severity != "critical" {
			t.Errorf("%s: its severity is %q", rule.Alert, severity)
		}
		for _, name := range []string{"summary", "description", "action"} {
			if len(rule.Annotations[name]) < 20 {
				t.Errorf("%s: it has no %s", rule.Alert, name)
			}
			for _, word := range e.unknownWords(rule.Annotations[name]) {
				t.Errorf("%s: its %s names %s, which is nothing", rule.Alert, name, word)
			}
		}
	}
}

// ruleTests is as much of promtool's format as the tests of the alerts use.
type ruleTests struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []ruleTest     `yaml:"tests"`
}

type ruleTest struct {
	Name        string         `yaml:"name"`
	Interval    model.Duration `yaml:"interval"`
	InputSeries []struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	} `yaml:"input_series"`
	Expectations []struct {
		Expr       string         `yaml:"expr"`
		EvalTime   model.Duration `yaml:"eval_time"`
		ExpSamples []struct {
			Labels string  `yaml:"labels"`
			Value  float64 `yaml:"value"`
		} `yaml:"exp_samples"`
	} `yaml:"promql_expr_test"`
}

func readRuleTests(t *testing.T) ruleTests {
	t.Helper()
	file, err := os.Open(filepath.Join(docs, testsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var tests ruleTests
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	if err := decoder.Decode(&tests); err != nil {
		t.Fatal(err)
	}
	return tests
}

// TestAlertsFire runs alerts_test.yaml, and checks that each alert fires
// somewhere in it, and somewhere does not.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	e, rules, tests := exported(t), readRules(t), readRuleTests(t)
	if !slices.Equal(tests.RuleFiles, []string{rulesFile}) {
		t.Errorf("it tests %q", tests.RuleFiles)
	}
	fired := map[string]bool{}
	for _, test := range tests.Tests {
		t.Run(test.Name, func(t *testing.T) {
			past := test.input(t, e)
			var last time.Duration
			for _, want := range test.Expectations {
				last = max(last, time.Duration(want.EvalTime))
			}
			for _, rule := range rules {
				state := alert{rule: rule, since: map[string]time.Duration{}}
				for at := time.Duration(0); at <= last; at += time.Duration(tests.EvaluationInterval) {
					if err := state.evaluate(t.Context(), past, at); err != nil {
						t.Fatalf("%s after %v: %v", rule.Alert, at, err)
					}
				}
			}
			for _, expected := range test.Expectations {
				at := time.Duration(expected.EvalTime)
				vector, err := past.at(t.Context(), expected.Expr, at)
				if err != nil {
					t.Fatal(err)
				}
				var got, want []string
				for _, s := range vector {
					got = append(got, fmt.Sprint(s.Metric, s.F))
					fired[s.Metric.Get(labels.AlertName)] = true
				}
				for _, s := range expected.ExpSamples {
					of, err := promQL.ParseMetric(s.Labels)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, fmt.Sprint(of, s.Value))
				}
				slices.Sort(got)
				slices.Sort(want)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("after %v (-want +got)\n%s", at, diff)
				}
			}
		})
	}
	for _, rule := range rules {
		if !fired[rule.Alert] {
			t.Errorf("%s: no test has it firing", rule.Alert)
		}
	}
}

// input is the series of the test, whose names are looked up as well: a rule that
// fires for a series which nobody exports does not fire.
func (test ruleTest) input(t *testing.T, e *exposition) *memory {
	t.Helper()
	m := &memory{}
	for _, in := range test.InputSeries {
		of, values, err := promQL.ParseSeriesDesc(in.Series + " " + in.Values)
		if err != nil {
			t.Fatal(err)
		}
		if _, faults := e.lookUp(in.Series); len(faults) > 0 {
			t.Error(list(faults))
		}
		kept := m.series(of)
		for i, v := range values {
			if !v.Omitted {
				kept.add(time.Duration(i)*time.Duration(test.Interval), v.Value)
			}
		}
	}
	return m
}

// alert is a rule that is evaluated time after time.
type alert struct {
	rule    rulefmt.Rule
	since   map[string]time.Duration // when each of its alerts became active
	written map[*keptSeries]bool     // by the last evaluation
}

// evaluate adds the ALERTS series that Prometheus would.
func (a *alert) evaluate(ctx context.Context, past *memory, at time.Duration) error {
	vector, err := past.at(ctx, a.rule.Expr, at)
	if err != nil {
		return err
	}
	active, written := map[string]time.Duration{}, map[*keptSeries]bool{}
	for _, s := range vector {
		if err := a.expand(ctx, s, at); err != nil {
			return err
		}
		with := labels.NewBuilder(s.Metric)
		for name, text := range a.rule.Labels {
			with.Set(name, text)
		}
		with.Set(labels.AlertName, a.rule.Alert)
		with.Set(model.MetricNameLabel, "ALERTS")
		key := with.Labels().String()
		if _, twice := active[key]; twice {
			return fmt.Errorf("two alerts have the labels %s", key)
		}
		active[key] = at
		if since, ok := a.since[key]; ok {
			active[key] = since
		}
		state := "pending"
		if at-active[key] >= time.Duration(a.rule.For) {
			state = "firing"
		}
		series := past.series(with.Set("alertstate", state).Labels())
		series.add(at, 1)
		written[series] = true
	}
	for series := range a.written {
		if !written[series] {
			series.add(at, math.Float64frombits(value.StaleNaN)) // it has ended
		}
	}
	a.since, a.written = active, written
	return nil
}

// expand checks that the annotations come to texts.
func (a *alert) expand(ctx context.Context, s promql.Sample, at time.Duration) error {
	for name, text := range a.rule.Annotations {
		for _, label := range labelInText.FindAllStringSubmatch(text, -1) {
			if s.Metric.Get(label[1]) == "" {
				return fmt.Errorf("%s: the alert has no label %q", name, label[1])
			}
		}
		defined := `{{$labels := .Labels}}{{$value := .Value}}` + text
		data := template.AlertTemplateData(s.Metric.Map(), nil, "", s)
		expander := template.NewTemplateExpander(ctx, defined, a.rule.Alert, data, model.Time(at.Milliseconds()), nil, nil, nil)
		if out, err := expander.Expand(); err != nil || strings.Contains(out, "%!") || strings.Contains(out, "<no value>") {
			return fmt.Errorf("%s comes to %q: %w", name, out, err)
		}
	}
	return nil
}
