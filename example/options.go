package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
)

// options is the command line.
type options struct {
	json    bool
	wire    bool
	tls     bool
	fleet   int    // replicas; 0: none
	otlp    string // HOST:PORT; empty: the traces stay in memory
	ui      string // URL of Jaeger's pages; empty: jaegerPort at the host of otlp
	report  string // file; empty: no page is written
	metrics string // file; empty: nothing is measured
}

// parse reads the command line. What is wrong with it is on stderr already when
// it returns an error.
func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.BoolVar(&o.json, "json", false, "print the figures as one JSON object and nothing else")
	flags.BoolVar(&o.wire, "wire", false, "count instead how often one request reaches a server that does not answer it,\nwith net/http and with fedhttp, and print a Markdown table")
	flags.BoolVar(&o.tls, "tls", false, "run the first incident alone, with real certificates: what is stale is a CA that B has rotated")
	flags.Func("fleet", fmt.Sprintf("run instead `N` replicas of A, 1 to %d, that share what they know over NATS, each with a\nserver of its own, beside N that are alone", maxFleet), func(s string) (err error) {
		if o.fleet, err = strconv.Atoi(s); err != nil || o.fleet < 1 || o.fleet > maxFleet {
			return fmt.Errorf("want a number from 1 to %d", maxFleet)
		}
		return nil
	})
	flags.Func("otlp", "also send the traces over OTLP/HTTP to `HOST:PORT` (not encrypted), such as\nJaeger's localhost:4318, and print links to Jaeger's pages", func(s string) error {
		host, port, err := net.SplitHostPort(s)
		if err != nil || host == "" || port == "" {
			return errors.New("want HOST:PORT, such as localhost:4318")
		}
		o.otlp = s
		return nil
	})
	flags.Func("ui", "with -otlp: the `URL` of Jaeger's pages, for the links\n(default http://HOST:"+jaegerPort+", at the host of -otlp)", func(s string) error {
		u, err := url.Parse(s)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return errors.New("want a URL such as http://localhost:" + jaegerPort)
		}
		o.ui = s
		return nil
	})
	flags.Func("report", "also write the figures and a trace of each outcome to `FILE`, as one HTML page", func(s string) error {
		if s == "" {
			return errors.New("want a file, such as report.html")
		}
		o.report = s
		return nil
	})
	flags.Func("metrics", "also write what the fedhttp clients measured to `FILE`, as Prometheus would scrape it", func(s string) error {
		if s == "" {
			return errors.New("want a file, such as metrics.prom")
		}
		o.metrics = s
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	var err error
	switch {
	case flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument: %q", flags.Arg(0))
	case o.fleet > 0 && (o.tls || o.wire || o.otlp != "" || o.report != "" || o.metrics != ""):
		err = errors.New("-fleet goes with -json only")
	case o.wire && o.otlp != "":
		err = errors.New("-otlp does not go with -wire, which makes no traces")
	case o.wire && o.report != "":
		err = errors.New("-report does not go with -wire, which has a table of its own")
	case o.wire && o.metrics != "":
		err = errors.New("-metrics does not go with -wire, which measures nothing")
	case o.tls && (o.wire || o.otlp != "" || o.report != "" || o.metrics != ""):
		err = errors.New("-tls goes with -json only")
	case o.ui != "" && o.otlp == "":
		err = errors.New("-ui does not go without -otlp: nothing would be there to see")
	}
	if err != nil {
		fmt.Fprintln(stderr, err)
		flags.Usage()
	}
	return o, err
}
