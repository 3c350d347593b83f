package fedspiffe_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/fedhttp/fedhttp/fedspiffe"
)

// TestDefaultTransportDialsTLS: a program that gives http.DefaultTransport TLS of its own
// would have all connections made without any verification of ours. It changes what
// others read, so it is not parallel.
func TestDefaultTransportDialsTLS(t *testing.T) { //nolint:paralleltest // see above
	standard := http.DefaultTransport
	defer func() { http.DefaultTransport = standard }()
	cfg := fedspiffe.Config{Peers: map[string]fedspiffe.Peer{"org-b": {
		TrustDomain: spiffeid.RequireTrustDomainFromString("b.example"), AnyServer: true, Endpoint: fedspiffe.Endpoint{URL: "https://b.example/bundle", Profile: fedspiffe.HTTPSWeb},
	}}}
	if _, err := fedspiffe.New(cfg); err != nil {
		t.Fatal(err)
	}
	http.DefaultTransport = &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return nil, nil }}
	if _, err := fedspiffe.New(cfg); err == nil || !strings.Contains(err.Error(), "Base: is missing, and http.DefaultTransport has a DialTLS") {
		t.Errorf("New: %v", err)
	}
}
