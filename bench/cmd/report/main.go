// Command report writes docs/benchmarks.md, and the plots in it, of the results that
// command all has left. It is run in the folder of its module.
package main

import (
	"bytes"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed benchmarks.md.tmpl
var page string

func main() {
	in := flag.String("in", "../bin/bench/results.txt", "the results of command all")
	out := flag.String("out", "../docs", "the folder to write to")
	flag.Parse()
	if err := run(*in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(in, out string) error {
	file, err := os.Open(in)
	if err != nil {
		return err
	}
	defer file.Close()
	r, err := read(file)
	if err != nil {
		return err
	}
	files, err := render(r)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(out, name), text, 0o644); err != nil { //nolint:gosec // it is a document
			return err
		}
	}
	return nil
}

// worth is what to think of the figures, where that is not much.
func worth(r *results) string {
	if r.config["quick"] == "" {
		return ""
	}
	return "**This was a quick run, to see whether everything works: the figures are worth nothing.**\n"
}

// render makes the files of a report, all or none: a figure that is missing is an
// error.
func render(r *results) (files map[string][]byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			what, ok := v.(missing)
			if !ok {
				panic(v)
			}
			files, err = nil, errors.New(string(what))
		}
	}()
	files = map[string][]byte{"benchmarks-chains.svg": chainsPlot(r), "benchmarks-growth.svg": growthPlot(r)}
	tables := map[string]string{
		"Goals": goalsTable(r), "Targets": targetsTable(r),
		"Chains": chainsTable(r, "GET"), "Paired": pairedTable(r), "Posts": chainsTable(r, "POST"), "Parallel": parallelTable(r), "Metered": meteredTable(r),
		"Loopback": loopbackTables(r), "Wire": wireTable(r), "Latency": latencyTable(r, seldom), "LatencyOften": latencyTable(r, often),
		"Peers": peersTable(r), "Keys": keysTable(r), "Denials": denialsTable(r), "Held": heldTable(r),
		"Book": bookTable(r), "Writes": writesTable(r), "Stream": streamTable(r),
		"Contention": contentionTable(r), "Machine": machineTable(r), "Worth": worth(r),
	}
	var text bytes.Buffer
	if err := template.Must(template.New("page").Option("missingkey=error").Parse(page)).Execute(&text, tables); err != nil {
		return nil, err
	}
	files["benchmarks.md"] = text.Bytes()
	return files, nil
}
