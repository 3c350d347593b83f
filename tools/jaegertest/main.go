// Command jaegertest runs Jaeger for a look at the traces of this repository:
// in memory, on loopback only, until it is interrupted. Its test does the same
// on free ports and checks what Jaeger makes of the example's traces.
//
//	jaegertest PROGRAM
//
// PROGRAM is Jaeger's, see `make jaeger`, which builds and runs both.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: jaegertest PROGRAM")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1], standard, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "jaegertest:", err)
		os.Exit(1)
	}
}

// run runs Jaeger until ctx ends, which is no error.
func run(ctx context.Context, program string, p ports, stdout, stderr io.Writer) error {
	j, err := start(ctx, program, p, stderr)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer j.stop()
	fmt.Fprintf(stdout, `Jaeger runs, in memory and on loopback only.

  OTLP   http://%s  (HTTP), %s (gRPC)
  API    http://%s/api/traces?service=fedhttp-example
         http://%[3]s/api/v3/traces?query.service_name=...
  UI     none: a build from source alone has a placeholder page at http://%[3]s;
         the UI is in Jaeger's image, see docs/jaeger.md

Fill it from another terminal:

  go run -C example . -otlp %[1]s

Ctrl-C stops it; the traces go with it.
`, address(p.otlpHTTP), address(p.otlpGRPC), address(p.query))
	select {
	case <-ctx.Done():
		return nil
	case <-j.done:
		if ctx.Err() != nil { // the interrupt reached both
			return nil
		}
		return fmt.Errorf("jaeger ended: %w", j.err)
	}
}
