package observability

import (
	"encoding"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/fedhttp/fedhttp"
)

var promQL = parser.NewParser(parser.Options{})

// targetLabels are those that Prometheus itself adds when it scrapes.
var targetLabels = []string{"job", "instance"}

const peerLabel = "federation_peer_id"

// closedSets have every value that a label can have, whether or not the job has
// an example of it. The values of other labels are those that it shows.
var closedSets = map[string]func() encoding.TextUnmarshaler{
	"federation_outcome":         func() encoding.TextUnmarshaler { return new(fedhttp.Outcome) },
	"federation_reason":          func() encoding.TextUnmarshaler { return new(fedhttp.Reason) },
	"federation_verdict":         func() encoding.TextUnmarshaler { return new(fedhttp.Verdict) },
	"federation_escalation_kind": func() encoding.TextUnmarshaler { return new(fedhttp.EscalationKind) },
	"federation_anchor_result":   func() encoding.TextUnmarshaler { return anchorResults },
}

// anchorResults are the results of a refresh, which have no type of their own.
var anchorResults = tokens{"failed", "confirmed", "advanced"}

type tokens []string

// UnmarshalText returns an error unless text is one of the tokens.
func (s tokens) UnmarshalText(text []byte) error {
	if !slices.Contains(s, string(text)) {
		return fmt.Errorf("%s is none of %q", text, []string(s))
	}
	return nil
}

// query is one PromQL expression and what it names.
type query struct {
	expr    parser.Expr
	metrics []string
	// unseen: it asks for values that are right, and that the job does not show.
	unseen bool
}

// lookUp parses an expression, and returns what is wrong with its names.
func (e *exposition) lookUp(text string) (query, []error) {
	expr, err := promQL.ParseExpr(text)
	if err != nil {
		return query{}, []error{fmt.Errorf("%w in %s", err, text)}
	}
	q := query{expr: expr}
	var faults []error
	fault := func(err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("%w in %s", err, text))
		}
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			q.metrics = append(q.metrics, n.Name)
			for _, m := range n.LabelMatchers {
				if m.Name != model.MetricNameLabel {
					seen, err := e.matcher(n.Name, m)
					q.unseen = q.unseen || !seen
					fault(err)
				}
			}
			if e.metrics[n.Name] == nil {
				fault(fmt.Errorf("no metric %q", n.Name))
			}
		case *parser.AggregateExpr:
			fault(e.have(n.Grouping, n.Expr))
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				fault(e.have(slices.Concat(n.VectorMatching.MatchingLabels, n.VectorMatching.Include), n))
			}
		case *parser.Call:
			switch n.Func.Name {
			case "label_replace", "label_join", "absent", "absent_over_time":
				fault(fmt.Errorf("%s makes labels, which this check does not follow,", n.Func.Name))
			}
		}
		return nil
	})
	return q, faults
}

// have returns an error unless each metric under node has each of the labels.
func (e *exposition) have(names []string, node parser.Node) error {
	for _, selectors := range parser.ExtractSelectors(node.(parser.Expr)) {
		for _, m := range selectors {
			if m.Name != model.MetricNameLabel {
				continue
			}
			for _, name := range names {
				if !e.hasLabel(m.Value, name) {
					return fmt.Errorf("%s has no label %q", m.Value, name)
				}
			}
		}
	}
	return nil
}

func (e *exposition) hasLabel(metric, label string) bool {
	if slices.Contains(targetLabels, label) {
		return true
	}
	m := e.metrics[metric]
	return m != nil && m.labels[label] != nil
}

// lacks reports whether there is a series without the label.
func (m *metric) lacks(label string) bool {
	return slices.ContainsFunc(m.series, func(s series) bool { return s.labels[label] == "" })
}

// matcher looks up the label of a matcher and the values that it names, and
// reports whether the job shows all of them.
func (e *exposition) matcher(metric string, m *labels.Matcher) (seen bool, err error) {
	if !e.hasLabel(metric, m.Name) {
		return false, fmt.Errorf("%s has no label %q", metric, m.Name)
	}
	if slices.Contains(targetLabels, m.Name) || m.Name == peerLabel {
		return true, nil // any value may be right
	}
	shown := e.metrics[metric].labels[m.Name]
	values := []string{m.Value}
	if m.Type == labels.MatchRegexp || m.Type == labels.MatchNotRegexp {
		if values = m.SetMatches(); len(values) == 0 && closedSets[m.Name] == nil {
			// No list of values. It is right where it means any that there is.
			matches := regexp.MustCompile("^(?:" + m.Value + ")$").MatchString
			if !slices.ContainsFunc(slices.Collect(maps.Keys(shown)), matches) {
				return false, fmt.Errorf("%s: no %s is like %q", metric, m.Name, m.Value)
			}
			return true, nil
		}
		if len(values) == 0 {
			return false, fmt.Errorf("%s: %q is no list of values of %s", metric, m.Value, m.Name)
		}
	}
	seen = true
	for _, value := range values {
		switch set := closedSets[m.Name]; {
		case value == "" && e.metrics[metric].lacks(m.Name) || shown[value]:
		case value == "" && m.Type != labels.MatchRegexp:
			return false, fmt.Errorf("%s always has %s", metric, m.Name)
		case set == nil:
			return false, fmt.Errorf("%s: no %s is %q", metric, m.Name, value)
		default:
			seen = false
			if err := set().UnmarshalText([]byte(value)); err != nil {
				return false, fmt.Errorf("%s: %s: %w", metric, m.Name, err)
			}
		}
	}
	return seen, nil
}

// names are words that look like metrics of fedhttp.
var names = regexp.MustCompile(`\b(?:federation_client|http_client)_[a-z_]+\b`)

// known reports whether a query can use the name, or it is a histogram's.
func (e *exposition) known(name string) bool {
	return e.metrics[name] != nil || e.families[name] != nil
}

// tokenInText is a word that can only be a name.
var tokenInText = regexp.MustCompile(`\b[a-z]+(?:_[a-z]+)+\b`)

// unknownWords returns the words of a text for people that look like a name and
// are none: no metric, no label of one, and no value of a label.
func (e *exposition) unknownWords(text string) (unknown []string) {
	for _, word := range tokenInText.FindAllString(text, -1) {
		known := e.known(word)
		for _, m := range e.metrics {
			known = known || m.labels[word] != nil
		}
		for _, set := range closedSets {
			known = known || set().UnmarshalText([]byte(word)) == nil
		}
		if !known {
			unknown = append(unknown, word)
		}
	}
	return unknown
}

// unused returns the families of fedhttp that none of the queries asks for.
func (e *exposition) unused(asked []string) (unused []string) {
	for family, names := range e.families {
		if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(asked, name) }) {
			unused = append(unused, family)
		}
	}
	slices.Sort(unused)
	return unused
}

// list is for messages.
func list(faults []error) string {
	var texts []string
	for _, err := range faults {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "\n")
}
