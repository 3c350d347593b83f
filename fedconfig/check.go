package fedconfig

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/fedhttp/fedhttp"
)

// config is a file that was decoded: its peers, and the way back to their places.
type config struct {
	doc  document
	root *spot
}

// check reports what a Transport would refuse. The rules are the root's alone;
// here they are only asked for, and what they answer is given its place.
func (c *config) check(found *faults) {
	t, err := fedhttp.NewTransport(fedhttp.Config{
		Peers: c.doc.Peers, Base: unused{}, Book: &fedhttp.PolicyBook{}, Anchors: unused{},
		TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: noop.NewMeterProvider(),
	})
	if err != nil {
		c.explain(err, found)
		return
	}
	_ = t.Close()
}

// unused sends nothing: the Transport of check is asked for its opinion only.
type unused struct{}

func (unused) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.ErrUnsupported }

func (unused) FetchAnchor(context.Context, string) (fedhttp.Anchor, error) {
	return fedhttp.Anchor{}, errors.ErrUnsupported
}

// explain adds what the root found wrong with the peers to the faults.
func (c *config) explain(err error, found *faults) {
	joined, ok := errors.Unwrap(err).(interface{ Unwrap() []error })
	if !ok {
		found.add(c.root.place, "", "%v", err) // it is not about the peers
		return
	}
	for _, err := range joined.Unwrap() {
		if found.full() {
			found.add(c.root.place, "", "") // to be counted only
			return
		}
		if fault, ok := errors.AsType[*fedhttp.ConfigError](err); ok {
			c.explainOne(fault, found)
		}
	}
}

func (c *config) explainOne(fault *fedhttp.ConfigError, found *faults) {
	peer := fmt.Sprintf("Peers[%d]", fault.Peer)
	at, missing := c.root.find(peer + "." + fault.Field)
	if at.faulty {
		return // what follows from a fault is none
	}
	args := make([]any, len(fault.Args))
	for i, arg := range fault.Args {
		from, absent := at, missing
		if v, ok := arg.(fedhttp.ConfigValue); ok {
			if v.Field == "" {
				args[i] = v
				continue
			}
			if !strings.HasPrefix(v.Field, "Peers[") {
				v.Field = peer + "." + v.Field
			}
			from, absent = c.root.find(v.Field)
			if v.Value == nil {
				args[i] = fmt.Sprintf("%s%s (line %d)", from.path, absent, from.place.line)
				continue
			}
			arg = v.Value
		}
		if absent == "" {
			arg = shown{arg, from}
		} // else it is a default
		args[i] = arg
	}
	found.add(at.place, at.path+missing, inWords(fault.Format), args...)
}

// shown is a value in what is said: one that has something from the environment
// is shown as the file has it, however it would be written else.
type shown struct {
	value any
	of    *spot
}

// Format implements fmt.Formatter.
func (s shown) Format(f fmt.State, verb rune) {
	_, isError := s.value.(error)
	switch {
	case !s.of.secret:
		fmt.Fprintf(f, fmt.FormatString(f, verb), s.value)
	case s.of.source == "":
		fmt.Fprint(f, "...") // it is made of several values
	case isError:
		fmt.Fprintf(f, "what %s stands for is not usable", quote(s.of.source))
	default:
		fmt.Fprint(f, quote(s.of.source))
	}
}

var (
	goName  = regexp.MustCompile(`\b[A-Z][A-Za-z0-9]+\b`)
	goNames = namesIn(reflect.TypeFor[document](), map[string]bool{})
)

// inWords puts the root's own words, in which nothing is a user's, into those of
// the file.
func inWords(format string) string {
	return goName.ReplaceAllStringFunc(format, func(name string) string {
		if goNames[name] {
			return keyOf(name)
		}
		return name
	})
}

// namesIn adds the names of a struct's fields, and of those below it.
func namesIn(t reflect.Type, names map[string]bool) map[string]bool {
	switch t.Kind() {
	case reflect.Struct:
		if t == timeType {
			break
		}
		for _, f := range fieldsOf(t) {
			names[f.name] = true
			namesIn(t.Field(f.index).Type, names)
		}
	case reflect.Slice, reflect.Map:
		namesIn(t.Elem(), names)
	}
	return names
}

// find returns the spot that a way through the structs leads to. Where the file
// does not have that, it is the last one on the way, and missing is the rest of it
// in the form of the file.
func (s *spot) find(way string) (at *spot, missing string) {
	for at = s; way != ""; {
		step, rest := nextStep(way)
		next := at.at(step)
		if next == nil {
			break
		}
		at, way = next, rest
	}
	for way != "" {
		step, rest := nextStep(way)
		if !strings.HasPrefix(step, "[") {
			step = "." + keyOf(step)
		}
		missing, way = missing+step, rest
	}
	return at, missing
}

// nextStep takes the first step of a way: a name, or an index or key in brackets.
func nextStep(way string) (step, rest string) {
	key, isKey := strings.CutPrefix(way, "[")
	if !isKey {
		end := strings.IndexAny(way, ".[")
		if end < 0 {
			return way, ""
		}
		return way[:end], strings.TrimPrefix(way[end:], ".")
	}
	quoted, _ := strconv.QuotedPrefix(key) // "" before an index
	end := len("[") + len(quoted)
	end += strings.IndexByte(way[end:], ']') + 1
	return way[:end], strings.TrimPrefix(way[end:], ".")
}
