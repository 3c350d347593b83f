package fedconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// parseJSON returns the file's value, nil where it has none.
func parseJSON(data []byte, found *faults) *node {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	// Of the ways to read JSON this one tells exactly where a mistake is.
	var whole json.RawMessage
	err := json.Unmarshal(data, &whole)
	p := jsonParser{Decoder: json.NewDecoder(bytes.NewReader(data)), pos: cursor{text: data}}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		// It counts the bytes up to and with the one that it did not expect.
		p.pos.advance(min(max(int(syntax.Offset)-1, 0), len(data)))
		if int(syntax.Offset) >= len(data) && strings.HasPrefix(syntax.Error(), "unexpected end") {
			p.pos.advance(len(data))
		}
	}
	var n *node
	if err == nil {
		p.UseNumber()
		n, err = p.value(0)
	}
	if err != nil {
		found.add(p.pos.place(), "", "%v; want JSON", err)
		return &node{kind: unusable}
	}
	return n
}

// jsonParser builds nodes of a decoder's tokens, which unlike its values tell
// where they are and of keys that come twice.
type jsonParser struct {
	*json.Decoder
	pos cursor
}

// skipSpace moves the cursor to where the next token begins.
func (p *jsonParser) skipSpace() {
	at := int(p.InputOffset())
	for at < len(p.pos.text) && bytes.IndexByte([]byte(" \t\r\n,:"), p.pos.text[at]) >= 0 {
		at++
	}
	p.pos.advance(at)
}

func (p *jsonParser) value(depth int) (*node, error) {
	p.skipSpace()
	n := &node{place: p.pos.place()}
	token, err := p.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		if depth == maxDepth {
			return nil, errDepth
		}
		if token == '[' {
			n.kind = sequence
			for p.More() {
				item, err := p.value(depth + 1)
				if err != nil {
					return nil, err
				}
				n.items = append(n.items, item)
			}
		} else {
			n.kind = mapping
			for p.More() {
				key, err := p.value(depth + 1)
				if err != nil {
					return nil, err
				}
				value, err := p.value(depth + 1)
				if err != nil {
					return nil, err
				}
				n.pairs = append(n.pairs, pair{key, value})
			}
		}
		_, err := p.Token() // the end of the list or mapping
		return n, err
	case string:
		n.kind, n.text = text, token
	case json.Number:
		n.kind, n.text = number, token.String()
	case bool:
		n.kind, n.text = boolean, "false"
		if token {
			n.text = "true"
		}
	}
	return n, nil
}
