package fedstatus

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/fedhttp/fedhttp"
)

// Handler returns the operator's page of t, for whichever path it is mounted
// at. It answers GET and HEAD: with HTML, or with the JSON of [Status] where the
// request's Accept header prefers application/json; with 406 where it accepts
// neither. Nothing of it may be cached. Each request reads the state once.
//
// It panics where t is nil. The page of the zero Transport has no peers. It is
// safe for concurrent use. See the package documentation for how to mount it.
func Handler(t *fedhttp.Transport) http.Handler {
	if t == nil {
		panic("fedstatus: Handler needs a *fedhttp.Transport, and was given nil")
	}
	return handler{t}
}

// source is what the page is made of. It is a *fedhttp.Transport.
type source interface {
	Status() []fedhttp.PeerStatus
	RecentEscalations() []fedhttp.Escalation
	RecentDenials() []fedhttp.Denial
}

type handler struct{ source source }

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Vary", "Accept")
	header.Set("X-Content-Type-Options", "nosniff")

	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "want GET or HEAD", http.StatusMethodNotAllowed)
		return
	}
	format, ok := negotiate(r.Header.Values("Accept"))
	if !ok {
		http.Error(w, "there is "+typeHTML+" and "+typeJSON, http.StatusNotAcceptable)
		return
	}
	// In memory first, so that a client that reads slowly gets one state.
	var body bytes.Buffer
	if err := write(&body, format, snapshot(h.source, time.Now())); err != nil {
		http.Error(w, "the page could not be made", http.StatusInternalServerError)
		return
	}
	if format == typeHTML {
		format += "; charset=utf-8"
	}
	header.Set("Content-Type", format)
	header.Set("Content-Length", strconv.Itoa(body.Len()))
	_, _ = w.Write(body.Bytes()) // a client that has gone needs no answer
}

func write(body *bytes.Buffer, format string, s Status) error {
	if format == typeJSON {
		return json.NewEncoder(body).Encode(s)
	}
	return page.Execute(body, s)
}
