// Command example replays two incidents between three organisations, over real
// HTTP on loopback: first with the retry policy that clients use today, then
// with fedhttp. It prints what the peers' own ledgers recorded. With -tls it runs
// the first one alone with real certificates, with -fleet 3 it runs three replicas
// of A that share what they know, and with -wire it counts how often one request
// reaches a server that does not answer it.
//
//	A  ours: sends tasks to B
//	B  a peer registry: a routing layer in front of a policy engine
//	C  the federation's operator: mediates negotiations, takes escalations
//
// The parts to copy are fedhttp.go (the client: configuration, anchors,
// coordinator, escalator) and gossip.go (advertisements into the PolicyBook);
// fleetreplica.go is the client of more than one instance.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// jobTimeout ends a job that hangs. It takes a few seconds otherwise. With a fleet
// it takes as long as servers need to elect a leader, some times over.
const (
	jobTimeout   = time.Minute
	fleetTimeout = 3 * time.Minute
)

func main() {
	if cfg, ok := os.LookupEnv(serverEnv); ok {
		os.Exit(serveNATS(cfg, os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process around it, and returns the exit code: 0, 1
// where the job failed, the figures are not those that it promises or the
// traces could not be sent or a file not be written, 2 for a wrong command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	timeout := jobTimeout
	if o.fleet > 0 {
		timeout = fleetTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("not done after %v", timeout))
	defer cancel()

	if o.wire {
		missed, err := reportWire(ctx, plainLimit, o.json, stdout, stderr)
		return exitCode(stderr, missed, err)
	}
	if o.tls {
		missed, err := reportTLS(ctx, o.json, stdout, stderr)
		return exitCode(stderr, missed, err)
	}
	if o.fleet > 0 {
		missed, err := reportFleet(ctx, o.fleet, o.json, stdout, stderr)
		return exitCode(stderr, missed, err)
	}
	var report *pendingFile
	if o.report != "" {
		if report, err = createFile(o.report); err != nil {
			return exitCode(stderr, nil, fmt.Errorf("-report: %w", err))
		}
		defer report.discard()
	}
	metrics, err := newMetrics(o.metrics)
	if err != nil {
		return exitCode(stderr, nil, fmt.Errorf("-metrics: %w", err))
	}
	defer metrics.close()
	start := time.Now()
	traces := newTraces()
	defer traces.close()
	result, err := replay(ctx, traces, metrics, &progress{w: stderr})
	if err != nil {
		return exitCode(stderr, nil, err)
	}
	took := time.Since(start)
	var errs []error
	links := stdout // for people; with -json, standard output is a program's
	if o.json {
		links = stderr
		errs = append(errs, printJSON(stdout, result.figures))
	} else {
		errs = append(errs, printReport(stdout, result, traces, took))
	}
	var ui jaeger
	if o.otlp != "" {
		if sent, err := traces.export(ctx, o.otlp); err != nil {
			errs = append(errs, fmt.Errorf("the traces were not all sent to %s: %w", o.otlp, err))
		} else {
			fmt.Fprintf(stderr, "%d spans sent to %s\n", sent, o.otlp)
			ui = jaegerOf(o.otlp, o.ui)
			errs = append(errs, ui.print(links, traces.examples()))
		}
	}
	if report != nil {
		if err := errors.Join(writePage(report, newPage(result, traces.examples(), ui, start, took)), report.commit()); err != nil {
			errs = append(errs, fmt.Errorf("-report: %w", err))
		} else {
			fmt.Fprintf(stderr, "report in %s\n", o.report)
		}
	}
	errs = append(errs, metrics.write(stderr))
	return exitCode(stderr, result.figures.missed(), errs...)
}

// exitCode says what went wrong, if anything.
func exitCode(stderr io.Writer, missed []string, errs ...error) int {
	code := 0
	for _, err := range errs {
		if err != nil {
			fmt.Fprintln(stderr, "example:", err)
			code = 1
		}
	}
	for _, m := range missed {
		fmt.Fprintln(stderr, "example: not as promised:", m)
		code = 1
	}
	return code
}
