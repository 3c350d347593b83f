package fedhttp

import (
	"fmt"
	"net/http"
	"strings"
)

// ownedHeader is a header that is copied before the first change.
type ownedHeader struct {
	h     http.Header
	owned bool
	room  [1]string // of the traceparent that is added
}

// headerRoom is how many fields an attempt can add to the caller's.
const headerRoom = 6

func (o *ownedHeader) own() http.Header {
	if !o.owned {
		h := make(http.Header, len(o.h)+headerRoom)
		for name, values := range o.h {
			h[name] = values
		}
		o.h, o.owned = h, true
	}
	return o.h
}

// set gives the field one value, kept in room, or removes it where the value is
// empty. name is canonical.
func (o *ownedHeader) set(name, value string, room *[1]string) {
	o.del(name)
	if value != "" {
		room[0] = value
		o.own()[name] = room[:]
	}
}

// del removes the field, however the caller has spelled it: a name that was put
// into the map by hand goes out as it stands, and the peer reads any spelling.
func (o *ownedHeader) del(name string) {
	for spelled := range o.h {
		if len(spelled) == len(name) && strings.EqualFold(spelled, name) {
			delete(o.own(), spelled)
		}
	}
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

// sendable reports whether net/http would send the request's method and header
// at all, and refuses in its words. That is the caller's own mistake; seen from
// outside it would be an error of which nothing is known.
func sendable(req *http.Request) error {
	if req.Method != "" && !isToken(req.Method) {
		return fmt.Errorf("net/http: invalid method %s", quote(req.Method))
	}
	for name, values := range req.Header {
		if !isToken(name) {
			return fmt.Errorf("net/http: invalid header field name %s", quote(name))
		}
		for _, value := range values {
			if !isHeaderValue(value) {
				return fmt.Errorf("net/http: invalid header field value for %s", quote(name))
			}
		}
	}
	return nil
}
