// Command figures runs the example and checks the figures that it prints.
//
//	figures COMMAND [ARGUMENT...]
//
// The command's standard output must be exactly one JSON object of exactly the
// expected shape, its figures must be those that the example promises, and it
// must have finished in under 20 seconds. Every fault is listed; one is enough
// to fail.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

const (
	maxRuntime  = 20 * time.Second // what the example promises
	killTimeout = 90 * time.Second // when to give up on it
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: figures COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(command []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // running the given command is what this is for
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	cmd.Stderr = os.Stderr
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	fmt.Printf("%s\n", bytes.TrimRight(stdout.Bytes(), "\n"))
	if err != nil {
		return fmt.Errorf("%s after %s: %w", strings.Join(command, " "), took.Round(time.Millisecond), err)
	}

	checked, faults := check(stdout.Bytes())
	if took >= maxRuntime {
		faults = append(faults, fmt.Errorf("took %s, want under %s", took.Round(time.Millisecond), maxRuntime))
	}
	if len(faults) > 0 {
		return fmt.Errorf("%d faults:\n%w", len(faults), errors.Join(faults...))
	}
	fmt.Printf("figures: %d checks hold, the run took %s\n", checked, took.Round(time.Millisecond))
	return nil
}

// kind is what a field of the report must be.
type kind uint8

const (
	count kind = iota // an integer, zero or more
	flag              // true or false
)

var (
	boundaryFields = map[string]kind{
		"tasks": count, "policy_evaluations": count, "denials": count, "max_sends_per_denied_task": count,
		"refused_locally": count, "recovered": count, "anchor_refreshes": count, "escalations": count,
		"quarantined": flag,
	}
	preflightFields = map[string]kind{
		"tasks": count, "sends": count, "sent_before_agreement": count, "wrong_policy": count,
		"right_policy": count, "pending": count, "coordinator_signals": count,
	}
	shape = map[string]map[string]kind{
		"boundary.naive": boundaryFields, "boundary.fedhttp": boundaryFields,
		"preflight.naive": preflightFields, "preflight.fedhttp": preflightFields,
	}
)

// A figure says what one field must be: at least min and at most max. For a
// flag, 0 is false and 1 is true.
type figure struct {
	path     string
	min, max int64
}

var figures = []figure{
	exactly("boundary.naive.tasks", 200),
	exactly("boundary.naive.max_sends_per_denied_task", 4),
	exactly("boundary.naive.quarantined", 1),

	exactly("boundary.fedhttp.tasks", 200),
	exactly("boundary.fedhttp.max_sends_per_denied_task", 1),
	// None at all would mean that the ledger counted nothing.
	{path: "boundary.fedhttp.denials", min: 1, max: 120},
	exactly("boundary.fedhttp.recovered", 80),
	exactly("boundary.fedhttp.anchor_refreshes", 1),
	exactly("boundary.fedhttp.quarantined", 0),

	exactly("preflight.naive.tasks", 1140),
	exactly("preflight.naive.wrong_policy", 1087),

	exactly("preflight.fedhttp.tasks", 1140),
	exactly("preflight.fedhttp.sent_before_agreement", 0),
	exactly("preflight.fedhttp.wrong_policy", 0),
	exactly("preflight.fedhttp.right_policy", 1087),
	exactly("preflight.fedhttp.pending", 53),
}

func exactly(path string, n int64) figure { return figure{path: path, min: n, max: n} }

// check reads the report and returns how many figures it compared, and every
// fault that it found.
func check(report []byte) (int, []error) {
	dec := json.NewDecoder(bytes.NewReader(report))
	dec.UseNumber()
	values := make(map[string]any)
	if err := flatten(dec, "", values); err != nil {
		return 0, []error{fmt.Errorf("standard output is not one JSON object: %w", err)}
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return 0, []error{fmt.Errorf("standard output goes on after the JSON object, at byte %d", dec.InputOffset())}
	}

	faults, numbers := checkShape(values)
	for _, f := range figures {
		got, ok := numbers[f.path]
		switch {
		case !ok: // its shape is wrong, which is a fault already
		case f.min == f.max && got != f.min:
			faults = append(faults, fmt.Errorf("%s is %d, want %d", f.path, got, f.min))
		case got < f.min || got > f.max:
			faults = append(faults, fmt.Errorf("%s is %d, want %d to %d", f.path, got, f.min, f.max))
		}
	}
	return len(figures), faults
}

// checkShape compares the report's fields with the expected ones, and returns
// the values that are as they should be.
func checkShape(values map[string]any) (faults []error, numbers map[string]int64) {
	numbers = make(map[string]int64)
	for prefix, fields := range shape {
		for name, want := range fields {
			path := prefix + "." + name
			v, ok := values[path]
			if !ok {
				faults = append(faults, fmt.Errorf("%s is missing", path))
				continue
			}
			delete(values, path)
			n, err := number(v, want)
			if err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", path, err))
				continue
			}
			numbers[path] = n
		}
	}
	for path := range values {
		faults = append(faults, fmt.Errorf("%s is not expected", path))
	}
	slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return faults, numbers
}

func number(v any, want kind) (int64, error) {
	switch v := v.(type) {
	case bool:
		if want != flag {
			break
		}
		if v {
			return 1, nil
		}
		return 0, nil
	case json.Number:
		if want != count {
			break
		}
		n, err := v.Int64()
		if err != nil || n < 0 {
			return 0, fmt.Errorf("%s is not an integer of zero or more", v)
		}
		return n, nil
	}
	if want == flag {
		return 0, fmt.Errorf("%v is neither true nor false", v)
	}
	return 0, fmt.Errorf("%v is not a number", v)
}

// flatten reads one JSON object into values, with dotted paths as the keys. A
// key that comes twice is an error: encoding/json would keep the last silently.
func flatten(dec *json.Decoder, prefix string, values map[string]any) error {
	token, err := dec.Token()
	if err != nil {
		return err
	}
	delim, ok := token.(json.Delim)
	switch {
	case !ok && prefix != "":
		values[prefix] = token
		return nil
	case delim != '{':
		return fmt.Errorf("%v where an object was expected", token)
	}
	seen := make(map[string]bool)
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		name := fmt.Sprint(key)
		if seen[name] {
			return fmt.Errorf("the key %q comes twice", name)
		}
		seen[name] = true
		path := name
		if prefix != "" {
			path = prefix + "." + name
		}
		if err := flatten(dec, path, values); err != nil {
			return err
		}
	}
	if len(seen) == 0 && prefix != "" {
		values[prefix] = struct{}{}
	}
	_, err = dec.Token()
	return err
}
