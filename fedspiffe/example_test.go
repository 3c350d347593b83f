package fedspiffe_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedspiffe"
)

// newTransport makes a Transport for registries of B. What B's operators have given
// us: the name of their trust domain, its bundle as it was then, and where and by
// whom it is published.
func newTransport(identity x509svid.Source, bundleFile string) (*fedhttp.Transport, error) {
	domain := spiffeid.RequireTrustDomainFromString("b.example")
	bundle, err := spiffebundle.Load(domain, bundleFile)
	if err != nil {
		return nil, err
	}
	source, err := fedspiffe.New(fedspiffe.Config{
		Identity: identity,
		Peers: map[string]fedspiffe.Peer{"org-b": {
			TrustDomain: domain,
			Servers:     []spiffeid.ID{spiffeid.RequireFromPath(domain, "/registry")},
			Endpoint: fedspiffe.Endpoint{
				URL: "https://spire.b.example:8443", Profile: fedspiffe.HTTPSSPIFFE,
				ID: spiffeid.RequireFromPath(domain, "/spire/server"), Bootstrap: bundle,
			},
		}},
	})
	if err != nil {
		return nil, err
	}
	peer := fedhttp.Peer{ID: "org-b", Origins: []string{"https://registry.b.example"}, RequireAnchor: true}
	if peer.Base, err = source.Base(peer.ID); err != nil {
		return nil, err
	}
	return fedhttp.NewTransport(fedhttp.Config{Peers: []fedhttp.Peer{peer}, Anchors: source})
}

// Our own SVID comes from the Workload API, which SPIRE's agent serves for one.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	identity, err := workloadapi.NewX509Source(ctx) // where SPIFFE_ENDPOINT_SOCKET says
	if err != nil {
		fmt.Println(err)
		return
	}
	defer identity.Close()
	transport, err := newTransport(identity, "b.example.json")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer transport.Close()
	go func() { _ = transport.MaintainAnchors(ctx) }()

	client := &http.Client{Transport: transport}
	resp, err := client.Get("https://registry.b.example/v1/tasks/7")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	decision, _ := fedhttp.DecisionFromResponse(resp)
	fmt.Println(resp.Status, decision.Outcome, decision.AnchorVersion)
}

// A Config with faults says what each of them is and what is wanted.
func ExampleNew() {
	domain := spiffeid.RequireTrustDomainFromString("b.example")
	_, err := fedspiffe.New(fedspiffe.Config{Peers: map[string]fedspiffe.Peer{"org-b": {
		TrustDomain: domain,
		Endpoint:    fedspiffe.Endpoint{URL: "https://bundle.b.example/"},
	}}})
	fmt.Println(err)
	// Output:
	// fedspiffe: 2 fault(s) in the configuration:
	// Peers["org-b"]: Servers: is empty, so nobody would be accepted; list SPIFFE IDs, or set AnyServer
	// Peers["org-b"]: Endpoint.Profile: "" is no profile; want https_web or https_spiffe, as the peer's operators say
}
