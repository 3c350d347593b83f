// Command measure makes those measurements that compare things in turns, in one
// run, and prints them in Go's benchmark format.
//
//	measure gate       what a call costs beyond a stub, and over loopback, beside
//	                   otelhttp and what a user would build today; as a table, and
//	                   with an exit code of 1 where a gate is passed
//	measure latency    of calls at a fixed rate
//	measure stream     1 GiB up and down
//	measure contention which locks goroutines wait for
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	commands := map[string]func(args []string) error{"gate": gate, "latency": latency, "stream": stream, "contention": contention}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: measure gate|latency|stream|contention [flags]")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "measure:", err)
		os.Exit(1)
	}
}

func flags(name string, args []string, define func(*flag.FlagSet)) {
	set := flag.NewFlagSet("measure "+name, flag.ExitOnError)
	define(set)
	_ = set.Parse(args) // it exits
}

// value is a figure and its unit.
type value struct {
	of   float64
	unit string
}

// line is a result in Go's benchmark format.
func line(name string, n int, values ...value) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Benchmark%s\t%d", name, n)
	for _, v := range values {
		fmt.Fprintf(&b, "\t%.6g %s", v.of, v.unit)
	}
	return b.String()
}
