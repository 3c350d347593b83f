package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
)

// reportTLS runs the first incident with certificates, prints the table or its
// JSON, and names the figures that are not what the job promises.
func reportTLS(ctx context.Context, asJSON bool, stdout, stderr io.Writer) (missed []string, err error) {
	var r result
	traces := newTraces()
	defer traces.close()
	p := &progress{w: stderr}
	for _, s := range []struct {
		title   string
		client  makeClient
		figures *boundaryFigures
		extras  *boundaryExtras
	}{
		{"with certificates, stock", newNaive, &r.figures.Boundary.Naive, &r.naiveBoundary},
		{"with certificates, fedhttp", fedhttpClient(traces, nil), &r.figures.Boundary.Fedhttp, &r.fedBoundary},
	} {
		done := p.begin(s.title)
		var o *organisations
		if o, err = newTLSBoundary(ctx); err == nil {
			*s.figures, *s.extras, err = runBoundary(ctx, o, s.client)
		}
		done(err)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.title, err)
		}
	}
	if asJSON {
		err = json.NewEncoder(stdout).Encode(struct {
			Boundary pair[boundaryFigures] `json:"boundary"`
		}{r.figures.Boundary})
	} else {
		err = printTLS(stdout, r)
	}
	return missedBoundary(r.figures.Boundary), err
}

func printTLS(w io.Writer, r result) error {
	out := &printer{w: w}
	out.printf("BOUNDARY, WITH CERTIFICATES  %d tasks to B: B's policy denies %d, in %d scopes. The other %d go to\n",
		r.figures.Boundary.Fedhttp.Tasks, deniedTasks, deniedScopes, droppedTasks)
	out.printf("          a gateway whose certificate is from an authority that A's bundle does not have yet.\n\n")
	b := r.figures.Boundary
	out.table([]row{
		{"tasks", b.Naive.Tasks, b.Fedhttp.Tasks, "A"},
		{"handshakes that A broke off", r.naiveBoundary.brokenOff, r.fedBoundary.brokenOff, "B's gateway"},
		{"requests to B", r.naiveBoundary.sends, r.fedBoundary.sends, "B's routing layer"},
		{"denials against A", b.Naive.Denials, b.Fedhttp.Denials, "B's policy ledger"},
		{"sends of a denied task, at most", b.Naive.MaxSendsPerDeniedTask, b.Fedhttp.MaxSendsPerDeniedTask, "B's request log"},
		{"refused locally, not sent", b.Naive.RefusedLocally, b.Fedhttp.RefusedLocally, "A"},
		{"recovered: run under the new CA", b.Naive.Recovered, b.Fedhttp.Recovered, "B's policy ledger"},
		{"bundle fetches after the rotation", b.Naive.AnchorRefreshes, b.Fedhttp.AnchorRefreshes, "B's bundle endpoint"},
		{"escalations", b.Naive.Escalations, b.Fedhttp.Escalations, "C's request log"},
		{fmt.Sprintf("A in quarantine (from %d denials)", quarantineAt), b.Naive.Quarantined, b.Fedhttp.Quarantined, "B's policy ledger"},
		{"an ordinary task afterwards", r.naiveBoundary.nextTask, r.fedBoundary.nextTask, "B's policy engine"},
	})
	return out.err
}
