// Command all runs every benchmark, in an order that takes about as long as it says,
// and keeps what they print in results.txt of the folder of -out; what was there is
// previous.txt from then on. It is run in the folder of its module.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	var o options
	flag.StringVar(&o.out, "out", "../bin/bench", "folder of the results")
	flag.DurationVar(&o.benchtime, "benchtime", 100*time.Millisecond, "how long each benchmark takes, each time")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each benchmark of a chain is run")
	flag.DurationVar(&o.latency, "latency", 2*time.Second, "how long calls are made in each turn of a chain, of which there are 10 to 15 at each rate")
	flag.BoolVar(&o.quick, "quick", false, "run everything once, as short as can be: the figures are worth nothing")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "all:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	out, err := filepath.Abs(o.out)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o750); err != nil {
		return err
	}
	begin := time.Now()
	fmt.Println("building")
	for _, build := range [][]string{
		{"go", "test", "-C", "..", "-c", "-o", filepath.Join(out, "root.test"), "."},
		{"go", "test", "-c", "-o", filepath.Join(out, "bench.test"), "."},
		{"go", "build", "-o", filepath.Join(out, "measure"), "./cmd/measure"},
	} {
		if err := start(build, nil, os.Stdout); err != nil {
			return err
		}
	}
	results := filepath.Join(out, "results.txt")
	if err := os.Rename(results, filepath.Join(out, "previous.txt")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Only a whole run is one that can be reported.
	partial := filepath.Join(out, "partial.txt")
	file, err := os.Create(partial)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Fprint(file, header(o.quick))
	stages := stagesOf(o)
	left := 0
	for _, s := range stages {
		left += s.seconds
	}
	fmt.Printf("%d stages, about %s in all\n", len(stages), minutes(left))
	for i, s := range stages {
		fmt.Printf("\n== %d of %d: %s (about %d s; %s so far, about %s to go)\n", i+1, len(stages), s.name, s.seconds,
			minutes(int(time.Since(begin).Seconds())), minutes(left))
		for round := range s.rounds {
			if s.rounds > 1 {
				fmt.Printf("-- round %d of %d\n", round+1, s.rounds)
			}
			command := append([]string{filepath.Join(out, s.command[0])}, s.command[1:]...)
			if err := start(command, s.env, io.MultiWriter(os.Stdout, file)); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		left -= s.seconds
	}
	if err := file.Close(); err != nil {
		return err
	}
	fmt.Printf("\n%s in all; the results are in results.txt\n", minutes(int(time.Since(begin).Seconds())))
	return os.Rename(partial, results)
}

func start(command, env []string, out io.Writer) error {
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // one of ours
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(command[1:], " "), err)
	}
	return nil
}

func minutes(seconds int) string { return fmt.Sprintf("%d min %02d s", seconds/60, seconds%60) }
