package fedconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

var errDepth = fmt.Errorf("more than %d values inside each other", maxDepth)

// parseYAML returns the file's value, nil where it has none.
func parseYAML(data []byte, found *faults) *node {
	loader, err := yaml.NewLoader(bytes.NewReader(data), yaml.WithPlugin(loaderlimits.New(
		loaderlimits.DepthFunc(func(depth int, _ *yaml.DepthContext) error {
			if depth > maxDepth {
				return errDepth
			}
			return nil
		}))))
	if err != nil {
		found.add(place{}, "", "%v", err)
		return &node{kind: unusable}
	}
	var first, second yaml.Node
	switch err := loader.Load(&first); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		addSyntax(data, err, found)
		return &node{kind: unusable}
	}
	switch err := loader.Load(&second); {
	case err == nil:
		found.add(place{second.Line, second.Column}, "", "a second document; want one in a file")
	case !errors.Is(err, io.EOF):
		addSyntax(data, err, found)
	}
	if len(first.Content) != 1 {
		return nil
	}
	b := yamlBuilder{found: found, made: make(map[*yaml.Node]*node)}
	return b.node(first.Content[0])
}

// addSyntax reports what the parser says, and what is often behind it.
func addSyntax(data []byte, err error, found *faults) {
	at, why := place{}, err.Error()
	if load, ok := errors.AsType[*yaml.LoadError](err); ok {
		at, why = place{load.Mark.Line, load.Mark.Column}, load.Message
		if at.line == 0 {
			at = place{load.ContextMark.Line, load.ContextMark.Column}
		}
		if load.ContextMsg != "" {
			why += " " + load.ContextMsg
		}
	}
	line := lineOf(data, &at)
	hint := ""
	switch {
	case strings.Contains(why, errDepth.Error()):
		why = errDepth.Error()
	case strings.HasPrefix(strings.TrimLeft(string(line), " "), "\t"):
		hint = "; indent with spaces, not with tabs"
	case bytes.Contains(line, []byte("${")) && bytes.ContainsAny(line, "[{"):
		hint = "; inside [ ] and { } put a reference in quotes"
	}
	found.add(at, "", "%s; want YAML%s", why, hint)
}

// lineOf returns the line that the place is in, without its end. A place behind
// the end of the text, which the parser may name, is moved there.
func lineOf(data []byte, at *place) []byte {
	pos := cursor{text: data}
	start := 0
	for pos.at < len(data) && pos.line+1 < at.line {
		line := pos.line
		if pos.advance(pos.at + 1); pos.line != line {
			start = pos.at
		}
	}
	line := data[start:]
	if end := bytes.IndexAny(line, "\r\n"); end >= 0 {
		line = line[:end]
	}
	*at = place{pos.line + 1, min(at.column, utf8.RuneCount(line)+1)}
	return line
}

// yamlBuilder makes nodes of YAML's. An alias is the very node that its anchor
// has: nothing is copied, however often it is used.
type yamlBuilder struct {
	found *faults
	made  map[*yaml.Node]*node
}

func (b *yamlBuilder) node(from *yaml.Node) *node {
	if from.Kind == yaml.AliasNode {
		target := *b.node(from.Alias)
		target.place = place{from.Line, from.Column}
		return &target
	}
	if n := b.made[from]; n != nil {
		return n
	}
	n := &node{place: place{from.Line, from.Column}, text: from.Value}
	b.made[from] = n
	if from.Style&yaml.TaggedStyle != 0 {
		b.found.add(n.place, "", "tag %s; want no tags: put text in quotes, and leave other values as they are", quote(from.Tag))
		n.kind = unusable
		return n
	}
	switch from.Kind {
	case yaml.SequenceNode:
		n.kind = sequence
		for _, item := range from.Content {
			n.items = append(n.items, b.node(item))
		}
	case yaml.MappingNode:
		n.kind = mapping
		for i := 0; i+1 < len(from.Content); i += 2 {
			key, value := b.node(from.Content[i]), b.node(from.Content[i+1])
			if from.Content[i].Tag == "!!merge" {
				b.found.add(key.place, "", "merge key <<; want the keys written out, or an alias for a value as a whole")
				continue
			}
			if value.kind == null && value.text == "" {
				value.place = key.place // there is nothing at the value's own place
			}
			n.pairs = append(n.pairs, pair{key, value})
		}
	default:
		n.kind = scalarKind(from)
	}
	return n
}

// scalarKind takes plain words and numbers for what they are. Dates are text:
// what wants a time parses it.
func scalarKind(from *yaml.Node) kind {
	switch from.Tag {
	case "!!null":
		return null
	case "!!bool":
		return boolean
	case "!!int", "!!float":
		return number
	}
	return text
}
