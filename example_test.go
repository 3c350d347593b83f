package fedhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedstatus"
	"github.com/fedhttp/fedhttp/fedtest"
)

// The functions below hold the README's snippets to the letter, which
// TestReadmeSnippets checks, and the examples run them.

// fixedAnchor is the shortest AnchorSource: the same anchor for every peer.
type fixedAnchor fedhttp.Anchor

func (a fixedAnchor) FetchAnchor(context.Context, string) (fedhttp.Anchor, error) {
	return fedhttp.Anchor(a), nil
}

func putIntoClient(registryURL string, anchors fedhttp.AnchorSource, use func(*http.Client, *fedhttp.PolicyBook) error) error {
	book := &fedhttp.PolicyBook{} // one for all peers, empty at first
	transport, err := fedhttp.NewTransport(fedhttp.Config{
		Book:    book,    // what is advertised and agreed; your gossip and negotiator write to it
		Anchors: anchors, // fetches a peer's trust anchor; without it nothing is ever resent
		Peers: []fedhttp.Peer{{
			ID:      "org-b",
			Origins: []string{registryURL}, // "https://registry.b.example"
			Routes: []fedhttp.Route{{
				Pattern: "POST /v1/tasks",
				Task:    fedhttp.Task{Capability: "summarize", Obligations: fedhttp.Terms{"residency": "eu"}},
			}},
		}},
	})
	if err != nil {
		return err // names every fault in the configuration
	}
	client := &http.Client{Transport: transport}

	defer client.CloseIdleConnections()
	return use(client, book)
}

func withTask(ctx context.Context) context.Context {
	ctx = fedhttp.ContextWithTask(ctx, fedhttp.Task{
		ID: "task-7", Capability: "summarize", Scope: "dataset-12",
		Obligations:    fedhttp.Terms{"output-licensing": "redistribution-permitted"},
		PolicyDeadline: time.Now().Add(5 * time.Minute),
	})
	return ctx
}

func agree(book *fedhttp.PolicyBook, digest string) error {
	key := fedhttp.PolicyKey{Peer: "org-b", Capability: "summarize", Epoch: 4}
	if err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: digest}); err != nil {
		return err // an older epoch than the one known: fedhttp.ErrStaleEpoch
	}
	book.Accept(fedhttp.Policy{PolicyKey: key, Digest: digest}) // or CacheNegotiation, with an expiry
	return nil
}

func submit(client *http.Client, req *http.Request) error {
	resp, err := client.Do(req)
	switch {
	case errors.Is(err, fedhttp.ErrPolicyUnresolved):
		return err // pending, not sent: no failure of the peer or the network
	case errors.Is(err, fedhttp.ErrScopeDenied):
		return err // a denial covers it, not sent: ask for something else
	case errors.Is(err, fedhttp.ErrRouting):
		return err // never arrived, and could not be repaired: safe to submit again later
	case errors.Is(err, fedhttp.ErrBoundary):
		return err // may have been processed: an operator was told, do not send it again
	case err != nil:
		return err
	}
	defer resp.Body.Close()
	if decision, ok := fedhttp.DecisionFromResponse(resp); ok {
		return decision.Err() // nil where it was delivered; else one of the above, or ErrRejected
	}
	return nil
}

// A task is sent under an agreed policy, denied once, and not sent again.
func Example() {
	digest := "sha256:5f2c"
	peer := fedtest.NewPeer(fedtest.Config{
		Receipt: func(fedtest.Request) string { return digest },
		Policy: func(r fedtest.Request) fedtest.Verdict {
			return fedtest.Verdict{Deny: r.Header.Get("X-Scope") == "dataset-12", Reason: "SCOPE_NARROWED"}
		},
	})
	defer peer.Close()
	anchors := fixedAnchor{Version: peer.Anchor().Version}
	err := putIntoClient(peer.URL, anchors, func(client *http.Client, book *fedhttp.PolicyBook) error {
		if err := agree(book, digest); err != nil {
			return err
		}
		for _, scope := range []string{"dataset-3", "dataset-12", "dataset-12"} {
			req, err := http.NewRequestWithContext(withTask(context.Background()), http.MethodPost, peer.URL+"/v1/tasks", strings.NewReader("{}"))
			if err != nil {
				return err
			}
			req.Header.Set("X-Scope", scope)
			err = submit(client, req)
			fmt.Println(scope, errors.Is(err, fedhttp.ErrRejected), errors.Is(err, fedhttp.ErrScopeDenied))
		}
		return nil
	})
	fmt.Println(err, peer.Engine.Ledger().Evaluations, peer.Engine.Ledger().Denials)
	// Output:
	// dataset-3 false false
	// dataset-12 true false
	// dataset-12 false true
	// <nil> 2 1
}

// An agreed policy can expire, and a late advertisement of an older epoch never
// takes the place of a newer one.
func ExamplePolicyBook() {
	var book fedhttp.PolicyBook
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	key := fedhttp.PolicyKey{Peer: "org-b", Capability: "summarize", Epoch: 4}
	task := fedhttp.Task{Capability: "summarize", Obligations: fedhttp.Terms{"residency": "eu"}}

	fmt.Println(book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "sha256:5f2c"}))
	book.CacheNegotiation(fedhttp.Negotiation{PolicyKey: key, Digest: "sha256:5f2c", ExpiresAt: now.Add(time.Minute)})
	for _, at := range []time.Time{now, now.Add(time.Minute)} {
		auth, err := book.Authorize("org-b", task, nil, at)
		fmt.Println(auth.Basis, errors.Is(err, fedhttp.ErrPolicyUnresolved))
	}
	key.Epoch = 3
	err := book.Advertise(fedhttp.Advertisement{PolicyKey: key, Digest: "sha256:0001"})
	fmt.Println(errors.Is(err, fedhttp.ErrStaleEpoch))
	// Output:
	// <nil>
	// negotiated false
	//  true
	// true
}

// Anchors that peers publish.
func publishedAnchors() (fedhttp.AnchorSource, error) {
	anchors, err := fedhttp.NewHTTPAnchorSource(fedhttp.HTTPAnchors{
		URLs: map[string]string{"org-b": "https://pki.b.example/bundle.json"},
	})
	return anchors, err
}

func TestReadmeAnchors(t *testing.T) {
	t.Parallel()
	if anchors, err := publishedAnchors(); anchors == nil || err != nil {
		t.Errorf("%v, %v", anchors, err)
	}
}

// The operator's page.
func mountStatus(admin *http.ServeMux, transport *fedhttp.Transport, operatorsOnly func(http.Handler) http.Handler) {
	admin.Handle("GET /federation", operatorsOnly(fedstatus.Handler(transport)))
}

func TestReadmeStatus(t *testing.T) {
	t.Parallel()
	admin := http.NewServeMux()
	mountStatus(admin, newTestTransport(t, fedhttp.Config{Peers: []fedhttp.Peer{testPeer("b", "https://b.example")}}),
		func(h http.Handler) http.Handler { return h })
	answer := httptest.NewRecorder()
	admin.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/federation", nil))
	if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "https://b.example") {
		t.Errorf("%d: %s", answer.Code, answer.Body)
	}
}

// Every Go snippet of the README stands in this file, and so compiles and runs.
func TestReadmeSnippets(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	bare := func(s string) string { return regexp.MustCompile(`(?m)^\s+`).ReplaceAllString(s, "") }
	snippets := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(snippets) < 6 {
		t.Errorf("%d snippets in the README, want the 6 there are", len(snippets))
	}
	for _, snippet := range snippets {
		if !strings.Contains(bare(string(source)), bare(string(snippet[1]))) {
			t.Errorf("this snippet of the README is not in example_test.go:\n%s", snippet[1])
		}
	}
}
