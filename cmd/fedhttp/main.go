// Command fedhttp checks a file of peers, explains what a response would be taken
// for, makes single calls, is a local gateway for clients in any language, and shows
// operators and negotiators what a fleet of replicas asks of them.
// docs/cli.md describes it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/fedhttp/fedhttp"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// untilSignal returns a context that a signal ends, for what has to end in order. Before
// that, as while an input is read that never comes, a signal ends the program at once; and
// so does a second one.
func untilSignal(ctx context.Context) (until context.Context, stop context.CancelFunc) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signals = append(signals, syscall.SIGHUP)
	}
	until, stop = signal.NotifyContext(ctx, signals...)
	context.AfterFunc(until, stop)
	return until, stop
}

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// The exit codes of the program itself. Those of a call that was not delivered
// begin at exitOutcome and follow the order of fedhttp's outcomes.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitOutcome = 9
)

// exitCode returns the code of a call's outcome: 0 where it was delivered, else
// 10 for rejected, 11 for routing_failed and so on.
func exitCode(o fedhttp.Outcome) int {
	if o == fedhttp.OutcomeDelivered {
		return 0
	}
	return exitOutcome + int(o)
}

// exit is an error that says with which code the program ends.
type exit struct {
	code int
	err  error // nil: everything was said already
}

func (e *exit) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exit) Unwrap() error { return e.err }

// failed is an error that is none of how the program was called.
func failed(err error) error { return &exit{exitFailed, err} }

// usage is an error in how the program was called.
func usage(format string, args ...any) error { return &exit{exitUsage, fmt.Errorf(format, args...)} }

// run runs one command line and returns the exit code.
func run(ctx context.Context, args []string, std streams) int {
	out := &lockedWriter{to: std.out}
	std.out = out
	root := newRoot(std)
	root.SetArgs(singleDash(root, args))
	root.SetIn(std.in)
	root.SetOut(std.out)
	root.SetErr(std.err)
	err := root.ExecuteContext(ctx)
	var e *exit
	if lost := out.failure(); lost != nil && !errors.As(err, &e) {
		err = failed(lost) // who only reads what was written takes it for all there is
	}
	if err == nil {
		return 0
	}
	code := exitUsage // what cobra itself finds is how it was called
	if errors.As(err, &e) {
		code = e.code
	}
	if text := strings.TrimPrefix(err.Error(), "fedhttp: "); text != "" {
		fmt.Fprintf(std.err, "fedhttp: %s\n", text)
	}
	return code
}

func newRoot(std streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "fedhttp",
		Short: "Calls to other organisations' registries, and what their failures mean",
		Long: `fedhttp tells a rejection by a peer's policy engine from a failure of the routing
in front of it, for clients that call other organisations' registries.

  check        reads a file of peers and says what each peer is believed
  explain      says what a response that you have at hand would be taken for
  get,post     make one call
  proxy        is a local gateway for clients in any language
  escalations  shows and acknowledges what a fleet's operator has to see to
  policies     shows what a fleet knows of policies, and accepts them

Flags may be written with one dash (-peers) or two (--peers).`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newCheck(std), newExplain(std), newCall(std, http.MethodGet), newCall(std, http.MethodPost), newProxy(std),
		newEscalations(std), newPolicies(std))
	return root
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
