package fedspiffe_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"

	"github.com/fedhttp/fedhttp/fedspiffe"
	"github.com/fedhttp/fedhttp/fedtest"
)

// marshal returns the bundle as an endpoint sends it.
func marshal(t testing.TB, b *spiffebundle.Bundle) string {
	t.Helper()
	body, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// TestFetchRefuses has an endpoint send one good bundle, then something that must
// not be taken for one, then a newer good one. What is held between is the first.
func TestFetchRefuses(t *testing.T) {
	t.Parallel()
	old, evil, next := newCA(t, domainB), newCA(t, domainB), newCA(t, domainB)
	body := marshal(t, bundleOf(2, evil)) // that would be adopted if only the answer were right
	answer := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = []string{contentType}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	const isJSON = "application/json"
	many := spiffebundle.New(domainB)
	for key := newKey(t); len(many.X509Authorities()) <= 1000; {
		many.AddX509Authority(sign(t, &x509.Certificate{NotAfter: time.Now().Add(time.Hour)}, &ca{key: key}, &key.PublicKey))
	}
	keysOf := func(b *spiffebundle.Bundle) string {
		return strings.TrimSuffix(strings.TrimPrefix(marshal(t, b), `{"keys":[`), `]}`)
	}
	onlyJWT := spiffebundle.New(domainB)
	if err := onlyJWT.AddJWTAuthority("kid", &evil.key.PublicKey); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"status 404":           {answer(404, isJSON, body), "status 404; want 200"},
		"status 500":           {answer(500, isJSON, body), "status 500; want 200"},
		"status 203":           {answer(203, isJSON, body), "status 203; want 200"},
		"not JSON by its type": {answer(200, "text/html; charset=utf-8", body), `answered with "text/html; charset=utf-8"; want application/json`},
		"no media type":        {answer(200, "???", body), `answered with "???"; want application/json`},
		"no JSON":              {answer(200, isJSON, "<html>"), "the answer is no bundle"},
		"half of it":           {answer(200, isJSON, body[:len(body)/2]), "the answer is no bundle"},
		"no keys":              {answer(200, isJSON, `{"spiffe_sequence":2}`), "no authorities found"},
		"empty keys":           {answer(200, isJSON, `{"keys":[],"spiffe_sequence":2}`), "it has no X.509 authority"},
		"only JWT keys":        {answer(200, isJSON, marshal(t, onlyJWT)), "it has no X.509 authority"},
		"1,001 authorities":    {answer(200, isJSON, marshal(t, many)), "it has 1001 X.509 authorities; at most 1000 are taken"},
		"a leaf": {answer(200, isJSON, marshal(t, spiffebundle.FromX509Authorities(domainB, []*x509.Certificate{evil.cert, evil.issue(t, registry).Certificates[0]}))),
			"it has an X.509 authority that is no CA certificate"},
		"a number too small":  {answer(200, isJSON, marshal(t, bundleOf(0, evil))), "it has spiffe_sequence 0, and one with 1 was adopted before"},
		"a number below zero": {answer(200, isJSON, `{"keys":[`+keysOf(onlyJWT)+`],"spiffe_sequence":-1}`), "the answer is no bundle"},
		"all expired": {answer(200, isJSON, marshal(t, bundleOf(2, newCAFrom(t, domainB, -2*time.Hour, -time.Hour)))),
			"none of its 1 X.509 authorities is valid at "},
		"none valid yet": {answer(200, isJSON, marshal(t, bundleOf(2, newCAFrom(t, domainB, time.Hour, 2*time.Hour)))),
			"none of its 1 X.509 authorities is valid at "},
		"too large": {answer(200, isJSON, body+strings.Repeat(" ", 1<<20)), "the answer has more than 1048576 bytes"},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", isJSON)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, strings.Repeat(" ", 1<<10)); err != nil {
					return
				}
			}
		}, "the answer has more than 1048576 bytes"},
		"cut short": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", isJSON)
			w.Header().Set("Content-Length", fmt.Sprint(len(body)+1))
			_, _ = io.WriteString(w, body)
		}, "the answer ended early"},
		"a huge header": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", isJSON)
			w.Header().Set("X-Large", strings.Repeat("x", 80<<10))
			_, _ = io.WriteString(w, body)
		}, "the endpoint gave no answer"},
		"a parser's words": {answer(200, isJSON, `{"keys":[{"kty":"`+strings.Repeat(`\u202e`, 1000)+`"}]}`), `the answer is no bundle: "`},
	} {
		t.Run(name, func(t *testing.T) {
			fedtest.CheckLeaks(t)
			t.Parallel()
			good := newPublisher(t, bundleOf(1, old))
			var bad atomic.Bool
			e, _ := webEndpoint(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if bad.Load() {
					tt.handler(w, r)
				} else {
					good.ServeHTTP(w, r)
				}
			}))
			s := newSource(t, e, nil)
			fetch(t, s, "org-b")

			bad.Store(true)
			a, err := s.FetchAnchor(t.Context(), "org-b")
			if err == nil || !strings.HasPrefix(err.Error(), `fedspiffe: the bundle of trust domain "b.example": `) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("FetchAnchor: %v, want %q", err, tt.want)
			}
			if err != nil && (len(err.Error()) > 2048 || strings.ContainsRune(err.Error(), '\u202e')) {
				t.Errorf("the error repeats what the peer says: %.100q... (%d bytes)", err, len(err.Error()))
			}
			if a.Version != "" {
				t.Errorf("FetchAnchor returned an anchor beside the error: %+v", a)
			}
			if held := authorities(t, s); !held.HasX509Authority(old.cert) || len(held.X509Authorities()) != 1 {
				t.Error("the last good bundle is not held any more")
			}

			bad.Store(false)
			good.bundle.Store(bundleOf(2, next))
			fetch(t, s, "org-b")
			if held := authorities(t, s); !held.HasX509Authority(next.cert) {
				t.Error("the next good bundle was not adopted")
			}
		})
	}
}

// TestFetchTypes has what may be sent in the place of "application/json".
func TestFetchTypes(t *testing.T) {
	t.Parallel()
	body := marshal(t, bundleOf(1, newCA(t, domainB)))
	for _, contentType := range []string{"application/json", "Application/JSON; charset=utf-8", "application/jwk-set+json", ""} {
		e, _ := webEndpoint(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if accept := r.Header.Get("Accept"); accept != "application/json" {
				t.Errorf("Accept is %q", accept)
			}
			if encoding := r.Header.Get("Accept-Encoding"); encoding != "" {
				t.Errorf("Accept-Encoding is %q: the limit of size would not be one of what is sent", encoding)
			}
			w.Header()["Content-Type"] = []string{contentType}
			if contentType == "" {
				w.Header()["Content-Type"] = nil
			}
			_, _ = io.WriteString(w, body)
		}))
		if _, err := newSource(t, e, nil).FetchAnchor(t.Context(), "org-b"); err != nil {
			t.Errorf("a bundle of the type %q: %v", contentType, err)
		}
	}
}

// TestFetchEnds has endpoints that never finish: one says nothing, one begins to
// answer. Both the caller's context and the fetch's own limit end it.
func TestFetchEnds(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]bool{"silent": false, "stalled": true} {
		t.Run(name, func(t *testing.T) {
			fedtest.CheckLeaks(t)
			t.Parallel()
			asked := make(chan struct{}, 2)
			e, _ := webEndpoint(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if begin {
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, `{"keys":[`)
					w.(http.Flusher).Flush()
				}
				asked <- struct{}{}
				<-r.Context().Done()
				panic(http.ErrAbortHandler) // or the answer would end as one that is complete, and perhaps in time
			}))
			s := newSource(t, e, nil)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-asked
				cancel()
			}()
			if _, err := s.FetchAnchor(ctx, "org-b"); !errors.Is(err, context.Canceled) {
				t.Errorf("FetchAnchor after its context has ended: %v", err)
			}
			if limit := fedspiffe.SetFetchTimeout(s, "org-b", 100*time.Millisecond); limit != 5*time.Second {
				t.Errorf("a fetch may take %v, want 5s", limit)
			}
			var timeout interface{ Timeout() bool }
			if _, err := s.FetchAnchor(t.Context(), "org-b"); !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("FetchAnchor after its own limit: %v, want a timeout", err)
			}
		})
	}
}

// TestFetchWaitsItsTurn has two fetches at once: the second waits for the first,
// with its own context, and asks nothing meanwhile.
func TestFetchWaitsItsTurn(t *testing.T) {
	fedtest.CheckLeaks(t)
	t.Parallel()
	p := newPublisher(t, bundleOf(1, newCA(t, domainB)))
	asked, release := make(chan struct{}, 2), make(chan struct{})
	e, _ := webEndpoint(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-release
		p.ServeHTTP(w, r)
	}))
	s := newSource(t, e, nil)
	first := make(chan error, 1)
	go func() {
		_, err := s.FetchAnchor(t.Context(), "org-b")
		first <- err
	}()
	select {
	case <-asked:
	case err := <-first:
		t.Fatalf("the first fetch: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.FetchAnchor(ctx, "org-b"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a fetch that waits and whose context ends: %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Errorf("the fetch that it waited for: %v", err)
	}
	if len(asked) != 0 {
		t.Error("the second asked while the first had no answer")
	}
}

func TestFetchRedirects(t *testing.T) {
	t.Parallel()
	evil := newPublisher(t, bundleOf(1, newCA(t, domainB)))
	other := httptest.NewTLSServer(evil) // its certificate is the same, and so is accepted
	defer other.Close()
	plain := httptest.NewServer(evil)
	defer plain.Close()
	for name, tt := range map[string]struct {
		to   func(own string) string
		want string // empty: it is followed
	}{
		"within the host":   {func(own string) string { return own + "/moved" }, ""},
		"another port":      {func(string) string { return other.URL }, "a redirect to another port, \""},
		"plain http":        {func(string) string { return plain.URL }, `a redirect to another scheme, "http"`},
		"plain, same host":  {func(own string) string { return "http" + strings.TrimPrefix(own, "https") + "/moved" }, `a redirect to another scheme, "http"`},
		"userinfo":          {func(own string) string { return "https://u:p@" + strings.TrimPrefix(own, "https://") + "/moved" }, "a redirect to a URL with userinfo"},
		"round and round":   {func(own string) string { return own + "/bundle" }, "more than 3 redirects"},
		"a name for itself": {func(own string) string { return strings.Replace(own, "127.0.0.1", "localhost", 1) + "/moved" }, `a redirect to another host, "localhost"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(t, bundleOf(1, newCA(t, domainB)))
			mux := http.NewServeMux()
			mux.Handle("/moved", p)
			var requests atomic.Int64
			var own string
			mux.HandleFunc("/bundle", func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				http.Redirect(w, r, tt.to(own), http.StatusFound)
			})
			e, server := webEndpoint(t, mux)
			own = server.URL
			_, err := newSource(t, e, nil).FetchAnchor(t.Context(), "org-b")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("FetchAnchor: %v, want %q", err, tt.want)
			}
			if tt.want != "" && p.fetches.Load() != 0 {
				t.Error("the redirect was followed")
			}
			if n := requests.Load(); n > 4 {
				t.Errorf("%d requests, want at most 4", n)
			}
		})
	}
	if n := evil.fetches.Load(); n != 0 {
		t.Errorf("the other hosts were asked %d times", n)
	}
}

// TestFetchVerifiesTheEndpoint has endpoints that are not who they should be.
func TestFetchVerifiesTheEndpoint(t *testing.T) {
	t.Parallel()
	b, stranger, a := newCA(t, domainB), newCA(t, domainB), newCA(t, domainA)
	p := newPublisher(t, bundleOf(1, b))
	spiffe := func(w *workload) fedspiffe.Endpoint {
		s := serve(t, tlsconfig.TLSServerConfig(w), true, p)
		return fedspiffe.Endpoint{URL: s.URL, Profile: fedspiffe.HTTPSSPIFFE, ID: bundler, Bootstrap: bundleOf(1, b)}
	}
	web, _ := webEndpoint(t, p)
	web.Roots = x509.NewCertPool()

	for name, tt := range map[string]struct {
		endpoint fedspiffe.Endpoint
		want     string
	}{
		"by host name": {web, "x509: certificate signed by unknown authority"},
		"authority":    {spiffe(newWorkload(stranger.issue(t, bundler))), "x509: certificate signed by unknown authority"},
		"ID":           {spiffe(newWorkload(b.issue(t, registry))), `not the one of Endpoint.ID: the server has SPIFFE ID "spiffe://b.example/registry"`},
		"trust domain": {spiffe(newWorkload(a.issue(t, client))), `the server is of trust domain "a.example", and not of "b.example"`},
		"no SVID":      {spiffe(newWorkload(b.issue(t, spiffeid.ID{}))), "certificate contains no URI SAN"},
	} {
		_, err := newSource(t, tt.endpoint, nil).FetchAnchor(t.Context(), "org-b")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: FetchAnchor: %v, want %q", name, err, tt.want)
		}
	}
	if n := p.fetches.Load(); n != 0 {
		t.Errorf("%d requests were sent to endpoints that are not who they should be", n)
	}
	if _, err := newSource(t, spiffe(newWorkload(b.issue(t, bundler))), nil).FetchAnchor(t.Context(), "org-b"); err != nil {
		t.Errorf("the right endpoint: %v", err)
	}
}

// TestFetchShowsNoIdentity: a bundle endpoint that asks for a client certificate
// gets none.
func TestFetchShowsNoIdentity(t *testing.T) {
	t.Parallel()
	b := newCA(t, domainB)
	p := newPublisher(t, bundleOf(1, b))
	config := tlsconfig.TLSServerConfig(newWorkload(b.issue(t, bundler)))
	config.ClientAuth = tls.RequestClientCert
	s := serve(t, config, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := len(r.TLS.PeerCertificates); n != 0 {
			t.Errorf("the endpoint was shown %d certificates", n)
		}
		p.ServeHTTP(w, r)
	}))
	fetch(t, newSource(t, fedspiffe.Endpoint{
		URL: s.URL, Profile: fedspiffe.HTTPSSPIFFE, ID: bundler, Bootstrap: bundleOf(1, b),
	}, newWorkload(newCA(t, domainA).issue(t, client))), "org-b")
}

// TestEndpointRotates follows an https_spiffe endpoint over two rotations, each
// announced in the bundle before: what was fetched last verifies it, and what it
// was begun with does not any more.
func TestEndpointRotates(t *testing.T) {
	fedtest.CheckLeaks(t)
	t.Parallel()
	first, second, third := newCA(t, domainB), newCA(t, domainB), newCA(t, domainB)
	p := newPublisher(t, bundleOf(1, first, second))
	w := newWorkload(first.issue(t, bundler))
	server := serve(t, tlsconfig.TLSServerConfig(w), false, p)
	e := fedspiffe.Endpoint{URL: server.URL, Profile: fedspiffe.HTTPSSPIFFE, ID: bundler, Bootstrap: bundleOf(1, first)}
	s := newSource(t, e, nil)
	fetch(t, s, "org-b")

	w.svid.Store(second.issue(t, bundler))
	p.bundle.Store(bundleOf(2, second, third))
	fetch(t, s, "org-b")
	w.svid.Store(third.issue(t, bundler))
	p.bundle.Store(bundleOf(3, third))
	fetch(t, s, "org-b")
	w.svid.Store(first.issue(t, bundler))
	if _, err := s.FetchAnchor(t.Context(), "org-b"); !isUnknownAuthority(err) {
		t.Errorf("an endpoint under the authority of the Bootstrap, which has left the bundle: %v", err)
	}

	// A process that starts anew with what was held goes on from there, and one
	// that starts with what it was given at first does not.
	w.svid.Store(third.issue(t, bundler))
	if _, err := newSource(t, e, nil).FetchAnchor(t.Context(), "org-b"); !isUnknownAuthority(err) {
		t.Errorf("a fetch with a Bootstrap that is out of date: %v", err)
	}
	kept, err := s.GetBundleForTrustDomain(domainB)
	if err != nil {
		t.Fatal(err)
	}
	e.Bootstrap = kept
	again := newSource(t, e, nil)
	kept.RemoveX509Authority(third.cert) // a copy: it does not reach a Source
	if !authorities(t, again).HasX509Authority(third.cert) || !authorities(t, s).HasX509Authority(third.cert) {
		t.Error("a bundle that was handed in or out is the Source's own")
	}
	p.bundle.Store(bundleOf(2, third))
	if _, err := again.FetchAnchor(t.Context(), "org-b"); err == nil || !strings.Contains(err.Error(), "spiffe_sequence 2, and one with 3") {
		t.Errorf("a bundle that is older than the Bootstrap: %v", err)
	}
	unnumbered := bundleOf(0, third)
	unnumbered.ClearSequenceNumber()
	p.bundle.Store(unnumbered)
	if _, err := again.FetchAnchor(t.Context(), "org-b"); err == nil || !strings.Contains(err.Error(), "it has no spiffe_sequence, and one with 3") {
		t.Errorf("a bundle without the number that the Bootstrap has: %v", err)
	}
	p.bundle.Store(bundleOf(3, third))
	fetch(t, again, "org-b")
}

// TestEndpointOfAnotherDomain: the bundle of C comes from an endpoint in B, which
// is verified under the bundle of B as it is then.
func TestEndpointOfAnotherDomain(t *testing.T) {
	t.Parallel()
	domainC := spiffeid.RequireTrustDomainFromString("c.example")
	b, c := newCA(t, domainB), newCA(t, domainC)
	forB, _ := webEndpoint(t, newPublisher(t, bundleOf(1, b)))
	server := serve(t, tlsconfig.TLSServerConfig(newWorkload(b.issue(t, bundler))), false, newPublisher(t, bundleOf(1, c)))
	forC := fedspiffe.Endpoint{URL: server.URL, Profile: fedspiffe.HTTPSSPIFFE, ID: bundler}
	config := fedspiffe.Config{Peers: map[string]fedspiffe.Peer{
		"org-b": {TrustDomain: domainB, AnyServer: true, Endpoint: forB},
		"org-c": {TrustDomain: domainC, AnyServer: true, Endpoint: forC},
	}}
	s, err := fedspiffe.New(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.FetchAnchor(t.Context(), "org-c"); err == nil || !strings.Contains(err.Error(), `no bundle of trust domain "b.example" has been fetched yet`) {
		t.Errorf("the bundle of C before that of B: %v", err)
	}
	fetch(t, s, "org-b")
	fetch(t, s, "org-c")
	if got, err := s.GetX509BundleForTrustDomain(domainC); err != nil || !got.HasX509Authority(c.cert) || got.HasX509Authority(b.cert) {
		t.Errorf("the bundle of C: %v, %v", got, err)
	}
	// B as no peer of ours, only as who serves the bundle of C.
	forC.Bootstrap = bundleOf(1, b)
	s, err = fedspiffe.New(fedspiffe.Config{Peers: map[string]fedspiffe.Peer{"org-c": {TrustDomain: domainC, AnyServer: true, Endpoint: forC}}})
	if err != nil {
		t.Fatal(err)
	}
	fetch(t, s, "org-c")
	if got, err := s.GetX509BundleForTrustDomain(domainC); err != nil || !got.Equal(x509bundle.FromX509Authorities(domainC, []*x509.Certificate{c.cert})) {
		t.Errorf("the bundle of C: %v, %v", got, err)
	}
}

func isUnknownAuthority(err error) bool {
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &unknown)
}
