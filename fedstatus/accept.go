package fedstatus

import (
	"mime"
	"strconv"
	"strings"
)

const (
	typeHTML = "text/html"
	typeJSON = "application/json"
)

// maxAccept bounds, in bytes, what is read of an Accept header.
const maxAccept = 4096

// negotiate chooses between HTML and JSON by the Accept header (RFC 9110,
// section 12.5.1): the higher weight wins, then the one that is named more
// specifically, then HTML. Without the header it is HTML. Parameters of a media
// range other than its weight are ignored, and so is a range that does not parse.
func negotiate(accept []string) (mediaType string, ok bool) {
	header := strings.Join(accept, ",")
	if len(header) > maxAccept {
		header = header[:maxAccept]
		header = header[:strings.LastIndexByte(header, ',')+1] // half of an element may have another weight
	}
	if strings.Trim(header, ", \t") == "" {
		return typeHTML, true
	}
	html, json := preference{of: typeHTML}, preference{of: typeJSON}
	for _, element := range elements(header) {
		mediaRange, params, err := mime.ParseMediaType(element)
		if err != nil {
			continue
		}
		weight := 1.0
		if q, given := params["q"]; given {
			// Not a number compares as false.
			if weight, err = strconv.ParseFloat(q, 64); err != nil || !(weight >= 0 && weight <= 1) {
				continue
			}
		}
		html.consider(mediaRange, weight)
		json.consider(mediaRange, weight)
	}
	best := html
	if json.weight > html.weight || json.weight == html.weight && json.specific > html.specific {
		best = json
	}
	return best.of, best.weight > 0
}

// preference is what the header says of one media type so far.
type preference struct {
	of       string
	specific int // 0: nothing, 1: */*, 2: type/*, 3: by name
	weight   float64
}

// consider takes the weight where the range fits and is more specific than those
// before it.
func (p *preference) consider(mediaRange string, weight float64) {
	specific := 0
	switch kind, _, _ := strings.Cut(p.of, "/"); mediaRange {
	case p.of:
		specific = 3
	case kind + "/*":
		specific = 2
	case "*/*", "*":
		specific = 1
	default:
		return
	}
	if specific > p.specific || specific == p.specific && weight > p.weight {
		p.specific, p.weight = specific, weight
	}
}

// elements splits a header's list at the commas outside of quoted strings.
func elements(header string) []string {
	var list []string
	start, quoted := 0, false
	for i := 0; i < len(header); i++ {
		switch c := header[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			list = append(list, header[start:i])
			start = i + 1
		}
	}
	return append(list, header[start:])
}
