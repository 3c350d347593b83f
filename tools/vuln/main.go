// Command vuln checks modules for known vulnerabilities, offline.
//
//	vuln DATABASE MODULE...
//
// DATABASE is a folder with a vulnerability database (see the Makefile), each
// MODULE a folder with a go.mod. It exits with 1 where code of a module can reach
// a vulnerable function of a dependency. Those of Go's own standard library are
// printed and do not fail: the cure is another toolchain, not another commit.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// govulncheck is the scanner, built beside this command.
const govulncheck = "govulncheck"

// stdlib is what the scanner calls the module of the standard library.
const stdlib = "stdlib"

// finding is a vulnerability that a module's code can reach.
type finding struct {
	id, module, found, fixed string
}

// message is the part of the scanner's output (govulncheck -format json) that
// matters here.
type message struct {
	Finding *struct {
		OSV          string `json:"osv"`
		FixedVersion string `json:"fixed_version"`
		Trace        []struct {
			Module   string `json:"module"`
			Version  string `json:"version"`
			Function string `json:"function"`
		} `json:"trace"`
	} `json:"finding"`
}

// reached returns what the code can reach, each vulnerability of a module once.
// A finding without a function says only that a vulnerable package is there.
func reached(output io.Reader) ([]finding, error) {
	var all []finding
	for dec := json.NewDecoder(output); ; {
		var m message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("the scanner's output: %w", err)
		}
		if m.Finding == nil || len(m.Finding.Trace) == 0 || m.Finding.Trace[0].Function == "" {
			continue
		}
		in := m.Finding.Trace[0]
		f := finding{m.Finding.OSV, in.Module, in.Version, m.Finding.FixedVersion}
		if !slices.Contains(all, f) {
			all = append(all, f)
		}
	}
}

// scan runs the scanner over a module.
func scan(scanner, database, module string) ([]finding, error) {
	abs, err := filepath.Abs(database)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(scanner, "-db", "file://"+filepath.ToSlash(abs), "-format", "json", "./...")
	cmd.Dir = module
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	found, err := reached(out)
	if _, drained := io.Copy(io.Discard, out); err == nil {
		err = drained
	}
	return found, errors.Join(err, cmd.Wait())
}

func run(args []string, out io.Writer) error {
	if len(args) < 2 {
		return errors.New("usage: vuln DATABASE MODULE...")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	failed := 0
	for _, module := range args[1:] {
		found, err := scan(filepath.Join(filepath.Dir(self), govulncheck), args[0], module)
		if err != nil {
			return fmt.Errorf("%s: %w", module, err)
		}
		failed += report(out, module, found)
	}
	if failed > 0 {
		return fmt.Errorf("%d vulnerabilities of dependencies can be reached", failed)
	}
	return nil
}

// report prints what was found in a module, and returns how much of it fails.
func report(out io.Writer, module string, found []finding) (failing int) {
	for _, f := range found {
		if f.module != stdlib {
			failing++
			fmt.Fprintf(out, "%s: %s in %s@%s, fixed in %s\n", module, f.id, f.module, f.found, f.fixed)
			continue
		}
		fmt.Fprintf(out, "%s: note: %s in the standard library of Go %s, fixed in %s\n", module, f.id, f.found, f.fixed)
	}
	fmt.Fprintf(out, "%s: %d vulnerabilities of dependencies, %d of the standard library\n", module, failing, len(found)-failing)
	return failing
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(1)
	}
}
