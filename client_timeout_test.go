package fedhttp

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestClientTimeout: where http.Client's own Timeout ends a call that was sent,
// nobody knows what became of it, and it is a timeout as the client has them.
func TestClientTimeout(t *testing.T) {
	vtBubble(t, func(t *testing.T) {
		s := &vtAnchors{}
		s.is(Anchor{Version: "1"})
		r := vtAnchorRig(t, s)
		r.peer.Otherwise(fedtest.Hang())
		client := &http.Client{Transport: r.tr, Timeout: 50 * time.Millisecond}
		_, err := client.Get(r.peer.URL + "/slow")
		var u *url.Error
		if !errors.As(err, &u) || !u.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v is no timeout as http.Client has it", err)
		}
		// http.Client keeps no more than the text of an error where its own Timeout ended the call.
		if !strings.Contains(err.Error(), "no_signal") {
			t.Errorf("%v does not say that the author cannot be told", err)
		}
		if n := len(r.peer.Routing.Log()); n != 1 {
			t.Errorf("%d sends, want 1", n)
		}
	})
}
