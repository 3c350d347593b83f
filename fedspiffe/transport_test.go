package fedspiffe_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedspiffe"
	"github.com/fedhttp/fedhttp/fedtest"
)

// boundary is an organisation B with a registry that wants client certificates
// of A, a bundle endpoint, and a Transport of A's that calls it.
type boundary struct {
	a, b      *ca
	ours      *workload
	theirs    *workload
	publisher *publisher
	source    *fedspiffe.Source
	server    *server
	transport *fedhttp.Transport

	mu        sync.Mutex
	delivered map[string]int    // requests that the registry has read, by task
	shown     map[string]string // the serial of our certificate, by task
}

func newBoundary(t *testing.T, http2 bool) *boundary {
	t.Helper()
	f := &boundary{a: newCA(t, domainA), b: newCA(t, domainB), delivered: make(map[string]int), shown: make(map[string]string)}
	f.ours, f.theirs = newWorkload(f.a.issue(t, client)), newWorkload(f.b.issue(t, registry))
	f.publisher = newPublisher(t, bundleOf(1, f.b))
	e, _ := webEndpoint(t, f.publisher)
	f.source = newSource(t, e, f.ours)
	f.server = serve(t, tlsconfig.MTLSServerConfig(f.theirs, x509bundle.FromX509Authorities(domainA, []*x509.Certificate{f.a.cert}),
		tlsconfig.AuthorizeID(client)), http2, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("the registry reads a body: %v", err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.delivered[string(body)]++
		f.shown[string(body)] = r.TLS.PeerCertificates[0].SerialNumber.String()
	}))
	base, err := f.source.Base("org-b")
	if err != nil {
		t.Fatal(err)
	}
	base.MaxConnsPerHost = 8 // a thousand handshakes at once are not what this is about
	f.transport, err = fedhttp.NewTransport(fedhttp.Config{
		Anchors: f.source, Logger: slog.New(slog.DiscardHandler),
		Peers: []fedhttp.Peer{{ID: "org-b", Origins: []string{f.server.URL}, Base: base, Retry: fedhttp.RetryPolicy{
			MinBackoff: time.Microsecond, MinRefreshInterval: time.Microsecond,
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.transport.Close() })
	return f
}

// rotate gives B another authority, as it does when the one before was taken out
// of use without notice: its servers have certificates of the new one, and the
// bundle has nothing else.
func (f *boundary) rotate(t *testing.T) {
	t.Helper()
	f.b = newCA(t, domainB)
	f.publisher.bundle.Store(bundleOf(2, f.b))
	f.theirs.svid.Store(f.b.issue(t, registry))
}

// send sends one task, and returns what was decided. The connection of the last
// one is not kept.
func (f *boundary) send(t *testing.T, task string, last bool) (fedhttp.Decision, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.server.URL+"/v1/tasks", strings.NewReader(task))
	if err != nil {
		t.Error(err)
		return fedhttp.Decision{}, err
	}
	req.Close = last
	resp, err := f.transport.RoundTrip(req)
	if err != nil {
		var e *fedhttp.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: an error that is no *fedhttp.Error: %v", task, err)
			return fedhttp.Decision{}, err
		}
		return e.Decision, err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	d, _ := fedhttp.DecisionFromResponse(resp)
	if http2 := f.server.http.Protocols.HTTP2(); (resp.ProtoMajor == 2) != http2 {
		t.Errorf("%s: HTTP/%d, want HTTP/2: %v", task, resp.ProtoMajor, http2)
	}
	return d, nil
}

// checkDelivered fails the test unless the registry has read each of the tasks
// once, and nothing else.
func (f *boundary) checkDelivered(t *testing.T, tasks ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, task := range tasks {
		if n := f.delivered[task]; n != 1 {
			t.Errorf("%s was delivered %d times, want once", task, n)
		}
	}
	if len(f.delivered) != len(tasks) {
		t.Errorf("%d tasks were delivered, want %d", len(f.delivered), len(tasks))
	}
}

func overHTTP(t *testing.T, run func(t *testing.T, http2 bool)) {
	for name, http2 := range map[string]bool{"HTTP1": false, "HTTP2": true} {
		t.Run(name, func(t *testing.T) {
			fedtest.CheckLeaks(t)
			t.Parallel()
			run(t, http2)
		})
	}
}

// TestRotation is the incident: B's authority rotates, the call that meets it
// fails in its handshake, which proves that nothing was delivered, fetches the
// bundle, and is sent again.
func TestRotation(t *testing.T) {
	t.Parallel()
	overHTTP(t, func(t *testing.T, http2 bool) {
		f := newBoundary(t, http2)
		before, err := f.send(t, "before", true)
		if err != nil || before.Outcome != fedhttp.OutcomeDelivered || before.Attempts != 1 {
			t.Fatalf("before the rotation: %+v, %v", before, err)
		}
		f.rotate(t)
		d, err := f.send(t, "after", false)
		if err != nil || d.Outcome != fedhttp.OutcomeDelivered || d.Attempts != 2 || d.Refreshes != 1 {
			t.Errorf("after the rotation: %+v, %v; want it delivered by the second attempt", d, err)
		}
		if !strings.HasPrefix(d.AnchorVersion, "spiffe:2:") {
			t.Errorf("it went under anchor %q, want that of the second bundle", d.AnchorVersion)
		}
		next, err := f.send(t, "next", false)
		if err != nil || next.Attempts != 1 {
			t.Errorf("the next call: %+v, %v; want one attempt", next, err)
		}
		f.checkDelivered(t, "before", "after", "next")
		if n := f.publisher.fetches.Load(); n != 2 {
			t.Errorf("the bundle was fetched %d times, want twice", n)
		}
	})
}

// TestRotationUnderLoad has 1,000 callers meet the rotation at once: one fetch
// serves them all.
func TestRotationUnderLoad(t *testing.T) {
	t.Parallel()
	overHTTP(t, func(t *testing.T, http2 bool) {
		f := newBoundary(t, http2)
		if _, err := f.send(t, "before", true); err != nil {
			t.Fatal(err)
		}
		f.rotate(t)
		tasks := []string{"before"}
		var wg sync.WaitGroup
		for i := range 1000 {
			task := fmt.Sprint("task-", i)
			tasks = append(tasks, task)
			wg.Go(func() {
				if d, err := f.send(t, task, false); err != nil || d.Outcome != fedhttp.OutcomeDelivered {
					t.Errorf("%s: %s %s: %v", task, d.Outcome, d.Reason, err)
				}
			})
		}
		wg.Wait()
		f.checkDelivered(t, tasks...)
		if n := f.publisher.fetches.Load(); n != 2 {
			t.Errorf("the bundle was fetched %d times, want twice", n)
		}
	})
}
