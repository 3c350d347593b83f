package fedconfig

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// spot is a value of the file as it was decoded: the way back from what the root
// says about a field of a struct to a place in the file.
type spot struct {
	path     string // as the file has it: "peers[0].signals"
	place    place
	value    reflect.Value
	secret   bool   // it has references, or something in it has: its value is not to be shown
	source   string // of a scalar with references, as the file has it
	typ      reflect.Type
	override string // what belongs here, where the type says too little
	faulty   bool   // it has a fault already, and its value says nothing
	step     string // from its parent: "Signals", "[0]", `["key"]`
	children []*spot
}

func (s *spot) child(step, path string, at place, t reflect.Type) *spot {
	if strings.HasPrefix(path, "[") || s.path == "" {
		path = s.path + path
	} else {
		path = s.path + "." + path
	}
	c := &spot{path: path, place: at, step: step, typ: t}
	s.children = append(s.children, c)
	return c
}

func (s *spot) field(f field, of reflect.Type, at place) *spot {
	c := s.child(f.name, f.key, at, of.Field(f.index).Type)
	c.override = f.want
	return c
}

// want says in words what belongs here.
func (s *spot) want() string {
	if s.override != "" {
		return s.override
	}
	return want(s.typ)
}

// at returns what is one step from s, nil where the file does not have it.
func (s *spot) at(step string) *spot {
	if i, err := strconv.ParseUint(strings.Trim(step, "[]"), 10, 31); err == nil {
		if int(i) < len(s.children) {
			return s.children[i] // a list has all of its elements, in their order
		}
		return nil
	}
	for _, c := range s.children {
		if c.step == step {
			return c
		}
	}
	return nil
}

// maxValues bounds what aliases can blow a file up to.
const maxValues = 100_000

// decoder fills the root's structs with what a file has.
type decoder struct {
	*faults
	values   int
	expanded int  // bytes, see maxExpanded
	large    bool // one of the two is too much: nothing more is decoded
}

func (d *decoder) fault(at *spot, format string, args ...any) {
	at.faulty = true
	d.add(at.place, at.path, format, args...)
}

// decode fills v, and reports what is wrong where it cannot.
func (d *decoder) decode(n *node, v reflect.Value, at *spot) {
	at.value = v
	if d.values++; d.values > maxValues && !d.large {
		d.large = true
		d.fault(at, "more than %d values, aliases resolved; want fewer", maxValues)
	}
	if d.large {
		at.faulty = true
		return
	}
	t := v.Type()
	if n.kind == unusable {
		at.faulty = true
		return
	}
	switch {
	case n.kind == null:
		d.fault(at, "has no value; want %s, or the key left out for the default", at.want())
	case t == durationType, t == timeType, isEnum(t), t.Kind() == reflect.String, t.Kind() == reflect.Bool,
		v.CanInt(), v.CanFloat():
		d.scalar(n, v, at)
	case t.Kind() == reflect.Struct:
		d.object(n, v, at)
	case t.Kind() == reflect.Slice:
		d.list(n, v, at)
	case t.Kind() == reflect.Map:
		d.table(n, v, at)
	default:
		panic("fedconfig: no form in a file for " + t.String()) // a test looks at every field
	}
	for _, below := range at.children {
		at.secret = at.secret || below.secret
	}
}

// want says in words what a value of the type looks like.
func want(t reflect.Type) string {
	switch {
	case t == durationType:
		return "a duration such as 150ms, 30s or 1h30m"
	case t == timeType:
		return "a time such as 2027-01-31T12:00:00Z (RFC 3339)"
	case isEnum(t):
		return "one of " + strings.Join(tokensOf(t), ", ")
	}
	switch t.Kind() {
	case reflect.Struct:
		return "a mapping of " + strings.Join(keysOf(t), ", ")
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "a mapping of text"
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Float64:
		return "a number such as 0.1"
	}
	return "a whole number"
}

func (d *decoder) object(n *node, v reflect.Value, at *spot) {
	t := v.Type()
	if n.kind != mapping {
		d.fault(at, "is %v; want %s", n.kind, at.want())
		return
	}
	fields := fieldsOf(t)
	keys := keysOf(t)
	seen := make(map[string]place, len(n.pairs))
	for _, p := range n.pairs {
		i := indexOf(keys, p.key)
		if i < 0 {
			d.unknownKey(p.key, t, at)
			continue
		}
		f := fields[i]
		if d.duplicate(p.key, f.key, seen, at) {
			continue
		}
		child := at.field(f, t, p.value.place)
		d.decode(p.value, v.Field(f.index), child)
		if f.standard != "" && !child.faulty && v.Field(f.index).IsZero() {
			d.fault(child, "would mean the default, %s; want another value, or the key left out", f.standard)
		}
	}
	for _, f := range fields {
		if _, given := seen[f.key]; f.required && !given {
			child := at.field(f, t, at.place)
			d.fault(child, "is missing; want %s", child.want())
		}
	}
}

func indexOf(keys []string, key *node) int {
	if key.kind == text {
		for i, k := range keys {
			if k == key.text {
				return i
			}
		}
	}
	return -1
}

func (d *decoder) unknownKey(key *node, in reflect.Type, at *spot) {
	if d.full() {
		d.add(key.place, "", "") // to be counted only
		return
	}
	keys := keysOf(in)
	near := nearest(key.text, keys)
	for _, f := range fieldsOf(in) { // it may belong further down
		if t := in.Field(f.index).Type; near == "" && t.Kind() == reflect.Struct {
			if below := nearest(key.text, keysOf(t)); below != "" {
				near = f.key + "." + below
			}
		}
	}
	switch {
	case key.kind == mapping || key.kind == sequence:
		d.add(key.place, at.path, "%v is no key; want one of %s", key.kind, strings.Join(keys, ", "))
	case near != "":
		d.add(key.place, at.path, "unknown key %s; did you mean %s?", quote(key.text), near)
	default:
		d.add(key.place, at.path, "unknown key %s; want one of %s", quote(key.text), strings.Join(keys, ", "))
	}
}

func (d *decoder) duplicate(key *node, name string, seen map[string]place, at *spot) bool {
	first, again := seen[name]
	if again {
		d.add(key.place, at.path, "key %s is there twice, first on line %d; want it once", quote(name), first.line)
	} else {
		seen[name] = key.place
	}
	return again
}

func (d *decoder) list(n *node, v reflect.Value, at *spot) {
	if n.kind != sequence {
		d.fault(at, "is %v; want %s", n.kind, at.want())
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		step := fmt.Sprintf("[%d]", i)
		d.decode(item, v.Index(i), at.child(step, step, item.place, v.Type().Elem()))
	}
}

// table decodes a mapping whose keys are the user's own.
func (d *decoder) table(n *node, v reflect.Value, at *spot) {
	t := v.Type()
	if n.kind != mapping {
		d.fault(at, "is %v; want %s", n.kind, at.want())
		return
	}
	v.Set(reflect.MakeMapWithSize(t, len(n.pairs)))
	seen := make(map[string]place, len(n.pairs))
	for _, p := range n.pairs {
		switch {
		case p.key.kind == unusable:
			continue
		case p.key.kind != text:
			d.add(p.key.place, at.path, "key is %v; want text: put it in quotes", p.key.kind)
			continue
		case strings.Contains(p.key.text, "${"):
			d.add(p.key.place, at.path, "key %s has a reference; want references in values only", quote(p.key.text))
			continue
		case d.duplicate(p.key, p.key.text, seen, at):
			continue
		}
		step := "[" + strconv.QuoteToASCII(p.key.text) + "]"
		child := at.child(step, "["+quote(p.key.text)+"]", p.value.place, t.Elem())
		value := reflect.New(t.Elem()).Elem()
		d.decode(p.value, value, child)
		if !child.faulty {
			v.SetMapIndex(reflect.ValueOf(p.key.text).Convert(t.Key()), value)
		}
	}
}

// scalar decodes text, a number, or true or false.
func (d *decoder) scalar(n *node, v reflect.Value, at *spot) {
	t := v.Type()
	if n.kind == sequence || n.kind == mapping {
		d.fault(at, "is %v; want %s", n.kind, at.want())
		return
	}
	value, shown, ok := d.resolve(n, at)
	if !ok {
		return
	}
	// A reference stands for a value of any kind, also within quotes.
	is := func(k kind) bool { return n.kind == k || at.secret }
	switch {
	case n.kind == number && t == durationType:
		d.fault(at, "%s has no unit; want %s", shown, at.want())
		return
	case t.Kind() == reflect.String && !is(text):
		d.fault(at, "%s is %v; want text: put it in quotes", shown, n.kind)
		return
	case isEnum(t) && n.kind == text && !at.secret:
		tokens := tokensOf(t)
		if near := nearest(value, tokens); near != "" && near != value {
			d.fault(at, "%s is not known; did you mean %s? want %s", shown, near, at.want())
			return
		}
	}
	switch {
	case t == durationType:
		ok = is(text) && set(v, value, time.ParseDuration)
	case t == timeType:
		ok = is(text) && set(v, value, parseTime)
	case isEnum(t):
		ok = is(text) && slices.Contains(tokensOf(t), value) &&
			v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(value)) == nil
	case t.Kind() == reflect.String:
		v.SetString(value)
	case t.Kind() == reflect.Bool:
		ok = is(boolean) && set(v, strings.ToLower(value), parseBool)
	case v.CanInt():
		ok = is(number) && set(v, value, parseInt)
	case v.CanFloat():
		ok = is(number) && set(v, value, parseFloat)
	}
	if !ok {
		d.fault(at, "%s does not fit; want %s", shown, at.want())
	}
}

// resolve returns a scalar's value with the references in it replaced, and how
// a fault may show it.
func (d *decoder) resolve(n *node, at *spot) (value, shown string, ok bool) {
	if n.kind != text {
		return n.text, n.text[:min(len(n.text), maxQuoted)], true
	}
	if !strings.Contains(n.text, "$") {
		return n.text, quote(n.text), true
	}
	value, references, problems := d.expand(n.text)
	for _, problem := range problems {
		d.fault(at, "%s", problem)
	}
	if !references {
		return value, quote(value), len(problems) == 0
	}
	at.secret, at.source = true, n.text
	return value, "what " + quote(n.text) + " stands for", len(problems) == 0
}

// set parses s into v, and reports whether it could.
func set[T any](v reflect.Value, s string, parse func(string) (T, error)) bool {
	parsed, err := parse(s)
	if err != nil {
		return false
	}
	from := reflect.ValueOf(parsed)
	if v.CanInt() && v.OverflowInt(from.Int()) {
		return false
	}
	v.Set(from.Convert(v.Type()))
	return true
}

var errForm = errors.New("not in the file's form")

var strictTime = regexp.MustCompile(`^[-0-9]+T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])$`)

// parseTime takes what is in RFC 3339; time.Parse takes more.
func parseTime(s string) (time.Time, error) {
	if !strictTime.MatchString(s) {
		return time.Time{}, errForm
	}
	return time.Parse(time.RFC3339, s)
}

func parseBool(s string) (bool, error) {
	if s != "true" && s != "false" {
		return false, errForm
	}
	return s == "true", nil
}

var wholeNumber = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)$`)

// parseInt takes decimals only: what 010 is depends on whom one asks.
func parseInt(s string) (int64, error) {
	if !wholeNumber.MatchString(s) {
		return 0, errForm
	}
	return strconv.ParseInt(s, 10, 64)
}

var decimalNumber = regexp.MustCompile(`^[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$`)

func parseFloat(s string) (float64, error) {
	if !decimalNumber.MatchString(s) {
		return 0, errForm
	}
	return strconv.ParseFloat(s, 64)
}
