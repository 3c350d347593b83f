package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// maxRequest bounds what the relay reads; the job sends far less at a time.
const maxRequest = 64 << 20

// relay is an OTLP/HTTP server between the job and Jaeger. It keeps the spans
// that go through it: what Jaeger answers later is compared with them.
type relay struct {
	*httptest.Server
	mu    sync.Mutex
	spans []span
	errs  []error
}

// newRelay passes requests for traces on to the OTLP/HTTP server at address.
func newRelay(t *testing.T, address string) *relay {
	r := &relay{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if err := r.pass(w, req, "http://"+address); err != nil {
			r.mu.Lock()
			r.errs = append(r.errs, err)
			r.mu.Unlock()
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// pass hands the request on as it is, and the answer back. An error means that
// nothing has been answered yet.
func (r *relay) pass(w http.ResponseWriter, req *http.Request, to string) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxRequest))
	if err != nil {
		return err
	}
	// An ExportTraceServiceRequest is, on the wire, a TracesData.
	sent, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(body)
	if err != nil {
		return err
	}
	out, err := http.NewRequestWithContext(req.Context(), req.Method, to+req.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return err
	}
	out.Header = req.Header.Clone()
	resp, err := http.DefaultClient.Do(out)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxRequest))
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK {
		r.mu.Lock()
		r.spans = append(r.spans, spansOf(sent)...)
		r.mu.Unlock()
	}
	w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(answer)
	return nil
}

// sent returns the spans that Jaeger has taken.
func (r *relay) sent(t *testing.T) []span {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.errs {
		t.Errorf("between the job and Jaeger: %v", err)
	}
	return r.spans
}

// span is a span, with whose it is.
type span struct {
	ptrace.Span
	resource pcommon.Map
	scope    string
}

func spansOf(td ptrace.Traces) (all []span) {
	for _, resource := range td.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, s := range scope.Spans().All() {
				all = append(all, span{s, resource.Resource().Attributes(), scope.Scope().Name()})
			}
		}
	}
	return all
}
