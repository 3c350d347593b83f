package fedhttp_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// What our own side did wrong pages nobody, and never stands against the peer.
func TestOwnDoing(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	errBody := errors.New("the inbound client has hung up")
	for name, test := range map[string]struct {
		change func(*http.Request)
		reason fedhttp.Reason
		sends  bool // bytes may leave before it is noticed
	}{
		"header value":    {func(r *http.Request) { r.Header.Set("X-Note", "a\nb") }, fedhttp.ReasonBadRequest, false},
		"header name":     {func(r *http.Request) { r.Header["a b"] = []string{"c"} }, fedhttp.ReasonBadRequest, false},
		"two lengths":     {func(r *http.Request) { r.Header["content-length"] = []string{"1"} }, fedhttp.ReasonBadRequest, false},
		"a second coding": {func(r *http.Request) { r.Header["transfer-encoding"] = []string{"chunked"} }, fedhttp.ReasonBadRequest, false},
		"two hosts":       {func(r *http.Request) { r.Header["host"] = []string{"c.example"} }, fedhttp.ReasonBadRequest, false},
		"trailer value":   {func(r *http.Request) { r.Trailer = http.Header{"X-Note": {"a\nb"}} }, fedhttp.ReasonBadRequest, false},
		"method":          {func(r *http.Request) { r.Method = "GE T" }, fedhttp.ReasonBadRequest, false},
		"trailer name":    {func(r *http.Request) { r.Trailer = http.Header{"content-length": nil} }, fedhttp.ReasonBadRequest, false},
		"query":           {func(r *http.Request) { r.URL.RawQuery = "q=a\nb" }, fedhttp.ReasonBadRequest, false},
		"tab in query":    {func(r *http.Request) { r.URL.RawQuery = "q=a\tb" }, fedhttp.ReasonBadRequest, false},
		"path":            {func(r *http.Request) { r.URL.Path = "a" }, fedhttp.ReasonBadRequest, false},
		"escaped path":    {func(r *http.Request) { r.URL.RawPath = "%2Fa" }, fedhttp.ReasonBadRequest, false},
		"escaped star":    {func(r *http.Request) { r.URL.Path, r.URL.RawPath = "*", "%2A" }, fedhttp.ReasonBadRequest, false},
		"* and a query":   {func(r *http.Request) { r.URL.Path, r.URL.RawQuery = "*", "q" }, fedhttp.ReasonBadRequest, false},
		"* and a mark":    {func(r *http.Request) { r.URL.Path, r.URL.ForceQuery = "*", true }, fedhttp.ReasonBadRequest, false},
		"no body":         {func(r *http.Request) { r.Body, r.ContentLength = nil, 5 }, fedhttp.ReasonBadRequest, false},
		"no length":       {func(r *http.Request) { r.ContentLength = -2 }, fedhttp.ReasonBadRequest, false},
		"coding":          {func(r *http.Request) { r.TransferEncoding = []string{"gzip"} }, fedhttp.ReasonBadRequest, false},
		"two codings":     {func(r *http.Request) { r.TransferEncoding = []string{"chunked", "gzip"} }, fedhttp.ReasonBadRequest, false},
		"endless":         {func(r *http.Request) { r.TransferEncoding = []string{"identity"} }, fedhttp.ReasonBadRequest, false},
		"body that ends":  {func(r *http.Request) { r.Body = io.NopCloser(iotest.ErrReader(errBody)) }, fedhttp.ReasonBodyFailed, true},
		"body of GetBody that ends": {func(r *http.Request) {
			r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(errBody)), nil }
			r.Body, _ = r.GetBody()
		}, fedhttp.ReasonBodyFailed, true},
	} {
		t.Run(name, func(t *testing.T) {
			peer := fedtest.NewPeer(fedtest.Config{ErrorLog: quietLog})
			defer peer.Close()
			var escalated atomic.Int64
			cfg := testPeer("b", peer.URL)
			cfg.Breaker = fedhttp.BreakerPolicy{Failures: 1}
			tr := newTestTransport(t, fedhttp.Config{
				Peers:     []fedhttp.Peer{cfg},
				Anchors:   risingAnchors(), // so that it could be sent again
				Escalator: escalatorFunc(func(context.Context, fedhttp.Escalation) { escalated.Add(1) }),
			})
			for range 3 {
				req, err := http.NewRequest(http.MethodPost, peer.URL+"/a", iotest.OneByteReader(strings.NewReader("a body")))
				if err != nil {
					t.Fatal(err)
				}
				test.change(req)
				_, err = tr.RoundTrip(req)
				var fault *fedhttp.Error
				if !errors.As(err, &fault) || fault.Decision.Outcome != fedhttp.OutcomeCanceled || fault.Decision.Reason != test.reason {
					t.Fatalf("RoundTrip: %v, want canceled (%v)", err, test.reason)
				}
				if d := fault.Decision; d.Attempts > 1 || d.Attempts == 1 != test.sends || d.Escalated {
					t.Errorf("%d attempts, escalated %v", d.Attempts, d.Escalated)
				}
				if fault.Decision.Refreshes > 1 || fault.Decision.Evidence != nil {
					t.Errorf("%+v", fault.Decision)
				}
				if test.reason == fedhttp.ReasonBodyFailed && !errors.Is(err, errBody) {
					t.Errorf("the error is not the body's: %v", err)
				}
			}
			if s := tr.Status()[0]; s.Breaker != "closed" || s.InFlight != 0 {
				t.Errorf("after that the peer is %+v", s)
			}
			if got := peer.Sends("/a"); !test.sends && got != 0 {
				t.Errorf("the peer has read %d requests", got)
			}
			if escalated.Load() != 0 {
				t.Errorf("%d escalations", escalated.Load())
			}
		})
	}
}
