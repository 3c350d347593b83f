package main

import (
	_ "embed" // the page's template and style
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

var (
	//go:embed page.html
	pageText string
	//go:embed page.css
	pageStyle string

	pageTemplate = template.Must(template.New("page").Parse(pageText))
)

// page is what page.html shows: one file that needs nothing but itself.
type page struct {
	Style     template.CSS // a constant of this program
	Made      time.Time
	Took      string
	Scale     int
	Incidents []incident
	Epilogues []epilogue
	Traces    []waterfall
	Search    string // URL; empty where no Jaeger has the traces
}

// incident is one of the two, with both clients' counts.
type incident struct {
	ID, Title, Story, Finding string
	Rows                      []barRow
	Note                      string
}

// epilogue is what happened besides.
type epilogue struct{ Title, Text string }

// barRow is a count for both clients, as two bars on a scale of their own.
type barRow struct {
	Label, CountedBy string
	Indented         bool
	Naive, Fedhttp   bar
}

// bar is one client's count. What is no number has no bar.
type bar struct {
	Text    string
	Counted bool
	Width   float64 // percent of the longer bar of the row
}

func newPage(r result, examples []*span, ui jaeger, start time.Time, took time.Duration) page {
	b, p := r.figures.Boundary, r.figures.Preflight
	made := page{
		Style: template.CSS(pageStyle), //nolint:gosec // a constant of this program
		Made:  start,
		Took:  fmt.Sprintf("%.1f s", took.Seconds()),
		Scale: timeScale,
		Incidents: []incident{
			{
				ID: "boundary", Title: "At the boundary: denied, or never arrived?",
				Story: fmt.Sprintf("A sends B %d tasks. B's policy denies %d of them, in %d scopes. "+
					"For the other %d, A's trust anchor is stale, so B's routing layer drops them before policy sees them. "+
					"Either way the answer is 403 FederationDenied with a correlation id. "+
					"The denied must not be sent again, and the dropped must.",
					b.Fedhttp.Tasks, deniedTasks, deniedScopes, droppedTasks),
				Finding: fmt.Sprintf("Denials on A's record: %d with the stock client, %d with fedhttp. Dropped tasks that ran in the end: %d and %d.",
					b.Naive.Denials, b.Fedhttp.Denials, b.Naive.Recovered, b.Fedhttp.Recovered),
				Rows: barRows(r.boundaryRows()),
			},
			{
				ID: "preflight", Title: "Before the send: seen, but not agreed",
				Story: fmt.Sprintf("%d tasks that need output-licensing: redistribution-permitted arrive while B's %d policies "+
					"are being negotiated. Until one is agreed, B runs what it gets under its default, internal-reuse-only. "+
					"%d of the tasks cannot wait for as long as their negotiation takes.",
					p.Fedhttp.Tasks, capabilities, inAHurry),
				Finding: fmt.Sprintf("Tasks run under the wrong policy: %d with the stock client, %d with fedhttp. Under the right one: %d and %d.",
					p.Naive.WrongPolicy, p.Fedhttp.WrongPolicy, p.Naive.RightPolicy, p.Fedhttp.RightPolicy),
				Rows: barRows(r.preflightRows()),
			},
		},
		Epilogues: []epilogue{
			{"Signals turned off.", r.signalsOff.String()},
			{"The other outcomes.", r.others.String()},
		},
		Traces: waterfalls(examples, ui),
	}
	if n := len(r.negotiations); n > 0 {
		made.Incidents[1].Note = negotiationsNote(r.negotiations)
	}
	if ui != "" {
		made.Search = ui.search()
	}
	return made
}

func barRows(rows []row) []barRow {
	made := make([]barRow, len(rows))
	for i, r := range rows {
		label := strings.TrimLeft(r.label, " ")
		longest := 0
		for _, value := range []any{r.naive, r.fedhttp} {
			if n, ok := value.(int); ok {
				longest = max(longest, n)
			}
		}
		made[i] = barRow{
			Label: label, Indented: label != r.label, CountedBy: r.countedBy,
			Naive: newBar(r.naive, longest), Fedhttp: newBar(r.fedhttp, longest),
		}
	}
	return made
}

func newBar(value any, longest int) bar {
	switch value := value.(type) {
	case int:
		made := bar{Text: fmt.Sprint(value), Counted: true}
		if longest > 0 {
			made.Width = 100 * float64(value) / float64(longest)
		}
		return made
	case bool:
		if value {
			return bar{Text: "yes"}
		}
		return bar{Text: "no"}
	}
	return bar{Text: fmt.Sprint(value)}
}

func writePage(w io.Writer, p page) error { return pageTemplate.Execute(w, p) }
