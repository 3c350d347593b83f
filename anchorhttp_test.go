package fedhttp

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// HTTPAnchorSource against real servers: what is fetched, and what is kept of it.

// rooted returns the certificate of a server of net/http/httptest as roots.
func rooted(server *httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return pool
}

func newAnchors(t *testing.T, cfg HTTPAnchors) *HTTPAnchorSource {
	t.Helper()
	s, err := NewHTTPAnchorSource(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// anchorAt returns a source of the anchor of peer "b", which h answers over TLS.
func anchorAt(t *testing.T, h http.HandlerFunc, change ...func(*HTTPAnchors)) *HTTPAnchorSource {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	cfg := HTTPAnchors{URLs: map[string]string{"b": server.URL + "/anchor?token=SECRET"}, Roots: rooted(server)}
	for _, c := range change {
		c(&cfg)
	}
	return newAnchors(t, cfg)
}

// answerWith writes the body as the media type, after the fields, in pairs.
func answerWith(contentType string, body []byte, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		for i := 0; i < len(fields); i += 2 {
			w.Header().Add(fields[i], fields[i+1])
		}
		_, _ = w.Write(body)
	}
}

// scripted answers each request with the next of the handlers.
func scripted(t *testing.T, handlers ...http.HandlerFunc) http.HandlerFunc {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if len(handlers) == 0 {
			t.Error("one request too many")
			return
		}
		next := handlers[0]
		handlers = handlers[1:]
		next(w, r)
	}
}

const (
	jwksType = "application/jwk-set+json"
	pemType  = "application/pem-certificate-chain"
)

func fetch(t *testing.T, s AnchorSource) Anchor {
	t.Helper()
	a, err := s.FetchAnchor(t.Context(), "b")
	if err != nil {
		t.Fatalf("%v", err)
	}
	return a
}

func wantAnchor(t *testing.T, what string, got, want Anchor) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %+v, want %+v", what, got, want)
	}
}

func fetchFails(t *testing.T, s AnchorSource, want string) {
	t.Helper()
	_ = fetchError(t, s, want)
}

// fetchError checks for an error that says want, names the peer and the URL, is
// bounded and printable, and shows no secret.
func fetchError(t *testing.T, s AnchorSource, want string) error {
	t.Helper()
	a, err := s.FetchAnchor(t.Context(), "b")
	if err == nil {
		t.Fatalf("got %+v, want an error with %q", a, want)
	}
	text := err.Error()
	if !strings.Contains(text, want) || !strings.Contains(text, `"b"`) || !strings.Contains(text, "/anchor)") {
		t.Errorf("%v; want the peer, the URL and %q", err, want)
	}
	if strings.Contains(text, "SECRET") || !printable(text) || len(text) > 1024 {
		t.Errorf("the error shows a secret, or is not bounded and printable: %.2000q", text)
	}
	if !reflect.DeepEqual(a, Anchor{}) {
		t.Errorf("an error, and %+v", a)
	}
	return err
}

func TestHTTPAnchors(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	modified := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ca := newTestCA(t, "ca")
	set, bundle := jwks(t, []jwk{signingKey("1"), x509Key(ca)}, "spiffe_refresh_hint", 5), pemOf(ca)
	for _, c := range []struct {
		name, contentType string
		body              []byte
		hint              time.Duration
	}{
		{"a JWK Set", jwksType, set, 5 * time.Second},
		{"a JWK Set as JSON", "Application/JSON; charset=utf-8", set, 5 * time.Second},
		{"PEM", pemType, bundle, time.Minute},
		{"a PEM file", "application/x-pem-file", bundle, time.Minute},
		{"a CA certificate", "application/x-x509-ca-cert", bundle, time.Minute},
		{"PEM as text", "text/plain; charset=utf-8", bundle, time.Minute},
	} {
		s := anchorAt(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.RequestURI != "/anchor?token=SECRET" || !strings.Contains(r.Header.Get("Accept"), strings.ToLower(strings.TrimSuffix(c.contentType, "; charset=utf-8"))) {
				t.Errorf("%s: %s %s, Accept: %s", c.name, r.Method, r.RequestURI, r.Header.Get("Accept"))
			}
			if !r.Close {
				t.Errorf("%s: the connection is kept, and nobody would close it", c.name)
			}
			answerWith(c.contentType, c.body, "Last-Modified", modified.Format(http.TimeFormat), "Cache-Control", "max-age=60")(w, r)
		})
		a := fetch(t, s)
		if !a.Roots.Equal(poolOf(ca)) {
			t.Errorf("%s: the roots are not those of the answer", c.name)
		}
		vtWant(t, c.name+": issued", a.IssuedAt, modified)
		vtWant(t, c.name+": expires", a.ExpiresAt, ca.cert.NotAfter)
		vtWant(t, c.name+": hint", a.RefreshHint, c.hint)
		if len(a.Certificates) != 1 || !a.Certificates[0].Equal(ca.cert) {
			t.Errorf("%s: %d certificates", c.name, len(a.Certificates))
		}
		if len(a.Version) != len("sha256:")+32 || !isHeaderValue(a.Version) {
			t.Errorf("%s: version %q", c.name, a.Version)
		}
	}
	bare := fetch(t, anchorAt(t, answerWith(jwksType, jwks(t, []jwk{signingKey("1")}))))
	wantAnchor(t, "without roots", bare, Anchor{Version: bare.Version, RefreshHint: time.Hour})
}

// TestHTTPAnchorsOnLoopback: plain http is for this machine only, see
// TestHTTPAnchorsConfig.
func TestHTTPAnchorsOnLoopback(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	ca := newTestCA(t, "ca")
	server := httptest.NewServer(answerWith(pemType, pemOf(ca)))
	defer server.Close()
	a := fetch(t, newAnchors(t, HTTPAnchors{URLs: map[string]string{"b": server.URL}}))
	if !a.Roots.Equal(poolOf(ca)) {
		t.Error("the roots are not those of the answer")
	}
}

// TestHTTPAnchorsPerPeer: each peer has its URL and its state, and none has
// another's.
func TestHTTPAnchorsPerPeer(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tag := r.Header.Get("If-None-Match"); tag != "" {
			if tag != `"`+r.URL.Path+`"` {
				t.Errorf("%s is asked for with %s", r.URL.Path, tag)
			}
			w.WriteHeader(http.StatusNotModified)
			return
		}
		key, sequence := signingKey(r.URL.Path), 9
		if r.URL.Path == "/c" {
			sequence = 1
		}
		answerWith(jwksType, jwks(t, []jwk{key}, "spiffe_sequence", sequence), "ETag", `"`+r.URL.Path+`"`)(w, r)
	}))
	defer server.Close()
	urls := map[string]string{"b": server.URL + "/b", "c": server.URL + "/c"}
	s := newAnchors(t, HTTPAnchors{URLs: urls, Roots: rooted(server)})
	urls["b"], urls["d"] = urls["c"], urls["c"] // the source has its own
	versions := map[string]string{}
	for _, peer := range []string{"b", "c", "b", "c"} {
		a, err := s.FetchAnchor(t.Context(), peer)
		if err != nil {
			t.Fatal(err)
		}
		if versions[peer] != "" {
			vtWant(t, peer, a.Version, versions[peer])
		}
		versions[peer] = a.Version
	}
	if versions["b"] == versions["c"] {
		t.Errorf("both have version %s", versions["b"])
	}
	for _, source := range []AnchorSource{s, &HTTPAnchorSource{}, StaticAnchors{"b": {Version: "1"}}, StaticAnchors(nil)} {
		if a, err := source.FetchAnchor(t.Context(), "d\n"); err == nil || !strings.Contains(err.Error(), `"d\n"`) {
			t.Errorf("%T: %+v, %v; want an error that names the peer", source, a, err)
		}
	}
}

func TestStaticAnchors(t *testing.T) {
	t.Parallel()
	want := Anchor{Version: "1", IssuedAt: time.Unix(1, 0), Roots: x509.NewCertPool()}
	wantAnchor(t, "anchor", fetch(t, StaticAnchors{"b": want, "c": {Version: "2"}}), want)
	// A confirmed refresh lets a failure of the routing be sent again.
	var sent int
	tr := newTestTransport(t, Config{
		Anchors: StaticAnchors{"b": {Version: "1"}}, Peers: []Peer{testPeer("b", "https://b.example")},
		Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
			if sent++; sent == 1 {
				return &http.Response{StatusCode: 502, Header: http.Header{"X-Federation-Policy-Evaluated": {"false"}}, Body: http.NoBody, Request: r}, nil
			}
			return &http.Response{StatusCode: 200, Body: http.NoBody, Request: r}, nil
		}),
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://b.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	vtWant(t, "status", resp.StatusCode, 200)
	vtWant(t, "sends", sent, 2)
}

// TestHTTPAnchorNotModified: the set is fetched once, and confirmed as often as it
// is asked for.
func TestHTTPAnchorNotModified(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	ca, next := newTestCA(t, "ca"), newTestCA(t, "next")
	older, newer := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	asked := func(tag string, h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get("If-None-Match"); got != tag {
				t.Errorf("If-None-Match is %q, want %q", got, tag)
			}
			h(w, r)
		}
	}
	unchanged := func(fields ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(fields); i += 2 {
				w.Header().Set(fields[i], fields[i+1])
			}
			w.WriteHeader(http.StatusNotModified)
		}
	}
	s := anchorAt(t, scripted(t,
		asked("", unchanged()),
		asked("", answerWith(pemType, pemOf(ca), "ETag", `W/"1"`, "Last-Modified", older.Format(http.TimeFormat), "Cache-Control", "max-age=60")),
		asked(`W/"1"`, unchanged()),
		asked(`W/"1"`, unchanged("Last-Modified", newer.Format(http.TimeFormat), "Cache-Control", "max-age=120", "ETag", `"2"`)),
		asked(`W/"1"`, answerWith("text/html", []byte("<html>"), "ETag", `"captive"`)),
		asked(`W/"1"`, answerWith(pemType, pemOf(next), "ETag", `no tag`)),
		asked("", unchanged()),
	))
	fetchFails(t, s, "status 304")
	a := fetch(t, s)
	vtWant(t, "hint", a.RefreshHint, time.Minute)
	same := fetch(t, s)
	vtWant(t, "hint, which it does not say again", same.RefreshHint, time.Hour)
	same.RefreshHint = a.RefreshHint
	wantAnchor(t, "anchor", same, a)
	touched := fetch(t, s)
	vtWant(t, "issued", touched.IssuedAt, newer)
	vtWant(t, "hint", touched.RefreshHint, 2*time.Minute)
	vtWant(t, "version", touched.Version, a.Version)
	fetchFails(t, s, "text/html")
	if b := fetch(t, s); b.Version == a.Version || !b.Roots.Equal(poolOf(next)) || !b.IssuedAt.IsZero() {
		t.Errorf("%+v after the rotation", b)
	}
	fetchFails(t, s, "status 304")
}

// TestHTTPAnchorReplicas: servers of one set that were installed at different
// times do not look like a rollback, and a time in the future is none.
func TestHTTPAnchorReplicas(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	first, second := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 0, 5, 0, time.UTC)
	one, other := jwks(t, []jwk{signingKey("1")}), jwks(t, []jwk{signingKey("2")})
	steps := []struct {
		body     []byte
		modified string
		want     time.Time
	}{
		{one, first.Format(http.TimeFormat), first},
		{one, second.Format(http.TimeFormat), second},
		{one, first.Format(http.TimeFormat), second},
		{one, "", second},
		{one, "yesterday", second},
		{one, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), second},
		{other, first.Format(http.TimeFormat), first}, // which the Transport refuses
		{other, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), first},
	}
	var handlers []http.HandlerFunc
	for _, step := range steps {
		handlers = append(handlers, answerWith(jwksType, step.body, "Last-Modified", step.modified))
	}
	s := anchorAt(t, scripted(t, handlers...))
	for i, step := range steps {
		vtWant(t, fmt.Sprint("issued, step ", i), fetch(t, s).IssuedAt, step.want)
	}
}

// TestHTTPAnchorConcurrently: fetches of one peer may overlap, and an answer that
// was overtaken is a rollback.
func TestHTTPAnchorConcurrently(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	arrived, release := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	requests := 0
	s := anchorAt(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		requests++
		n := requests
		mu.Unlock()
		switch {
		case n == 1:
			close(arrived)
			<-release
		case r.Header.Get("If-None-Match") == `"2"`:
			w.WriteHeader(http.StatusNotModified)
			return
		default:
			n = 2
		}
		answerWith(jwksType, jwks(t, []jwk{signingKey("1")}, "spiffe_sequence", n), "ETag", fmt.Sprintf("%q", fmt.Sprint(n)))(w, r)
	}, func(cfg *HTTPAnchors) { cfg.Timeout = time.Hour }) // the first waits for all the others
	overtaken := make(chan error)
	go func() {
		_, err := s.FetchAnchor(context.WithoutCancel(t.Context()), "b")
		overtaken <- err
	}()
	select {
	case <-arrived:
	case err := <-overtaken:
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for range 16 {
		group.Go(func() {
			if a, err := s.FetchAnchor(t.Context(), "b"); err != nil || a.Version == "" {
				t.Errorf("%+v, %v", a, err)
			}
		})
	}
	group.Wait()
	close(release)
	if err := <-overtaken; err == nil || !strings.Contains(err.Error(), "spiffe_sequence 1 is older than one before it, 2") {
		t.Errorf("%v, want a rollback", err)
	}
}
