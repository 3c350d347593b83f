package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchunit"

	"github.com/fedhttp/fedhttp/bench"
)

// results are what a run has printed: for each benchmark and unit the values of all
// rounds. Units are benchfmt's: seconds, not nanoseconds.
type results struct {
	config map[string]string
	values map[string]map[string][]float64
}

// procs is the number of threads at the end of a benchmark's name.
var procs = regexp.MustCompile(`-\d+$`)

func read(from io.Reader) (*results, error) {
	r := &results{config: map[string]string{}, values: map[string]map[string][]float64{}}
	reader := benchfmt.NewReader(from, "results")
	for reader.Scan() {
		result, ok := reader.Result().(*benchfmt.Result)
		if !ok {
			continue
		}
		for _, c := range result.Config {
			if _, known := r.config[c.Key]; !known {
				r.config[c.Key] = string(c.Value)
			}
		}
		name := procs.ReplaceAllString(result.Name.String(), "")
		if r.values[name] == nil {
			r.values[name] = map[string][]float64{}
		}
		for _, v := range result.Values {
			value, unit := benchunit.Tidy(v.Value, v.Unit) // the reader leaves a zero in nanoseconds
			r.values[name][unit] = append(r.values[name][unit], value)
		}
	}
	if err := reader.Err(); err != nil {
		return nil, err
	}
	if len(r.values) == 0 {
		return nil, errors.New("no results")
	}
	return r, nil
}

// get returns the median of the rounds. What was not measured fails the report:
// see render.
func (r *results) get(name, unit string) float64 {
	values := r.values[name][unit]
	if len(values) == 0 {
		panic(missing(fmt.Sprintf("%s has no %s", name, unit)))
	}
	return bench.Median(values)
}

// missing is a figure that the results do not have.
type missing string

// named returns the names that begin so, sorted, without that beginning.
func (r *results) named(prefix string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(r.values)) {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			names = append(names, rest)
		}
	}
	return names
}

// beyond is what a benchmark takes beyond another.
func (r *results) beyond(name, base, unit string) float64 {
	return r.get(name, unit) - r.get(base, unit)
}
