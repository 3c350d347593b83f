package fedhttp

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
)

// attemptHeader is the header of an attempt's request: the caller's, which is copied
// before the first change.
type attemptHeader attempt

// headerRoom has the values of fields that an attempt adds.
type headerRoom struct{ anchor, traceparent [1]string }

// single makes the value the only one of a field.
func single(room *[1]string, value string) []string {
	room[0] = value
	return room[:]
}

// maxAdded is how many fields an attempt can add to the caller's.
const maxAdded = 6

func (o *attemptHeader) own() http.Header {
	if o.room == nil {
		if o.room = &o.warrant.room; o.warrant.Digest == "" {
			o.room = &headerRoom{}
		}
		if len(o.request.Header) == 0 {
			o.request.Header = make(http.Header, maxAdded)
		} else {
			o.request.Header = maps.Clone(o.request.Header) // which copies it as it lies
		}
	}
	return o.request.Header
}

// strip removes the fields of the set, however the caller has spelled them: a
// name that was put into the map by hand goes out as it stands, and the peer
// reads any spelling. traceparent and tracestate can be kept.
func (o *attemptHeader) strip(s *fieldSet, keepTraceContext bool) {
	for spelled := range o.request.Header {
		if s.letters&letter(spelled) == 0 {
			continue
		}
		name := http.CanonicalHeaderKey(spelled)
		kept := keepTraceContext && (name == "Traceparent" || name == "Tracestate")
		if s.has(name) && !kept {
			delete(o.own(), spelled)
		}
	}
}

// fieldSet is a set of field names and of beginnings of names.
type fieldSet struct {
	letters   uint32 // with which they begin, so that most names are not looked up
	names     map[string]bool
	beginning []string
}

func letter(name string) uint32 {
	if name == "" {
		return 0
	}
	return 1 << (name[0] & 0x1f) // the same for both cases
}

// newFieldSet makes a set. A name that ends in a hyphen stands for all that begin so.
func newFieldSet(names ...string) *fieldSet {
	s := &fieldSet{names: make(map[string]bool)}
	for _, name := range names {
		s.letters |= letter(name)
		if strings.HasSuffix(name, "-") {
			s.beginning = append(s.beginning, name)
		} else {
			s.names[http.CanonicalHeaderKey(name)] = true
		}
	}
	return s
}

// has takes the name in its canonical form.
func (s *fieldSet) has(name string) bool {
	if s.names[name] {
		return true
	}
	for _, beginning := range s.beginning {
		if strings.HasPrefix(name, beginning) {
			return true
		}
	}
	return false
}

// isHeaderValue reports whether s can be sent as a field value (RFC 9110, section
// 5.5): no control characters but the tab.
func isHeaderValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// sendable reports whether net/http would send the request at all, over HTTP/1 and
// HTTP/2, as far as that can be seen beforehand. That it would not is the caller's own
// mistake; seen from outside it would be an error of which nothing is known, or one
// that proves that nothing was delivered. It returns the letters with which the
// header's fields begin, so that it need not be looked through again.
func sendable(req *http.Request) (letters uint32, err error) {
	switch {
	case req.Method != "" && !isToken(req.Method):
		return 0, fmt.Errorf("net/http: invalid method %s", quote(req.Method))
	case !isPath(req.URL):
		return 0, errors.New("net/http: the URL's path does not begin with a slash, nor is it * alone")
	case !isQuery(req.URL.RawQuery):
		return 0, errors.New("net/http: can't write control character in Request.URL")
	case req.Body == nil && req.ContentLength != 0 || req.ContentLength < -1:
		return 0, fmt.Errorf("net/http: ContentLength %d is not that of the body", req.ContentLength)
	case len(req.TransferEncoding) > 0 && !isFraming(req):
		return 0, fmt.Errorf("net/http: unsupported transfer encoding %s", quote(strings.Join(req.TransferEncoding, ", ")))
	case len(req.Trailer) > 0:
		if err := sendableTrailer(req.Trailer); err != nil {
			return 0, err
		}
	}
	return sendableFields("header", req.Header)
}

// isPath reports whether a request's line can have the URL's path, which is escaped
// there. Through a proxy one without a slash would be of another host.
func isPath(u *url.URL) bool {
	path := u.Path
	if u.RawPath != "" { // which may have escaped the slash
		path = u.EscapedPath()
	}
	return path == "" || path[0] == '/' || path == "*" && u.RawQuery == "" && !u.ForceQuery
}

// isQuery reports whether a request's line can have the query, which stands there as it is.
func isQuery(query string) bool { return strings.IndexByte(query, '\t') < 0 && isHeaderValue(query) }

// isFraming reports whether the request's TransferEncoding says where its body ends.
// Over HTTP/1 the peer would take the body for another request otherwise.
func isFraming(req *http.Request) bool {
	if len(req.TransferEncoding) > 1 {
		return false
	}
	switch req.TransferEncoding[0] {
	case "chunked":
		return true
	case "identity":
		return req.ContentLength > 0 || req.Body == nil || req.Body == http.NoBody
	}
	return false
}

// sendableTrailer is sendableFields, less those that a trailer cannot have.
func sendableTrailer(trailer http.Header) error {
	for name := range trailer {
		switch http.CanonicalHeaderKey(name) {
		case "Transfer-Encoding", "Trailer", "Content-Length":
			return fmt.Errorf("net/http: invalid trailer field name %s", quote(name))
		}
	}
	_, err := sendableFields("trailer", trailer)
	return err
}

// overHTTP2 reports whether net/http sends the header over HTTP/2, which has no fields
// that are of the connection (RFC 9113, section 8.2.2): it looks before a byte leaves.
// Whether it is HTTP/2 nobody knows beforehand.
func overHTTP2(h http.Header) bool {
	upgrade, coding, conn := h["Upgrade"], h["Transfer-Encoding"], h["Connection"]
	switch {
	case len(upgrade) > 0 && upgrade[0] != "" && upgrade[0] != "chunked":
	case len(coding) > 1, len(coding) == 1 && coding[0] != "" && coding[0] != "chunked":
	case len(conn) > 1, len(conn) == 1 && conn[0] != "" && !strings.EqualFold(conn[0], "close") && !strings.EqualFold(conn[0], "keep-alive"):
	default:
		return true
	}
	return false
}

// isTwice reports whether net/http writes the field, and would not leave out the
// caller's: that it does with a canonical name only. The peer and what is in front of it
// would have two to choose from, of which one says where the next request begins.
func isTwice(name string) bool {
	var own string
	switch len(name) {
	case len("Host"):
		own = "Host"
	case len("Content-Length"):
		own = "Content-Length"
	case len("Transfer-Encoding"):
		own = "Transfer-Encoding"
	}
	return name != own && strings.EqualFold(name, own)
}

func sendableFields(kind string, h http.Header) (letters uint32, err error) {
	for name, values := range h {
		if !isToken(name) {
			return 0, fmt.Errorf("net/http: invalid %s field name %s", kind, quote(name))
		}
		if isTwice(name) {
			return 0, fmt.Errorf("net/http: %s field name %s is not in its canonical form, so that it would be sent beside net/http's own", kind, quote(name))
		}
		for _, value := range values {
			if !isHeaderValue(value) {
				return 0, fmt.Errorf("net/http: invalid %s field value for %s", kind, quote(name))
			}
		}
		letters |= letter(name)
	}
	return letters, nil
}
