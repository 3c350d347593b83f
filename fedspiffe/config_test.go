package fedspiffe_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"github.com/fedhttp/fedhttp/fedspiffe"
)

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := fedspiffe.New(fedspiffe.Config{
		Base: &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return nil, nil }},
		Peers: map[string]fedspiffe.Peer{
			"org-b": {Endpoint: fedspiffe.Endpoint{URL: "http://b.example", Profile: "web"}},
			"org-c": {
				TrustDomain: spiffeid.RequireTrustDomainFromString("c.example"), Servers: []spiffeid.ID{registry},
				Endpoint: fedspiffe.Endpoint{URL: "https://c.example", Profile: fedspiffe.HTTPSSPIFFE},
			},
		},
	})
	want := `fedspiffe: 7 fault(s) in the configuration:
Base: has a DialTLS or DialTLSContext, which would take the place of the verification; set DialContext
Peers["org-b"]: TrustDomain: is missing; want the one of the peer's servers
Peers["org-b"]: Servers: is empty, so nobody would be accepted; list SPIFFE IDs, or set AnyServer
Peers["org-b"]: Endpoint.URL: has scheme "http" and host "b.example"; want an https URL
Peers["org-b"]: Endpoint.Profile: "web" is no profile; want https_web or https_spiffe, as the peer's operators say
Peers["org-c"]: Servers[0]: "spiffe://b.example/registry" is not of trust domain "c.example"; correct one of them
Peers["org-c"]: Endpoint.ID: "" is no SPIFFE ID of a workload; want that of the bundle endpoint`
	if err == nil || err.Error() != want {
		t.Errorf("New:\n%v\nwant\n%s", err, want)
	}
}

// TestNewFaults breaks one thing at a time in a Config that has none.
func TestNewFaults(t *testing.T) {
	t.Parallel()
	c := spiffeid.RequireTrustDomainFromString("c.example")
	f := spiffeid.RequireTrustDomainFromString("f.example")
	caB, caC := newCA(t, domainB), newCA(t, c)
	good := func() map[string]fedspiffe.Peer {
		return map[string]fedspiffe.Peer{
			"org-b": {TrustDomain: domainB, Servers: []spiffeid.ID{registry}, Endpoint: fedspiffe.Endpoint{
				URL: "https://b.example/bundle", Profile: fedspiffe.HTTPSSPIFFE, ID: bundler, Bootstrap: bundleOf(1, caB),
			}},
			"org-b2": {TrustDomain: domainB, AnyServer: true, Endpoint: fedspiffe.Endpoint{
				URL: "https://b.example/bundle", Profile: fedspiffe.HTTPSSPIFFE, ID: bundler, Bootstrap: bundleOf(1, caB),
			}},
			"org-c": {TrustDomain: c, AnyServer: true, Endpoint: fedspiffe.Endpoint{
				URL: "https://b.example/for-c", Profile: fedspiffe.HTTPSSPIFFE, ID: bundler, // which org-b is the source of
			}},
			"org-d": {TrustDomain: domainA, AnyServer: true, Endpoint: fedspiffe.Endpoint{
				URL: "https://d.example", Profile: fedspiffe.HTTPSWeb, Roots: x509.NewCertPool(),
			}},
			"org-f":  {TrustDomain: f, AnyServer: true, Endpoint: fedspiffe.Endpoint{URL: "https://f.example", Profile: fedspiffe.HTTPSWeb, Roots: x509.NewCertPool()}},
			"org-f2": {TrustDomain: f, AnyServer: true, Endpoint: fedspiffe.Endpoint{URL: "https://f.example", Profile: fedspiffe.HTTPSWeb, Roots: x509.NewCertPool()}},
		}
	}
	if _, err := fedspiffe.New(fedspiffe.Config{Peers: good(), Base: &http.Transport{}}); err != nil {
		t.Fatalf("New of a good Config: %v", err)
	}
	for name, tt := range map[string]struct {
		peer   string
		change func(*fedspiffe.Peer)
		want   string
	}{
		"domain missing": {"org-d", func(p *fedspiffe.Peer) { p.TrustDomain = spiffeid.TrustDomain{} }, `Peers["org-d"]: TrustDomain: is missing`},
		"both":           {"org-b", func(p *fedspiffe.Peer) { p.AnyServer = true }, `Peers["org-b"]: AnyServer: is set, and so is Servers`},
		"nobody":         {"org-b", func(p *fedspiffe.Peer) { p.Servers = nil }, `Peers["org-b"]: Servers: is empty`},
		"no workload":    {"org-b", func(p *fedspiffe.Peer) { p.Servers = []spiffeid.ID{domainB.ID()} }, `Servers[0]: "spiffe://b.example" is no SPIFFE ID of a workload`},
		"zero server":    {"org-b", func(p *fedspiffe.Peer) { p.Servers = []spiffeid.ID{registry, {}} }, `Servers[1]: "" is no SPIFFE ID of a workload`},
		"foreign server": {"org-b", func(p *fedspiffe.Peer) { p.Servers = []spiffeid.ID{client} }, `Servers[0]: "spiffe://a.example/caller" is not of trust domain "b.example"`},
		"URL missing":    {"org-d", func(p *fedspiffe.Peer) { p.Endpoint.URL = "" }, "Endpoint.URL: is missing"},
		"URL broken":     {"org-d", func(p *fedspiffe.Peer) { p.Endpoint.URL = "https://b\x7f" }, "Endpoint.URL: does not parse"},
		"URL plain":      {"org-d", func(p *fedspiffe.Peer) { p.Endpoint.URL = "http://127.0.0.1/?secret" }, `has scheme "http" and host "127.0.0.1"; want an https URL`},
		"URL no host":    {"org-d", func(p *fedspiffe.Peer) { p.Endpoint.URL = "https://:443/" }, "want an https URL"},
		"URL userinfo":   {"org-d", func(p *fedspiffe.Peer) { p.Endpoint.URL = "https://u:secret@d.example/" }, "Endpoint.URL: has userinfo"},
		"no profile":     {"org-d", func(p *fedspiffe.Peer) { p.Endpoint.Profile = "" }, `Endpoint.Profile: "" is no profile`},
		"web with ID":    {"org-d", func(p *fedspiffe.Peer) { p.Endpoint.ID = bundler }, "has an ID or a Bootstrap, which https_web does not use"},
		"web with bundle": {"org-d", func(p *fedspiffe.Peer) { p.Endpoint.Bootstrap = bundleOf(1, caB) },
			"has an ID or a Bootstrap, which https_web does not use"},
		"SPIFFE with roots": {"org-c", func(p *fedspiffe.Peer) { p.Endpoint.Roots = x509.NewCertPool() }, "Endpoint.Roots: are set"},
		"no endpoint ID":    {"org-c", func(p *fedspiffe.Peer) { p.Endpoint.ID = spiffeid.ID{} }, `Endpoint.ID: "" is no SPIFFE ID`},
		"no bundle":         {"org-c", func(p *fedspiffe.Peer) { p.Endpoint.ID = spiffeid.RequireFromString("spiffe://e.example/x") }, `Endpoint.Bootstrap: is missing; want the current bundle of trust domain "e.example"`},
		"serves itself":     {"org-c", func(p *fedspiffe.Peer) { p.Endpoint.ID = spiffeid.RequireFromString("spiffe://c.example/x") }, `Endpoint.Bootstrap: is missing; want the current bundle of trust domain "c.example"`},
		"other's bundle":    {"org-c", func(p *fedspiffe.Peer) { p.Endpoint.Bootstrap = bundleOf(1, caC) }, `Endpoint.Bootstrap: is the bundle of trust domain "c.example"; want that of "b.example"`},
		"empty bundle": {"org-c", func(p *fedspiffe.Peer) {
			p.Endpoint.ID = spiffeid.RequireFromString("spiffe://e.example/x")
			p.Endpoint.Bootstrap = spiffebundle.New(p.Endpoint.ID.TrustDomain())
		}, "Endpoint.Bootstrap: has no X.509 authority"},
		"two bundles":       {"org-c", func(p *fedspiffe.Peer) { p.Endpoint.Bootstrap = bundleOf(2, caB) }, `Peers["org-c"]: Endpoint.Bootstrap: differs from that of Peers["org-b"]`},
		"two endpoints":     {"org-b2", func(p *fedspiffe.Peer) { p.Endpoint.URL += "2" }, `Peers["org-b2"]: Endpoint: differs from that of Peers["org-b"]`},
		"one bootstrap":     {"org-b2", func(p *fedspiffe.Peer) { p.Endpoint.Bootstrap = nil }, `Peers["org-b2"]: Endpoint: differs from that of Peers["org-b"]`},
		"two sets of roots": {"org-f2", func(p *fedspiffe.Peer) { p.Endpoint.Roots.AddCert(caB.cert) }, `Peers["org-f2"]: Endpoint: differs from that of Peers["org-f"]`},
		"system's roots":    {"org-f2", func(p *fedspiffe.Peer) { p.Endpoint.Roots = nil }, `Peers["org-f2"]: Endpoint: differs from that of Peers["org-f"]`},
		"two endpoint IDs":  {"org-b2", func(p *fedspiffe.Peer) { p.Endpoint.ID = registry }, `Peers["org-b2"]: Endpoint: differs from that of Peers["org-b"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peers := good()
			p := peers[tt.peer]
			tt.change(&p)
			peers[tt.peer] = p
			_, err := fedspiffe.New(fedspiffe.Config{Peers: peers})
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "fedspiffe: 1 fault(s)") {
				t.Errorf("New: %v, want one fault with %q", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Error("the error has a secret of the URL")
			}
		})
	}
	for name, tt := range map[string]struct {
		config fedspiffe.Config
		want   string
	}{
		"no peers":     {fedspiffe.Config{}, "Peers: want at least one"},
		"empty key":    {fedspiffe.Config{Peers: map[string]fedspiffe.Peer{"": good()["org-b"]}}, `Peers[""]: the key: is empty`},
		"DialTLS":      {fedspiffe.Config{Peers: good(), Base: &http.Transport{DialTLS: func(string, string) (net.Conn, error) { return nil, nil }}}, "Base: has a DialTLS"}, //nolint:staticcheck // in use
		"round in two": {fedspiffe.Config{Peers: roundInTwo()}, `Peers["org-b"]: Endpoint.Bootstrap: is missing; want the current bundle of trust domain "c.example"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := fedspiffe.New(tt.config)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("New: %v, want %q", err, tt.want)
			}
		})
	}
}

// roundInTwo are peers of which each needs the bundle of the other first.
func roundInTwo() map[string]fedspiffe.Peer {
	peers := make(map[string]fedspiffe.Peer)
	for id, other := range map[string]string{"b": "c", "c": "b"} {
		peers["org-"+id] = fedspiffe.Peer{
			TrustDomain: spiffeid.RequireTrustDomainFromString(id + ".example"), AnyServer: true,
			Endpoint: fedspiffe.Endpoint{
				URL: "https://" + id + ".example", Profile: fedspiffe.HTTPSSPIFFE,
				ID: spiffeid.RequireFromString("spiffe://" + other + ".example/x"),
			},
		}
	}
	return peers
}

// TestConfigBase looks at what of Config.Base is used: all but its TLS, which
// would be in the way of ours.
func TestConfigBase(t *testing.T) {
	t.Parallel()
	template := &http.Transport{
		MaxConnsPerHost: 7, TLSClientConfig: &tls.Config{MaxVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool()}, //nolint:gosec // it must not be used
	}
	e := fedspiffe.Endpoint{URL: "https://b.example", Profile: fedspiffe.HTTPSWeb}
	s, err := fedspiffe.New(fedspiffe.Config{Base: template, Peers: map[string]fedspiffe.Peer{
		"org-b": {TrustDomain: domainB, AnyServer: true, Endpoint: e},
	}})
	if err != nil {
		t.Fatal(err)
	}
	base := baseOf(t, s, "org-b")
	if base.MaxConnsPerHost != 7 || base.TLSClientConfig.MaxVersion != 0 || base.TLSClientConfig.RootCAs != nil {
		t.Errorf("the base has %d connections, TLS up to %#x and roots %v; want 7, no bound and none",
			base.MaxConnsPerHost, base.TLSClientConfig.MaxVersion, base.TLSClientConfig.RootCAs)
	}
	if again := baseOf(t, s, "org-b"); again != base {
		t.Error("a second Base is another one, so SetPeers would give up its connections")
	}
	if base == template {
		t.Error("the base is the caller's own transport")
	}
}

func TestUnknownPeer(t *testing.T) {
	t.Parallel()
	e := fedspiffe.Endpoint{URL: "https://b.example", Profile: fedspiffe.HTTPSWeb}
	for name, s := range map[string]*fedspiffe.Source{"a Source": newSource(t, e, nil), "the zero Source": {}} {
		if base, err := s.Base("org-x"); base != nil || err == nil {
			t.Errorf("%s: Base: %v, %v, want an error, and no nil that means another base", name, base, err)
		}
		if _, err := s.FetchAnchor(t.Context(), "org-x"); err == nil {
			t.Errorf("%s: FetchAnchor: no error", name)
		}
		if _, err := s.GetBundleForTrustDomain(domainA); err == nil {
			t.Errorf("%s: GetBundleForTrustDomain: no error", name)
		}
		if _, err := s.GetX509BundleForTrustDomain(domainA); err == nil {
			t.Errorf("%s: GetX509BundleForTrustDomain: no error", name)
		}
	}
}
