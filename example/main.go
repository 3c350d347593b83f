// Command example replays two incidents between three organisations, over real
// HTTP on loopback: first with the retry policy that clients use today, then
// with fedhttp. It prints what the peers' own ledgers recorded. With -wire it
// counts instead how often one request reaches a server that does not answer it.
//
//	A  ours: sends tasks to B
//	B  a peer registry: a routing layer in front of a policy engine
//	C  the federation's operator: mediates negotiations, takes escalations
//
// The parts to copy are fedhttp.go (the client: configuration, anchors,
// coordinator, escalator) and gossip.go (advertisements into the PolicyBook).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"time"
)

// jobTimeout ends a job that hangs. It takes a few seconds otherwise.
const jobTimeout = time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type options struct {
	json bool
	wire bool
	otlp string // HOST:PORT; empty: the traces stay in memory
}

// parse reads the command line. What is wrong with it is on stderr already when
// it returns an error.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.json, "json", false, "print the figures as one JSON object and nothing else")
	flags.BoolVar(&o.wire, "wire", false, "count instead how often one request reaches a server that does not answer it,\nwith net/http and with fedhttp, and print a Markdown table")
	flags.Func("otlp", "also send the traces over OTLP/HTTP to `HOST:PORT` (not encrypted)", func(s string) error {
		host, port, err := net.SplitHostPort(s)
		if err != nil || host == "" || port == "" {
			return errors.New("want HOST:PORT, such as localhost:4318")
		}
		o.otlp = s
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument: %q", flags.Arg(0))
	case o.wire && o.otlp != "":
		err = errors.New("-otlp does not go with -wire, which makes no traces")
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		flags.Usage()
	}
	return o, err
}

// run is main without the process around it, and returns the exit code: 0, 1
// where the job failed, the figures are not those that it promises or the
// traces could not be sent, 2 for a wrong command line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	ctx, cancel := context.WithTimeoutCause(ctx, jobTimeout, fmt.Errorf("not done after %v", jobTimeout))
	defer cancel()

	if o.wire {
		missed, err := reportWire(ctx, plainLimit, o.json, stdout, stderr)
		return exitCode(stderr, missed, err)
	}
	start := time.Now()
	traces := newTraces()
	defer traces.close()
	result, err := replay(ctx, traces, &progress{w: stderr})
	if err != nil {
		fmt.Fprintln(stderr, "example:", err)
		return 1
	}
	if o.json {
		err = printJSON(stdout, result.figures)
	} else {
		err = printReport(stdout, result, traces, time.Since(start))
	}
	code := exitCode(stderr, result.figures.missed(), err)
	if o.otlp != "" {
		sent, err := traces.export(ctx, o.otlp)
		if err != nil {
			fmt.Fprintf(stderr, "example: the traces were not all sent to %s: %v\n", o.otlp, err)
			return 1
		}
		fmt.Fprintf(stderr, "%d spans sent to %s\n", sent, o.otlp)
	}
	return code
}

// exitCode says what went wrong, if anything.
func exitCode(stderr io.Writer, missed []string, err error) int {
	code := 0
	if err != nil {
		fmt.Fprintln(stderr, "example:", err)
		code = 1
	}
	for _, m := range missed {
		fmt.Fprintln(stderr, "example: not as promised:", m)
		code = 1
	}
	return code
}
