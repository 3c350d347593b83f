package fedspiffe

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"
)

// go-spiffe's federation.FetchBundle decodes an answer of any status, type and
// size, follows redirects anywhere, and keeps the connection and its goroutines
// for good. There is no hook for any of that but the transport, so the request is
// made here. What is SPIFFE in it stays go-spiffe's: the verification of the
// endpoint (see tls.go) and the parser.

const (
	fetchTimeout = 5 * time.Second // from dialing to the last byte; what fedhttp grants a fetch, too
	maxBundle    = 1 << 20         // bytes
	maxHeader    = 64 << 10        // bytes
	maxRedirects = 3
)

// newClient makes the client of one bundle endpoint.
func newClient(template *http.Transport, config *tls.Config) *http.Client {
	t := template.Clone()
	t.TLSClientConfig = config
	// Each fetch is a handshake under what is known of the endpoint by then, and
	// leaves nothing behind.
	t.DisableKeepAlives = true
	t.DisableCompression = true // so that the limit is one of what is sent
	t.MaxResponseHeaderBytes = maxHeader
	return &http.Client{Transport: t, CheckRedirect: checkRedirect, Timeout: fetchTimeout}
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	from, to := via[0].URL, req.URL
	switch {
	case len(via) > maxRedirects:
		return fmt.Errorf("more than %d redirects", maxRedirects)
	case to.Scheme != "https":
		return fmt.Errorf("a redirect to another scheme, %.128q, is not followed; ask the peer's operators to stay with https", to.Scheme)
	case !strings.EqualFold(from.Hostname(), to.Hostname()):
		return elsewhere("host", to.Hostname())
	case portOf(from) != portOf(to):
		return elsewhere("port", portOf(to))
	case to.User != nil:
		return errors.New("a redirect to a URL with userinfo is not followed; ask the peer's operators to leave it out")
	}
	return nil
}

func elsewhere(what, there string) error {
	return fmt.Errorf("a redirect to another %s, %.128q, is not followed; if the endpoint has moved, ask the peer's operators and change Endpoint.URL", what, there)
}

func portOf(u *url.URL) string { return cmp.Or(u.Port(), "443") }

// fetch asks the endpoint for the bundle of the trust domain.
func (d *domain) fetch(ctx context.Context) (*spiffebundle.Bundle, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := d.client.Do(req)
	if err != nil {
		// The URL in it is the configured one, or one that the peer has made up.
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err
		}
		return nil, fmt.Errorf("the endpoint gave no answer: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the endpoint answered with status %d; want 200", resp.StatusCode)
	}
	if kind := resp.Header.Get("Content-Type"); !isJSON(kind) {
		return nil, fmt.Errorf("the endpoint answered with %.128q; want application/json", kind)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBundle+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the answer ended early: %w", err)
	case len(body) > maxBundle:
		return nil, fmt.Errorf("the answer has more than %d bytes", maxBundle)
	}
	b, err := spiffebundle.Parse(d.name, body)
	if err != nil {
		// The parser repeats what it does not know, however long that is.
		return nil, fmt.Errorf("the answer is no bundle: %.256q", err.Error())
	}
	return b, nil
}

// isJSON reports whether a bundle may have that Content-Type. The specification
// says SHOULD, so one that has none is let through to the parser.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))
}
