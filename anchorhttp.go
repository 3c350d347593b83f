package fedhttp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"
)

// HTTPAnchors configures an HTTPAnchorSource. The zero value of every field but
// URLs is a documented default.
type HTTPAnchors struct {
	// URLs are where the anchors are, by peer ID. At least one. Each is https, or
	// plain http on loopback, without userinfo, which would be a secret in a log.
	// Plain http goes through no proxy, and to no other address than one of loopback,
	// whatever the name is resolved to. It may be at the peer's own origin.
	URLs map[string]string
	// Roots verify the certificates of the servers at URLs. Nil: the system's. What
	// is fetched never verifies where it is fetched from, so a server whose own
	// certificate is issued by the CA that it publishes needs that CA here, and can
	// no longer be reached once it has moved to the next one.
	Roots *x509.CertPool
	// MaxBytes bounds an answer, after decompression. Zero: 1 MiB.
	MaxBytes int64
	// Timeout bounds a fetch, redirects and body included. Zero: 4 s. The Transport
	// waits for 5 s for any source.
	Timeout time.Duration
}

const (
	defaultAnchorBytes   = 1 << 20
	defaultAnchorTimeout = 4 * time.Second
	maxAnchorHeader      = 64 << 10
	maxAnchorRedirects   = 3
)

// HTTPAnchorSource is an AnchorSource that fetches each peer's anchor from a URL:
// a JWK Set (RFC 7517), as a SPIFFE bundle endpoint and a jwks_uri have, or a
// bundle of CA certificates in PEM. What the media type says is what it must be:
//
//   - application/jwk-set+json, application/json: a JWK Set that is not empty.
//     The x5c of keys whose use is "x509-svid" is one CA certificate, and they
//     become Roots; that of any other key does not. A private key is refused.
//   - application/pem-certificate-chain, application/x-pem-file,
//     application/x-x509-ca-cert, text/plain: one or more PEM blocks, all of them
//     CA certificates. They become Roots.
//
// The anchor's Version is a hash of the set, whatever its order and white space.
// ExpiresAt is when the last of Roots is over; a set of which none is valid now is
// refused. IssuedAt is Last-Modified, unless that is in the future or the set
// has a spiffe_sequence, which says what is newer. Of sets without one the Transport
// refuses another that is older by Last-Modified: a file that is installed with an old
// time, as cp -p does, needs a touch. RefreshHint is spiffe_refresh_hint (whole seconds,
// 1 s to 24 h; anything else is ignored), else max-age of Cache-Control (10 s to 24 h),
// else an hour, and never more than half of the remaining life.
//
// The answer must have status 200, or 304 to our If-None-Match, and at most
// 1,000 keys or certificates. Redirects are followed within the same origin, three
// at most. A peer's set with a lower spiffe_sequence than one before it, or without
// one, is refused.
//
// It has HTTP clients of its own, which for https take a proxy from the environment,
// keep no cookies and make a new connection for each fetch, so nothing needs to
// be closed and nothing passes through a Transport. It is safe for concurrent use.
type HTTPAnchorSource struct {
	peers    map[string]*anchorEndpoint
	client   *http.Client // of https
	plain    *http.Client // of http
	maxBytes int64
	timeout  time.Duration
}

// anchorEndpoint is where a peer's anchor is, and what it was.
type anchorEndpoint struct {
	url *url.URL

	mu   sync.Mutex
	last *anchorAnswer // nil: none yet
}

// anchorAnswer is a good answer. It is never changed.
type anchorAnswer struct {
	anchorSet
	etag   string // empty: none
	issued time.Time
}

// NewHTTPAnchorSource returns a source, or an error that names every fault in cfg: a
// [*ConfigError] for each, of no Peer, whose Field is one of HTTPAnchors.
func NewHTTPAnchorSource(cfg HTTPAnchors) (*HTTPAnchorSource, error) {
	var found faults
	fault := func(field, format string, args ...any) {
		found.add(&ConfigError{Peer: -1, Field: field, Format: format, Args: args})
	}
	s := &HTTPAnchorSource{
		peers: make(map[string]*anchorEndpoint, len(cfg.URLs)), maxBytes: cfg.MaxBytes,
		timeout: orDefault(cfg.Timeout, defaultAnchorTimeout, "Timeout", fault),
	}
	switch {
	case cfg.MaxBytes < 0:
		fault("MaxBytes", "%d is negative; want a positive number of bytes, or none for the default, %d", cfg.MaxBytes, ConfigValue{Value: defaultAnchorBytes})
	case cfg.MaxBytes == 0:
		s.maxBytes = defaultAnchorBytes
	}
	if len(cfg.URLs) == 0 {
		fault("URLs", "want at least one, such as \"https://registry.b.example/anchor\"")
	}
	for _, peer := range slices.Sorted(maps.Keys(cfg.URLs)) {
		u, err := parseAnchorURL(cfg.URLs[peer])
		if err == nil && !isPeerID(peer) {
			err = fmt.Errorf("is for no peer ID: want 1 to %d bytes of printable ASCII", maxPeerID)
		}
		if err != nil {
			fault("URLs["+quote(peer)+"]", "%v", err)
			continue
		}
		s.peers[peer] = &anchorEndpoint{url: u}
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	verify := &tls.Config{}
	if cfg.Roots != nil {
		verify.RootCAs = cfg.Roots.Clone()
	}
	s.client = newAnchorClient(&http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: verify})
	s.plain = newAnchorClient(&http.Transport{DialContext: (&net.Dialer{Control: onlyLoopback}).DialContext})
	return s, nil
}

func newAnchorClient(t *http.Transport) *http.Client {
	t.DisableKeepAlives, t.MaxResponseHeaderBytes = true, maxAnchorHeader
	return &http.Client{CheckRedirect: checkAnchorRedirect, Transport: t}
}

// onlyLoopback is the Control of a dialer for plain http. What a name such as
// anchors.localhost stands for is up to the machine's resolver.
func onlyLoopback(_, address string, _ syscall.RawConn) error {
	if at, err := netip.ParseAddrPort(address); err != nil || !at.Addr().IsLoopback() {
		return fmt.Errorf("%s is beyond loopback, and the URL is plain http", quote(address))
	}
	return nil
}

func parseAnchorURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		return nil, errors.New("is no URL; want https://host/path") // it may hold a password
	}
	o, err := originOf(u)
	switch {
	case u.User != nil:
		return nil, errors.New("has userinfo, a secret that would be logged; want it without")
	case err != nil:
		return nil, fmt.Errorf("%w; want https://host/path", err)
	case o.scheme == "http" && !o.loopback():
		return nil, fmt.Errorf("%s is plain http beyond loopback; want https", o)
	}
	return u, nil
}

// checkAnchorRedirect follows within one origin: what another host says is not
// what the configured one does.
func checkAnchorRedirect(next *http.Request, via []*http.Request) error {
	if len(via) > maxAnchorRedirects {
		return fmt.Errorf("more than %d redirects", maxAnchorRedirects)
	}
	from, err := originOf(via[0].URL)
	if err != nil {
		return err
	}
	if to, err := originOf(next.URL); err != nil || to != from || next.URL.User != nil {
		return fmt.Errorf("redirected to %s, and only %s is trusted for this anchor", sanitize(redactedURL(next.URL)), from)
	}
	return nil
}

// FetchAnchor fetches the peer's anchor. An error names the peer and the URL,
// without its query.
func (s *HTTPAnchorSource) FetchAnchor(ctx context.Context, peer string) (Anchor, error) {
	e := s.peers[peer]
	if e == nil {
		return Anchor{}, fmt.Errorf("no anchor URL of peer %s", quote(peer))
	}
	a, err := s.fetch(ctx, e)
	if err != nil {
		return Anchor{}, &anchorError{peer, e.url, err}
	}
	return a, nil
}

// anchorError is why a peer's anchor could not be had, in bounded words.
type anchorError struct {
	peer string
	url  *url.URL
	err  error
}

func (e *anchorError) Error() string {
	return "anchor of peer " + quote(e.peer) + ": " + errorText(e.err) + " (" + sanitize(redactedURL(e.url)) + ")"
}

func (e *anchorError) Unwrap() error { return e.err }

func (s *HTTPAnchorSource) fetch(ctx context.Context, e *anchorEndpoint) (Anchor, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("no whole answer within %v", s.timeout))
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url.String(), nil)
	if err != nil {
		return Anchor{}, err
	}
	req.Header.Set("Accept", anchorTypes)
	e.mu.Lock()
	before := e.last
	e.mu.Unlock()
	conditional := before != nil && before.etag != ""
	if conditional {
		req.Header.Set("If-None-Match", before.etag)
	}
	client := s.client
	if e.url.Scheme == "http" {
		client = s.plain
	}
	resp, err := client.Do(req)
	if err != nil {
		return Anchor{}, fetchFailure(ctx, err)
	}
	defer resp.Body.Close()

	var got anchorAnswer
	switch {
	case resp.StatusCode == http.StatusOK:
		if got.anchorSet, err = s.read(resp); err != nil {
			return Anchor{}, fetchFailure(ctx, err)
		}
		got.etag = entityTag(resp.Header)
	case resp.StatusCode == http.StatusNotModified && conditional:
		got = *before
	default:
		return Anchor{}, fmt.Errorf("status %d", resp.StatusCode)
	}
	now := time.Now()
	modified, err := http.ParseTime(resp.Header.Get("Last-Modified"))
	if err == nil && got.sequence == nil && !modified.After(now.Add(maxFuture)) {
		got.issued = modified
	}
	return e.take(&got, hintOf(&got.anchorSet, resp.Header, now), now)
}

// fetchFailure is err without the URL that net/http puts before it, or why ctx has
// ended, if that is the reason.
func fetchFailure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	if of := (*url.Error)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}

func (s *HTTPAnchorSource) read(resp *http.Response) (anchorSet, error) {
	if types := resp.Header.Values("Content-Type"); len(types) > 1 {
		return anchorSet{}, fmt.Errorf("there are %d content types", len(types))
	}
	parse, err := anchorParser(resp.Header.Get("Content-Type"))
	if err != nil {
		return anchorSet{}, err
	}
	// net/http has undone what it asked for.
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" {
		return anchorSet{}, fmt.Errorf("content encoding %s was not asked for", quote(encoding))
	}
	data, err := io.ReadAll(http.MaxBytesReader(nil, resp.Body, s.maxBytes))
	if tooLong := (*http.MaxBytesError)(nil); errors.As(err, &tooLong) {
		return anchorSet{}, fmt.Errorf("the answer is longer than %d bytes", s.maxBytes)
	} else if err != nil {
		return anchorSet{}, err
	}
	return parse(data)
}

// take makes got the last good answer, or says why not.
func (e *anchorEndpoint) take(got *anchorAnswer, hint time.Duration, now time.Time) (Anchor, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if last := e.last; last != nil {
		switch {
		case last.sequence != nil && got.sequence == nil:
			return Anchor{}, fmt.Errorf("it has no %s, and one before it has %d", spiffeSequence, *last.sequence)
		case last.sequence != nil && *got.sequence < *last.sequence:
			return Anchor{}, fmt.Errorf("%s %d is older than one before it, %d", spiffeSequence, *got.sequence, *last.sequence)
		case got.sequence == nil && last.version == got.version && last.issued.After(got.issued):
			got.issued = last.issued // another replica, or one that no longer says
		}
	}
	if got.roots != nil && !now.Before(got.expires) {
		return Anchor{}, fmt.Errorf("every CA certificate in it has expired, the last at %s", got.expires.UTC().Format(time.RFC3339))
	}
	if got.roots != nil && !slices.ContainsFunc(got.members, func(c *x509.Certificate) bool { return validAt(c, now) }) {
		return Anchor{}, fmt.Errorf("no CA certificate in it is valid at %s", now.UTC().Format(time.RFC3339))
	}
	e.last = got
	return Anchor{
		Version: got.version, IssuedAt: got.issued, ExpiresAt: got.expires, RefreshHint: hint,
		Roots: got.roots, Certificates: got.members,
	}, nil
}

func validAt(c *x509.Certificate, now time.Time) bool {
	return !now.Before(c.NotBefore) && now.Before(c.NotAfter)
}
