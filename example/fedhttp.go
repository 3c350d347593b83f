package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedtest"
)

// fedhttpClient makes A's client with fedhttp: an http.Client whose Transport
// is a fedhttp.Transport. B and C are its peers, and it reaches nobody else.
func fedhttpClient(traces *traces, metrics *metrics) makeClient {
	return func(ctx context.Context, o *organisations, fail func(error)) (*client, error) {
		base, book := newBase(), &fedhttp.PolicyBook{}
		coord := &coordinator{ctx: ctx, url: o.c.URL, book: book, fail: fail}
		esc := &escalator{ctx: ctx, url: o.c.URL, fail: fail}
		anchors, err := newAnchors(o, base)
		if err != nil {
			return nil, err
		}
		transport, err := fedhttp.NewTransport(fedhttp.Config{
			Base: base,
			Book: book,
			Peers: []fedhttp.Peer{
				{
					ID:      orgB,
					Origins: slices.Compact([]string{o.registry(), o.gateway()}),
					// What B grants a task that names no agreed policy. A task that
					// demands more is not sent without an agreement.
					DefaultTerms: defaultTerms,
					// An answer without a receipt might be anybody's.
					Receipt: fedhttp.RequireReceipt,
					// B puts us in quarantine after quarantineAt denials. Stop before that.
					Denial: fedhttp.DenialPolicy{Budget: quarantineAt * 2 / 3},
					// The defaults, scaled down like everything else.
					Retry: fedhttp.RetryPolicy{
						MinBackoff:         scaled(100 * time.Millisecond),
						MaxBackoff:         scaled(5 * time.Second),
						MinRefreshInterval: scaled(time.Second),
					},
				},
				{ID: orgC, Origins: []string{o.c.URL}},
			},
			Anchors:        anchors,
			Coordinator:    coord,
			Escalator:      esc,
			TracerProvider: traces.provider,
			MeterProvider:  metrics.meterProvider(),
			// The job expects what it would log. A service leaves this out, or has a
			// logger of its own here.
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return nil, err
		}
		httpClient := &http.Client{Transport: transport}
		coord.client, esc.client = httpClient, httpClient
		return &client{
			Client: httpClient,
			book:   book,
			close: func() {
				metrics.scrape()
				_ = transport.Close() // nil, always
				coord.running.Wait()
			},
		}, nil
	}
}

// newAnchors makes the source of the peers' anchors. It must not go through the
// Transport that it serves.
func newAnchors(o *organisations, base http.RoundTripper) (fedhttp.AnchorSource, error) {
	wellKnown := anchorSource{
		client: &http.Client{Transport: base},
		urls:   map[string]string{orgB: o.b.AnchorURL(), orgC: o.c.AnchorURL()},
	}
	if o.edge == nil {
		return wellKnown, nil
	}
	// B's anchor is a bundle of CA certificates.
	bundle, err := fedhttp.NewHTTPAnchorSource(fedhttp.HTTPAnchors{URLs: map[string]string{orgB: o.edge.bundle.URL}})
	return anchorsByPeer{orgB: bundle, orgC: wellKnown}, err
}

// anchorsByPeer asks each peer's own source.
type anchorsByPeer map[string]fedhttp.AnchorSource

func (s anchorsByPeer) FetchAnchor(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	return s[peer].FetchAnchor(ctx, peer)
}

// anchorSource reads a peer's anchor from its well-known endpoint.
type anchorSource struct {
	client *http.Client
	urls   map[string]string // by peer
}

func (s anchorSource) FetchAnchor(ctx context.Context, peer string) (fedhttp.Anchor, error) {
	var a fedtest.Anchor
	if err := getJSON(ctx, s.client, s.urls[peer], &a); err != nil {
		return fedhttp.Anchor{}, err
	}
	return fedhttp.Anchor{Version: a.Version, IssuedAt: a.IssuedAt, ExpiresAt: a.ExpiresAt}, nil
}

// coordinator is told of policies that tasks wait for, and has them negotiated
// by C. fedhttp tells it once for each, however many tasks wait.
type coordinator struct {
	ctx     context.Context // of the run: negotiations end with it
	client  *http.Client
	url     string
	book    *fedhttp.PolicyBook
	fail    func(error)
	running sync.WaitGroup
}

// PolicyUnresolved returns at once: it is called for one policy after the
// other, and a negotiation takes minutes.
func (c *coordinator) PolicyUnresolved(ctx context.Context, u fedhttp.Unresolved) {
	// ctx ends when this returns, and it carries the task that met the policy
	// first, whose obligations are no business of a request to C. Only its trace
	// is taken over, so that it shows what the task waited for.
	ctx = trace.ContextWithSpanContext(c.ctx, trace.SpanContextFromContext(ctx))
	c.running.Go(func() {
		if err := c.negotiate(ctx, u); err != nil && c.ctx.Err() == nil {
			// A real coordinator would try again and tell somebody; the tasks stay
			// held until their deadlines. Here, the run has failed.
			c.fail(fmt.Errorf("negotiating %s with %s: %w", u.Capability, u.Peer, err))
		}
	})
}

// negotiate puts what both sides agreed to into the book, which wakes the tasks.
func (c *coordinator) negotiate(ctx context.Context, u fedhttp.Unresolved) error {
	agreed, err := propose(ctx, c.client, c.url, u)
	if err != nil {
		return err
	}
	key := fedhttp.PolicyKey{Peer: u.Peer, Capability: u.Capability, Epoch: u.Epoch}
	if agreed.ExpiresAt.IsZero() {
		c.book.Accept(fedhttp.Policy{PolicyKey: key, Digest: agreed.Digest, Terms: agreed.Terms})
	} else {
		c.book.CacheNegotiation(fedhttp.Negotiation{PolicyKey: key, Digest: agreed.Digest, ExpiresAt: agreed.ExpiresAt, Terms: agreed.Terms})
	}
	return nil
}

// propose has C negotiate a policy, and returns what both sides agreed to.
func propose(ctx context.Context, client *http.Client, url string, u fedhttp.Unresolved) (agreed agreement, err error) {
	offer := negotiation{Client: orgA, Capability: u.Capability, Epoch: u.Epoch, Digest: u.Digest, Obligations: u.Obligations}
	if err := postJSON(ctx, client, url+negotiationsPath, orgA, offer, &agreed); err != nil {
		return agreed, err
	}
	if agreed.Digest != u.Digest || agreed.Epoch != u.Epoch {
		return agreed, fmt.Errorf("agreed to %s in epoch %d, while %s in epoch %d was offered", agreed.Digest, agreed.Epoch, u.Digest, u.Epoch)
	}
	return agreed, nil
}

// escalator hands to C's operators what nobody else can mend.
type escalator struct {
	ctx    context.Context // of the run
	client *http.Client
	url    string
	fail   func(error)
}

// Escalate may take its time: no call waits for it.
func (e *escalator) Escalate(_ context.Context, esc fedhttp.Escalation) {
	if err := postJSON(e.ctx, e.client, e.url+escalationsPath, orgA, esc, nil); err != nil && e.ctx.Err() == nil {
		e.fail(fmt.Errorf("escalating %s: %w", esc.Decision.CorrelationID, err))
	}
}
