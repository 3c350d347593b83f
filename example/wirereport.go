package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"time"
)

// reportWire counts, prints the table or its JSON, and names the rows in which
// fedhttp did not keep its promise.
func reportWire(ctx context.Context, limit time.Duration, asJSON bool, stdout, stderr io.Writer) (missed []string, err error) {
	rows, err := countWire(ctx, limit, &progress{w: stderr})
	if err != nil {
		return nil, err
	}
	if asJSON {
		err = json.NewEncoder(stdout).Encode(struct {
			Go           string    `json:"go"`
			LimitSeconds float64   `json:"plain_limit_seconds"`
			Rows         []wireRow `json:"rows"`
		}{runtime.Version(), limit.Seconds(), rows})
	} else {
		err = printWire(stdout, limit, rows)
	}
	return missedOnWire(rows), err
}

// missedOnWire names the counts of fedhttp that are not what it promises. What
// the others do is theirs to change.
func missedOnWire(rows []wireRow) (missed []string) {
	for i, r := range rows {
		if want := wireCases[i].promise(); r.Fedhttp.Deliveries != want {
			missed = append(missed, fmt.Sprintf("%s: fedhttp delivered it %d times, want %d", r.Name, r.Fedhttp.Deliveries, want))
		}
	}
	return missed
}

func printWire(w io.Writer, limit time.Duration, rows []wireRow) error {
	out := &printer{w: w}
	out.printf("| what the server does after it has read the whole request | plain net/http | fedhttp |\n|---|---|---|\n")
	for _, r := range rows {
		out.printf("| %s | %s | %s |\n", r.Server, r.Plain, r.Fedhttp)
	}
	out.printf("\nWhole requests that the server counted when the client was asked for one, and what the client\n"+
		"reported. %s; the client of the middle column is stopped after %v.\n", runtime.Version(), limit)
	return out.err
}

func (c wireCount) String() string {
	if c.Error == "" {
		return fmt.Sprint(c.Deliveries)
	}
	return fmt.Sprintf("%d (%s)", c.Deliveries, c.Error)
}
