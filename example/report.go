package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// figures is the job's result: what -json prints.
type figures struct {
	Boundary  pair[boundaryFigures]  `json:"boundary"`
	Preflight pair[preflightFigures] `json:"preflight"`
}

// pair is the same count for both clients.
type pair[T any] struct {
	Naive   T `json:"naive"`
	Fedhttp T `json:"fedhttp"`
}

// promise is a figure, whether it is as promised, and what that would be.
type promise struct {
	kept  bool
	name  string
	value any
	want  string
}

func missedOf(promises []promise) (missed []string) {
	for _, p := range promises {
		if !p.kept {
			missed = append(missed, fmt.Sprintf("%s is %v, want %s", p.name, p.value, p.want))
		}
	}
	return missed
}

// missed names the figures that are not what the job promises.
func (f figures) missed() []string {
	p := f.Preflight
	return append(missedBoundary(f.Boundary), missedOf([]promise{
		{p.Naive.WrongPolicy == capabilities*perCapability-inAHurry, "preflight.naive.wrong_policy", p.Naive.WrongPolicy, "1087"},
		{p.Fedhttp.SentBeforeAgreement == 0, "preflight.fedhttp.sent_before_agreement", p.Fedhttp.SentBeforeAgreement, "0"},
		{p.Fedhttp.WrongPolicy == 0, "preflight.fedhttp.wrong_policy", p.Fedhttp.WrongPolicy, "0"},
		{p.Fedhttp.RightPolicy == capabilities*perCapability-inAHurry, "preflight.fedhttp.right_policy", p.Fedhttp.RightPolicy, "1087"},
		{p.Fedhttp.Pending == inAHurry, "preflight.fedhttp.pending", p.Fedhttp.Pending, "53"},
	})...)
}

// missedBoundary is missed of the first incident.
func missedBoundary(b pair[boundaryFigures]) []string {
	return missedOf([]promise{
		{b.Naive.MaxSendsPerDeniedTask == 4, "boundary.naive.max_sends_per_denied_task", b.Naive.MaxSendsPerDeniedTask, "4"},
		{b.Naive.Quarantined, "boundary.naive.quarantined", b.Naive.Quarantined, "true"},
		{b.Fedhttp.MaxSendsPerDeniedTask == 1, "boundary.fedhttp.max_sends_per_denied_task", b.Fedhttp.MaxSendsPerDeniedTask, "1"},
		{b.Fedhttp.Denials <= deniedTasks, "boundary.fedhttp.denials", b.Fedhttp.Denials, "at most 120"},
		{b.Fedhttp.Recovered == droppedTasks, "boundary.fedhttp.recovered", b.Fedhttp.Recovered, "80"},
		{b.Fedhttp.AnchorRefreshes == 1, "boundary.fedhttp.anchor_refreshes", b.Fedhttp.AnchorRefreshes, "1"},
		{!b.Fedhttp.Quarantined, "boundary.fedhttp.quarantined", b.Fedhttp.Quarantined, "false"},
	})
}

func printJSON(w io.Writer, f figures) error { return json.NewEncoder(w).Encode(f) }

// row is a line of the table: the same count for both clients, and whose count
// it is.
type row struct {
	label          string
	naive, fedhttp any
	countedBy      string
}

// boundaryRows are the lines of the first incident.
func (r result) boundaryRows() []row {
	b := r.figures.Boundary
	return []row{
		{"tasks", b.Naive.Tasks, b.Fedhttp.Tasks, "A"},
		{"requests to B", r.naiveBoundary.sends, r.fedBoundary.sends, "B's routing layer"},
		{"  dropped for the anchor", r.naiveBoundary.dropped, r.fedBoundary.dropped, "B's routing layer"},
		{"  evaluated by policy", b.Naive.PolicyEvaluations, b.Fedhttp.PolicyEvaluations, "B's policy ledger"},
		{"denials against A", b.Naive.Denials, b.Fedhttp.Denials, "B's policy ledger"},
		{"sends of a denied task, at most", b.Naive.MaxSendsPerDeniedTask, b.Fedhttp.MaxSendsPerDeniedTask, "B's request log"},
		{"refused locally, not sent", b.Naive.RefusedLocally, b.Fedhttp.RefusedLocally, "A"},
		{"recovered: run under the new anchor", b.Naive.Recovered, b.Fedhttp.Recovered, "B's policy ledger"},
		{"anchor fetches after the rotation", b.Naive.AnchorRefreshes, b.Fedhttp.AnchorRefreshes, "B's anchor endpoint"},
		{"escalations", b.Naive.Escalations, b.Fedhttp.Escalations, "C's request log"},
		{fmt.Sprintf("A in quarantine (from %d denials)", quarantineAt), b.Naive.Quarantined, b.Fedhttp.Quarantined, "B's policy ledger"},
		{"an ordinary task afterwards", r.naiveBoundary.nextTask, r.fedBoundary.nextTask, "B's policy engine"},
	}
}

// preflightRows are the lines of the second incident.
func (r result) preflightRows() []row {
	p := r.figures.Preflight
	return []row{
		{"tasks", p.Naive.Tasks, p.Fedhttp.Tasks, "A"},
		{"requests to B", p.Naive.Sends, p.Fedhttp.Sends, "B's request log"},
		{"tasks sent before agreement", p.Naive.SentBeforeAgreement, p.Fedhttp.SentBeforeAgreement, "B's request log"},
		{"run under the wrong policy", p.Naive.WrongPolicy, p.Fedhttp.WrongPolicy, "B's policy engine"},
		{"run under the right policy", p.Naive.RightPolicy, p.Fedhttp.RightPolicy, "B's policy engine"},
		{"pending: not run, policy unresolved", p.Naive.Pending, p.Fedhttp.Pending, "B's policy engine, A"},
		{"coordinator told", p.Naive.CoordinatorSignals, p.Fedhttp.CoordinatorSignals, "C's request log"},
	}
}

func printReport(w io.Writer, r result, traces *traces, took time.Duration) error {
	out := &printer{w: w}
	b, p := r.figures.Boundary, r.figures.Preflight

	out.printf("BOUNDARY  %d tasks to B: B's policy denies %d, in %d scopes; A's anchor is stale for the other %d.\n",
		b.Fedhttp.Tasks, deniedTasks, deniedScopes, droppedTasks)
	out.printf("          Either way the answer is 403 FederationDenied with a correlation id.\n\n")
	out.table(r.boundaryRows())

	out.printf("\nPREFLIGHT  %d tasks that need output-licensing: redistribution-permitted arrive while B's\n", p.Fedhttp.Tasks)
	out.printf("           %d policies are being negotiated; %d cannot wait for as long as that takes.\n\n", capabilities, inAHurry)
	out.table(r.preflightRows())
	if len(r.negotiations) > 0 {
		out.printf("\n%s\n", negotiationsNote(r.negotiations))
	}
	out.printf("\nSIGNALS TURNED OFF  %s\n", wrapped(r.signalsOff.String(), 20))
	out.printf("\nTHE OTHER OUTCOMES  %s\n", wrapped(r.others.String(), 20))

	out.printf("\nTRACES  one for each kind of decision\n")
	traces.print(out)
	out.printf("\n%.1f s\n", took.Seconds())
	return out.err
}

// negotiationsNote says how long the negotiations took, the shortest first.
func negotiationsNote(lasted []time.Duration) string {
	n := len(lasted)
	return fmt.Sprintf("The negotiations took %.1f min at the median and %.1f min at most (a minute is %v here).",
		minutes(lasted[n/2]), minutes(lasted[n-1]), scaled(time.Minute))
}

func minutes(scaledDown time.Duration) float64 { return (scaledDown * timeScale).Minutes() }

// wrapped breaks text into lines of 100 columns, all but the first indented.
func wrapped(text string, indent int) string {
	var b strings.Builder
	column := indent
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > 100:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

func (p *printer) table(rows []row) { p.compare("stock client", "fedhttp", rows) }

// compare prints the rows under the names of the two that they compare.
func (p *printer) compare(one, other string, rows []row) {
	if p.err != nil {
		return
	}
	t := tabwriter.NewWriter(p.w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "\t%s\t%s\tcounted by\n", one, other)
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%v\t%v\t%s\n", r.label, r.naive, r.fedhttp, r.countedBy)
	}
	p.err = t.Flush()
}

// single prints rows of one figure, naive.
func (p *printer) single(rows []row) {
	if p.err != nil {
		return
	}
	t := tabwriter.NewWriter(p.w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "\t\tcounted by")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%v\t%s\n", r.label, r.naive, r.countedBy)
	}
	p.err = t.Flush()
}
