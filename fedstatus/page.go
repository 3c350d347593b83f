package fedstatus

import (
	"crypto/sha256"
	_ "embed" // the page and its style
	"encoding/base64"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"time"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
)

// contentSecurityPolicy allows the page's own style, by its hash, and nothing else.
var contentSecurityPolicy = func() string {
	hash := sha256.Sum256([]byte(pageCSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) +
		"'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}()

// page is executed with a Status. html/template escapes each value for its place
// once more.
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"style":  func() template.CSS { return template.CSS(pageCSS) },
	"moment": newMoment,
	"span":   span,
	"count":  count,
	"words":  func(token any) string { return strings.ReplaceAll(fmt.Sprint(token), "_", " ") },
	"counted": func(s Status) []string {
		var all []string
		for _, p := range problems {
			switch n := s.Summary.Problems[p]; {
			case n == 0:
			case p == ProblemEscalations:
				all = append(all, fmt.Sprintf("%d with escalations (%d, the last %s)", n, s.Summary.RecentEscalations, newMoment(s.At, s.Summary.LastEscalationAt).Relative))
			default:
				all = append(all, fmt.Sprintf("%d %s", n, strings.ReplaceAll(string(p), "_", " ")))
			}
		}
		return all
	},
	"grave": func(p Problem) bool {
		return slices.Index(problems, p) <= slices.Index(problems, ProblemEscalations)
	},
}).Parse(pageHTML))

// moment is a time as the page shows it.
type moment struct{ Machine, Absolute, Relative string }

func newMoment(now, t time.Time) moment {
	m := moment{Machine: t.Format(time.RFC3339), Absolute: t.Format("2006-01-02 15:04:05 UTC")}
	switch ahead := t.Sub(now); {
	case ahead >= time.Second:
		m.Relative = "in " + span(ahead.Seconds())
	case ahead <= -time.Second:
		m.Relative = span(-ahead.Seconds()) + " ago"
	default:
		m.Relative = "just now"
	}
	return m
}

// span is a number of seconds in the two greatest units that it has.
func span(seconds float64) string {
	s := int64(math.Max(0, seconds))
	for i, unit := range units {
		if s < unit.seconds && unit.seconds > 1 {
			continue
		}
		text := fmt.Sprintf("%d %s", s/unit.seconds, unit.name)
		if i+1 < len(units) {
			if rest := s % unit.seconds / units[i+1].seconds; rest > 0 {
				text += fmt.Sprintf(" %d %s", rest, units[i+1].name)
			}
		}
		return text
	}
	return ""
}

var units = []struct {
	seconds int64
	name    string
}{{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}}

// count is n with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
