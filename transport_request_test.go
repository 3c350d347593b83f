package fedhttp_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fedhttp/fedhttp"
)

// snapshot is what a request was before the call: a deep copy of its data, and
// the identity of what is shared.
type snapshot struct {
	data       *http.Request // deep copies of URL, Header, Trailer, ...
	header     uintptr
	trailer    uintptr
	url        *url.URL
	body       io.ReadCloser
	getBody    uintptr
	ctx        context.Context
	headerKeys map[string]uintptr // of each value slice
}

func snapshotOf(r *http.Request) snapshot {
	s := snapshot{
		data: r.Clone(r.Context()), header: pointer(r.Header), trailer: pointer(r.Trailer),
		url: r.URL, body: r.Body, getBody: pointer(r.GetBody), ctx: r.Context(), headerKeys: map[string]uintptr{},
	}
	for name, values := range r.Header {
		s.headerKeys[name] = pointer(values)
	}
	return s
}

func pointer(v any) uintptr {
	if rv := reflect.ValueOf(v); rv.IsValid() && !rv.IsNil() {
		return rv.Pointer()
	}
	return 0
}

// check reports what of the request has changed.
func (s snapshot) check(t *testing.T, r *http.Request) {
	t.Helper()
	// What cannot be compared by value is looked at below.
	identities := cmpopts.IgnoreFields(http.Request{}, "Body", "GetBody", "Cancel")
	if diff := cmp.Diff(s.data, r, identities, cmpopts.IgnoreUnexported(http.Request{}), cmp.AllowUnexported(url.Userinfo{})); diff != "" {
		t.Errorf("the request has changed (-was +is):\n%s", diff)
	}
	after := snapshotOf(r)
	if s.header != after.header || s.trailer != after.trailer || s.url != after.url || s.getBody != after.getBody || s.ctx != after.ctx {
		t.Error("the request has another map, URL, GetBody or context")
	}
	if s.body != after.body {
		t.Error("the request has another body")
	}
	if !cmp.Equal(s.headerKeys, after.headerKeys) {
		t.Errorf("the header's value slices were at %v and are at %v", s.headerKeys, after.headerKeys)
	}
}

// TestRequestUnchanged: whatever becomes of a call, its request is as it was.
func TestRequestUnchanged(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	for name := range bodyCases() {
		for _, replayable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/replayable=%v", name, replayable), func(t *testing.T) {
				t.Parallel()
				c := bodyCases()[name]
				request := c.request
				var req *http.Request
				var before snapshot
				c.request = func(r *http.Request) {
					if request != nil {
						request(r)
					}
					if r.URL != nil {
						r.URL.User, r.URL.RawQuery, r.URL.Fragment = url.UserPassword("u", "p"), "q=1", "f"
					}
					r.Header = http.Header{
						"X-Federation-Policy-Digest": {"mine"}, "X-Federation-Anchor-Version": {"mine", "too"}, "X-Federation-Negotiation-Epoch": {"0"},
						"Traceparent": {"00-x"}, "Baggage": {"a=b"}, "x-odd-Case": {"1"}, "Empty": {}, "Nil": nil,
					}
					r.Trailer = http.Header{"X-Sum": nil}
					r.Host, r.Close = "front.example", true
					req, before = r, snapshotOf(r)
				}
				playBodyCase(t, c, replayable)
				before.check(t, req)
			})
		}
	}
	// A request without a header map keeps none.
	tr := newTestTransport(t, fedhttp.Config{Base: answering(response(200)), Anchors: risingAnchors(), Peers: []fedhttp.Peer{testPeer("b", stubURL)}})
	req := newGet(t, stubURL)
	req.Header, req.Method = nil, ""
	before := snapshotOf(req)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	before.check(t, req)
}
