package fedhttp

import (
	"net/http"
	"strings"
)

// ownedHeader is a header that is copied before the first change.
type ownedHeader struct {
	h     http.Header
	owned bool
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
