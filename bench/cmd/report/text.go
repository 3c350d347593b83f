package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// table is a Markdown table; all columns but the first are figures.
func table(head []string, rows [][]string) string {
	var b strings.Builder
	row := func(cells []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	row(head)
	rule := []string{"---"}
	for range head[1:] {
		rule = append(rule, "---:")
	}
	row(rule)
	for _, cells := range rows {
		row(cells)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// duration writes seconds with three digits, in the unit that suits them.
func duration(seconds float64) string {
	for _, u := range []struct {
		unit string
		size float64
	}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}} {
		if math.Abs(seconds) >= u.size {
			return digits(seconds/u.size) + " " + u.unit
		}
	}
	return digits(seconds*1e9) + " ns"
}

// digits writes a number with three of them, as far as they say something.
func digits(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 100:
		return thousands(v)
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// count writes a number of allocations, which may be a mean.
func count(v float64) string {
	if math.Abs(v-math.Round(v)) < 0.05 {
		return strconv.FormatFloat(math.Abs(math.Round(v)), 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// thousands writes a whole number with its thousands set apart.
func thousands(v float64) string {
	text := strconv.FormatFloat(math.Round(math.Abs(v)), 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	if v <= -0.5 {
		text = "-" + text
	}
	return text
}

func bytesOf(v float64) string { return thousands(v) + " B" }

func ratio(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// met writes a figure that has a goal: bold where the goal is not met.
func met(text string, ok bool) string {
	if ok {
		return text
	}
	return "**" + text + "**"
}

func yes(ok bool) string {
	if ok {
		return "yes"
	}
	return "**no**"
}
