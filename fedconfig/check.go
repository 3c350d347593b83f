package fedconfig

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
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
	doc     document
	root    *spot
	secrets *strings.Replacer // made when it is needed
}

// check reports what a Transport would refuse. The rules are the root's alone;
// here they are only asked for, and what they answer is given its place.
func (c *config) check(found *faults) {
	t, err := fedhttp.NewTransport(fedhttp.Config{
		Peers: c.doc.Peers, Base: unused{}, Anchors: unused{},
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
	each := []error{err}
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		each = joined.Unwrap()
	}
	used := make(map[*spot]bool)
	for _, err := range each {
		if found.full() {
			found.add(c.root.place, "", "") // to be counted only
			return
		}
		c.explainOne(err.Error(), used, found)
	}
}

// rootFault is the form of the root's faults: Peers[0] ("id"): Field: message.
var rootFault = regexp.MustCompile(`^(Peers\[\d+\]) \("(?:[^"\\]|\\.)*"\): ([A-Za-z0-9_.\[\]]+): ((?s:.*))$`)

var fieldStep = regexp.MustCompile(`\w+|\[\d+\]`)

func (c *config) explainOne(message string, used map[*spot]bool, found *faults) {
	at, path := c.root, ""
	if m := rootFault.FindStringSubmatch(message); m != nil {
		steps := fieldStep.FindAllString(m[1]+"."+m[2], -1)
		message = m[3]
		at = c.root.find(steps)
		path = pathOf(steps)
		if at.path == path && !at.faulty {
			at = at.element(message, used)
			path = at.path
		}
	}
	if at.faulty {
		return // what follows from a fault is none
	}
	found.add(at.place, path, "%s", c.words(message, at))
}

// pathOf returns a path in the form of the file.
func pathOf(steps []string) string {
	var path string
	for i, step := range steps {
		if step[0] != '[' {
			step = keyOf(step)
			if i > 0 {
				step = "." + step
			}
		}
		path += step
	}
	return path
}

// element returns the element of a list or mapping that the message is about,
// s itself where none can be told.
func (s *spot) element(message string, used map[*spot]bool) *spot {
	if len(s.children) > maxFaults {
		return s // it would take too long
	}
	var fits *spot
	for _, c := range s.children {
		if !c.is(message) {
			continue
		}
		if !used[c] {
			used[c] = true
			return c
		}
		fits = c
	}
	if fits != nil {
		return fits
	}
	return s
}

// is reports whether the message is about this element. The root begins it with
// an element of a list, and quotes the key of one of a mapping.
func (s *spot) is(message string) bool {
	first, _, _ := strings.Cut(message, " ")
	switch {
	case strings.HasPrefix(s.step, `["`):
		return strings.Contains(message, strings.Trim(s.step, "[]"))
	case !strings.HasPrefix(s.step, "[") || !s.value.IsValid():
		return false
	}
	value := fmt.Sprint(s.value.Interface())
	return value == first || originOf(value) == first && first != ""
}

// originOf writes an origin as the root does. It is only used to find a place.
func originOf(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return ""
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.String()
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	port := u.Port()
	if number, err := strconv.Atoi(port); err == nil {
		port = strconv.Itoa(number)
	}
	if standard := map[string]string{"http": "80", "https": "443"}[u.Scheme]; port == "" || port == standard {
		return u.Scheme + "://" + host
	}
	return u.Scheme + "://" + host + ":" + port
}

var (
	quoted  = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	goName  = regexp.MustCompile(`\b(?:Peers\[\d+\]|[A-Z][A-Za-z0-9]+\b)`)
	goNames = namesIn(reflect.TypeFor[document](), map[string]bool{})
)

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

// words puts the root's message into the words of the file, without anything
// that came from the environment.
func (c *config) words(message string, at *spot) string {
	if len(at.names) > 0 {
		// The root may repeat the value in any form, so only what it wants is kept.
		wanted := at.want()
		plain := quoted.ReplaceAllString(message, "")
		if i := strings.LastIndex(plain, "; want "); i >= 0 && !strings.Contains(plain[i:], at.expanded) {
			wanted = plain[i+len("; want "):]
		}
		return fmt.Sprintf("what ${%s} stands for is not usable; want %s", strings.Join(at.names, "} and ${"), wanted)
	}
	return c.conceal(outsideQuotes(message, func(s string) string {
		s = strings.ReplaceAll(s, `\n`, " ") // ServeMux has things to say in two lines
		return goName.ReplaceAllStringFunc(s, func(name string) string {
			if strings.HasPrefix(name, "Peers[") {
				step := strings.TrimPrefix(name, "Peers")
				return fmt.Sprintf("peers%s (line %d)", step, c.root.find([]string{"Peers", step, "ID"}).place.line)
			}
			if goNames[name] {
				return keyOf(name)
			}
			return name
		})
	}))
}

// outsideQuotes changes what is not in quotes: within them are a user's words.
func outsideQuotes(s string, change func(string) string) string {
	var b strings.Builder
	last := 0
	for _, at := range quoted.FindAllStringIndex(s, -1) {
		b.WriteString(change(s[last:at[0]]))
		b.WriteString(s[at[0]:at[1]])
		last = at[1]
	}
	b.WriteString(change(s[last:]))
	return b.String()
}

// conceal replaces values from the environment, which a message about another
// field may name ("is claimed by peer ..."), by their references.
func (c *config) conceal(message string) string {
	if c.secrets == nil {
		var pairs []string
		c.root.each(func(s *spot) {
			if s.expanded == "" {
				return
			}
			for _, form := range []string{
				s.expanded, strings.ToLower(s.expanded), strings.Trim(strconv.QuoteToASCII(s.expanded), `"`), fmt.Sprint(s.value.Interface()),
			} {
				pairs = append(pairs, form, s.source)
			}
		})
		c.secrets = strings.NewReplacer(pairs...)
	}
	return c.secrets.Replace(message)
}

func (s *spot) each(visit func(*spot)) {
	visit(s)
	for _, c := range s.children {
		c.each(visit)
	}
}
