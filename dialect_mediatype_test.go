package fedhttp

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestHostileMediaType: each parameter of a Content-Type can cost its parser hundreds
// of bytes, so one that no server has is not parsed.
func TestHostileMediaType(t *testing.T) {
	const of = "text/html"
	answer := func(contentType string) *reply {
		return &reply{status: 400, header: http.Header{"Content-Type": {contentType}}}
	}
	if !mayBeNginx(answer(of + "; profile=" + strings.Repeat("x", maxMediaType-len(of+"; profile=")))) {
		t.Error("a long one is not read")
	}
	hostile := of
	for i := range 1000 {
		hostile += fmt.Sprintf(";p%d*=", i)
	}
	a := answer(hostile)
	if mayBeNginx(a) {
		t.Error("a hostile one is read")
	}
	if n := testing.AllocsPerRun(10, func() { mayBeNginx(a) }); n > 0 {
		t.Errorf("a hostile one costs %v allocations", n)
	}
}
