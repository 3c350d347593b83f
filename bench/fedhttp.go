package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/fedhttp/fedhttp"
)

const (
	peerID     = "org-b"
	capability = "summarize"
	digest     = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

var obligations = fedhttp.Terms{"residency": "eu"}

// quiet takes what is logged, and writes it to nowhere.
var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// anchors fetches an anchor that does not expire.
type anchors struct{}

// FetchAnchor implements fedhttp.AnchorSource.
func (anchors) FetchAnchor(context.Context, string) (fedhttp.Anchor, error) {
	return fedhttp.Anchor{Version: "7", IssuedAt: time.Now()}, nil
}

// overFedhttp is the whole of fedhttp with one peer. Anchored, requests go out
// under an anchor, so that a failure of the routing can be mended; a task goes out
// under an agreed policy.
func overFedhttp(anchored, task bool) func(http.RoundTripper, Telemetry, string) (http.RoundTripper, context.Context) {
	return func(base http.RoundTripper, t Telemetry, origin string) (http.RoundTripper, context.Context) {
		ctx := context.Background()
		cfg := fedhttp.Config{
			Base: base, TracerProvider: t.Tracer, MeterProvider: t.Meter, Logger: quiet,
			Peers: []fedhttp.Peer{{ID: peerID, Origins: []string{origin}}},
		}
		if anchored {
			cfg.Anchors = anchors{}
		}
		if task {
			cfg.Book = &fedhttp.PolicyBook{}
			agree(cfg.Book, fedhttp.PolicyKey{Peer: peerID, Capability: capability, Epoch: 4})
			ctx = fedhttp.ContextWithTask(ctx, fedhttp.Task{
				ID: "task-7", Capability: capability, Scope: "dataset-12", Obligations: obligations,
			})
		}
		return must(fedhttp.NewTransport(cfg)), ctx
	}
}

func agree(book *fedhttp.PolicyBook, key fedhttp.PolicyKey) {
	if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: digest}); err != nil {
		panic(err)
	}
	book.Accept(fedhttp.Policy{PolicyKey: key, Digest: digest})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func peerName(i int) string       { return fmt.Sprintf("registry-%06d", i) }
func peerOrigin(i int) string     { return "https://" + peerName(i) + ".example" }
func capabilityName(i int) string { return fmt.Sprintf("capability-%03d", i) }

// Peers returns n peers, and a URL of each. They hold nothing, so that a task without
// a policy is an error and not a wait.
func Peers(n int) (peers []fedhttp.Peer, urls []string) {
	for i := range n {
		peers = append(peers, fedhttp.Peer{
			ID: peerName(i), Origins: []string{peerOrigin(i)}, Hold: fedhttp.HoldPolicy{Max: -1},
		})
		urls = append(urls, peerOrigin(i)+path)
	}
	return peers, urls
}

// keysPerPeer is how many capabilities a peer has where there are many keys.
const keysPerPeer = 100

// FillBook agrees to n policies, keysPerPeer of each peer.
func FillBook(n int) *fedhttp.PolicyBook {
	book := &fedhttp.PolicyBook{}
	for i := range n {
		agree(book, fedhttp.PolicyKey{Peer: peerName(i / keysPerPeer), Capability: capabilityName(i % keysPerPeer), Epoch: 4})
	}
	return book
}

// Order is in which order n things are used: each once at random, or for hot the
// first again and again.
func Order(n int, hot bool) []int {
	if hot {
		return []int{0}
	}
	return rand.New(rand.NewPCG(1, 2)).Perm(n)
}
