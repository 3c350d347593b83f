package fedconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Error is what is wrong with a file: all of it, in the order of the file.
type Error struct {
	// Faults has at least one entry, and at most 1,001: the last one then says
	// that there are more.
	Faults []Fault
}

// Error returns one line for each fault, as [Fault.String] gives it.
func (e *Error) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Fault is one thing that is wrong, and where.
type Fault struct {
	// File is the file as it was named to Load, Parse or Watch.
	File string
	// Line and Column are the place of the value, or of the key where that is at
	// fault. Both count from 1; columns count characters.
	Line, Column int
	// Field is the value's path, such as "peers[0].signals.policy_evaluated".
	// Empty where the file as a whole is at fault.
	Field string
	// Problem says what is wrong and what was expected, on one line of printable
	// characters. It has nothing in it that came from the environment.
	Problem string
}

// String returns "file:line:column: field: problem", which most editors can
// jump to.
func (f Fault) String() string {
	if f.Field == "" {
		return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Problem)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", f.File, f.Line, f.Column, f.Field, f.Problem)
}

// maxFaults bounds what a hostile file can make us say.
const maxFaults = 1000

// place is a place in the file; both numbers count from 1.
type place struct{ line, column int }

// faults collects what is wrong with one file.
type faults struct {
	file string
	all  []Fault
	more place // of the first that was left out; zero: none was
}

func (f *faults) full() bool { return len(f.all) == maxFaults }

func (f *faults) add(at place, field, format string, args ...any) {
	at = place{max(at.line, 1), max(at.column, 1)}
	if f.full() {
		if f.more.line == 0 {
			f.more = at
		}
		return
	}
	f.all = append(f.all, Fault{f.file, at.line, at.column, field, printable(clip(fmt.Sprintf(format, args...), maxProblem))})
}

// err returns everything as one *Error, in the order of the file.
func (f *faults) err() error {
	if len(f.all) == 0 {
		return nil
	}
	all := slices.Clone(f.all)
	// The root checks some things in the order of a Go map, so the text decides
	// where the place does not.
	slices.SortStableFunc(all, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Field, b.Field), cmp.Compare(a.Problem, b.Problem))
	})
	if f.more.line != 0 {
		all = append(all, Fault{f.file, f.more.line, f.more.column, "",
			fmt.Sprintf("more than %d faults; the others are not listed", maxFaults)})
	}
	return &Error{all}
}

// printable returns s on one line, with what could hide or turn text escaped.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
}

const (
	maxQuoted  = 128  // bytes of a file's text that a fault repeats
	maxProblem = 1024 // bytes of a fault's text
)

func clip(s string, size int) string {
	if len(s) > size {
		return strings.ToValidUTF8(s[:size], "") + "..."
	}
	return s
}

// quote returns s in double quotes, escaped, and cut where it is long.
func quote(s string) string {
	return strconv.QuoteToASCII(clip(s, maxQuoted))
}
