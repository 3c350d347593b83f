package fedhttp_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/baggage"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fedhttp/fedhttp"
)

// TestResponseRequestSentAgain: a caller that sends Response.Request once more makes
// a call like any other: its task is known, and what the first said of the policy,
// the anchor and the trace is said anew.
func TestResponseRequestSentAgain(t *testing.T) {
	t.Parallel()
	var got []http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header)
	}))
	t.Cleanup(server.Close)
	book, key := &fedhttp.PolicyBook{}, fedhttp.PolicyKey{Peer: "b", Capability: "summarize", Epoch: 1}
	agree := func(digest string) {
		if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: digest}); err != nil {
			t.Fatal(err)
		}
		book.Accept(fedhttp.Policy{PolicyKey: key, Digest: digest, Terms: fedhttp.Terms{"residency": "eu"}})
	}
	agree("sha256:1")
	tr := newTestTransport(t, fedhttp.Config{
		Book: book, Peers: []fedhttp.Peer{testPeer("b", server.URL)}, TracerProvider: sdktrace.NewTracerProvider(),
	})
	member, err := baggage.NewMember("secret", "1")
	if err != nil {
		t.Fatal(err)
	}
	bag, err := baggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	ctx := fedhttp.ContextWithTask(baggage.ContextWithBaggage(t.Context(), bag), fedhttp.Task{
		ID: "task-7", Capability: "summarize", Obligations: fedhttp.Terms{"residency": "eu"},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, again := range []func(*http.Request) *http.Request{
		func(r *http.Request) *http.Request { return r },
		func(r *http.Request) *http.Request { return r },
		func(r *http.Request) *http.Request { return r.Clone(r.Context()) },
		func(r *http.Request) *http.Request { return r.WithContext(ctx) },
	} {
		resp, err := tr.RoundTrip(again(req))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		resp.Body.Close()
		d, _ := fedhttp.DecisionFromResponse(resp)
		if d.TaskID != "task-7" || d.PolicyDigest != got[i].Get("X-Federation-Policy-Digest") || resp.Request.Header.Get("Baggage") != "" {
			t.Errorf("request %d: %+v, sent %v", i, d, got[i])
		}
		if bag := baggage.FromContext(resp.Request.Context()); bag.Len() != 1 {
			t.Errorf("request %d: the caller's baggage is %v", i, bag)
		}
		req = resp.Request
		key.Epoch++
		agree("sha256:" + string(rune('2'+i)))
	}
	traces := map[string]bool{}
	for i, h := range got {
		traces[h.Get("Traceparent")] = true
		if len(h["X-Federation-Policy-Digest"]) != 1 || h.Get("X-Federation-Policy-Digest") != "sha256:"+string(rune('1'+i)) || len(h["X-Federation-Negotiation-Epoch"]) != 1 || h.Get("Baggage") != "" {
			t.Errorf("request %d said %v", i, h)
		}
	}
	if len(traces) != 4 {
		t.Errorf("the trace contexts were %v", traces)
	}
}
