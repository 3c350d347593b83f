package spiretest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedspiffe"
)

const peerID = "org-b"

// client sends tasks to one registry of trust domain b.
type client struct {
	transport *fedhttp.Transport
	bundles   *fedspiffe.Source
	fetches   atomic.Int32 // of the bundle
	registry  *registry
}

// newClient makes one that begins with the bundle that its agent has of b.
func newClient(t *testing.T, workload *workloadapi.X509Source, b *domain, r *registry, attempts int) *client {
	t.Helper()
	first, err := workload.GetX509BundleForTrustDomain(b.trustDomain())
	if err != nil {
		t.Fatal(err)
	}
	source, err := fedspiffe.New(fedspiffe.Config{
		Identity: workload,
		Peers: map[string]fedspiffe.Peer{peerID: {
			TrustDomain: b.trustDomain(),
			Servers:     []spiffeid.ID{b.workloadID()},
			Endpoint: fedspiffe.Endpoint{
				URL: b.bundleURL(), Profile: fedspiffe.HTTPSSPIFFE,
				ID: spiffeid.RequireFromString(b.serverID()), Bootstrap: spiffebundle.FromX509Bundle(first),
			},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	base, err := source.Base(peerID)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{bundles: source, registry: r}
	c.transport, err = fedhttp.NewTransport(fedhttp.Config{
		Anchors: c,
		Logger:  slog.New(slog.DiscardHandler), // the test shows what matters
		Peers: []fedhttp.Peer{{
			ID: peerID, Origins: []string{r.url}, Base: base, RequireAnchor: true,
			Retry: fedhttp.RetryPolicy{MaxAttempts: attempts},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.transport.Close() })
	return c
}

// FetchAnchor is that of fedspiffe, counted.
func (c *client) FetchAnchor(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	c.fetches.Add(1)
	return c.bundles.FetchAnchor(ctx, peer)
}

// anchor is the version of the anchor at hand.
func (c *client) anchor() string { return c.transport.Status()[0].AnchorVersion }

// awaitTaken returns once the Transport of a client that is maintained has taken
// what its source has at the call: once the next fetch begins, as there is one at
// a time.
func (c *client) awaitTaken(ctx context.Context, t *testing.T) {
	t.Helper()
	before := c.fetches.Load()
	eventually(ctx, t, "another fetch", func() error {
		if c.fetches.Load() == before {
			return errors.New("none has begun")
		}
		return nil
	})
}

// send sends a task and returns what became of it.
func (c *client) send(ctx context.Context, task string) (fedhttp.Decision, error) {
	ctx = fedhttp.ContextWithTask(ctx, fedhttp.Task{ID: task})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.registry.url+"/tasks/"+task, strings.NewReader(task))
	if err != nil {
		return fedhttp.Decision{}, err
	}
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		var fault *fedhttp.Error
		errors.As(err, &fault)
		if fault == nil {
			return fedhttp.Decision{}, err
		}
		return fault.Decision, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return fedhttp.Decision{}, err
	}
	d, _ := fedhttp.DecisionFromResponse(resp)
	if resp.StatusCode != http.StatusOK {
		return d, errors.New(resp.Status)
	}
	return d, nil
}

// deliver sends tasks at the same time, and checks that each is delivered, and
// once. It returns how many were sent more than once.
func (c *client) deliver(ctx context.Context, t *testing.T, name string, n int) (resent int) {
	t.Helper()
	decisions, errs := make([]fedhttp.Decision, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { decisions[i], errs[i] = c.send(ctx, taskName(name, i)) })
	}
	wg.Wait()
	for i, d := range decisions {
		if errs[i] != nil {
			t.Errorf("task %s: %v", taskName(name, i), errs[i])
		}
		if times := c.registry.count(taskName(name, i)); times != 1 {
			t.Errorf("task %s was delivered %d times; want once", taskName(name, i), times)
		}
		if d.Attempts > 1 {
			resent++
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return resent
}

func taskName(name string, i int) string { return fmt.Sprintf("%s-%d", name, i) }

// refuse sends a task and checks that it goes nowhere. It returns why.
func (c *client) refuse(ctx context.Context, t *testing.T, task string) (fedhttp.Decision, error) {
	t.Helper()
	d, err := c.send(ctx, task)
	if err == nil {
		t.Fatalf("task %s: delivered; want an error", task)
	}
	if d.Delivery != fedhttp.DeliveryNotDelivered {
		t.Fatalf("task %s: delivery %v; want %v (%v)", task, d.Delivery, fedhttp.DeliveryNotDelivered, err)
	}
	if times := c.registry.count(task); times != 0 {
		t.Fatalf("task %s was delivered %d times; want never", task, times)
	}
	return d, err
}

// authorities are the IDs of the authorities in a bundle.
func authorities(bundles x509bundle.Source, of spiffeid.TrustDomain) ([]string, error) {
	b, err := bundles.GetX509BundleForTrustDomain(of)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, c := range b.X509Authorities() {
		ids = append(ids, fmt.Sprintf("%x", c.SubjectKeyId))
	}
	return ids, nil
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
