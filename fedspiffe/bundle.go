package fedspiffe

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/spiffebundle"

	"github.com/fedhttp/fedhttp"
)

const (
	maxAuthorities = 1000

	defaultRefresh = 5 * time.Minute
	minRefresh     = 5 * time.Second
	maxRefresh     = 24 * time.Hour
)

var errNoAuthority = errors.New("it has no X.509 authority, so nobody could be verified under it")

// adopt makes b the bundle of the trust domain, or says why not. d.fetching is
// held.
func (d *domain) adopt(b *spiffebundle.Bundle, now time.Time) (fedhttp.Anchor, error) {
	authorities := b.X509Authorities()
	sequence, numbered := b.SequenceNumber()
	valid := func(c *x509.Certificate) bool { return !now.Before(c.NotBefore) && now.Before(c.NotAfter) }
	switch {
	case len(authorities) == 0:
		return fedhttp.Anchor{}, errNoAuthority
	case len(authorities) > maxAuthorities:
		return fedhttp.Anchor{}, fmt.Errorf("it has %d X.509 authorities; at most %d are taken", len(authorities), maxAuthorities)
	case slices.ContainsFunc(authorities, func(c *x509.Certificate) bool { return !c.IsCA }):
		return fedhttp.Anchor{}, errors.New("it has an X.509 authority that is no CA certificate")
	case d.numbered && !numbered:
		return fedhttp.Anchor{}, fmt.Errorf("it has no spiffe_sequence, and one with %d was adopted before; where its publisher does not count any more, make a new Source", d.newest)
	case numbered && sequence < d.newest:
		return fedhttp.Anchor{}, fmt.Errorf("it has spiffe_sequence %d, and one with %d was adopted before; where the trust domain was set up anew, make a new Source", sequence, d.newest)
	case !slices.ContainsFunc(authorities, valid):
		return fedhttp.Anchor{}, fmt.Errorf("none of its %d X.509 authorities is valid at %s", len(authorities), now.UTC().Format(time.RFC3339))
	}
	d.newest, d.numbered = sequence, numbered
	d.current.Store(b)
	return anchorOf(b, authorities), nil
}

// anchorOf returns what fedhttp has to know of the bundle.
func anchorOf(b *spiffebundle.Bundle, authorities []*x509.Certificate) fedhttp.Anchor {
	a := fedhttp.Anchor{Version: version(b, authorities), RefreshHint: defaultRefresh, Roots: x509.NewCertPool()}
	for _, c := range authorities {
		a.Roots.AddCert(c)
		if c.NotAfter.After(a.ExpiresAt) {
			a.ExpiresAt = c.NotAfter
		}
	}
	if hint, ok := b.RefreshHint(); ok && hint > 0 {
		a.RefreshHint = min(max(hint, minRefresh), maxRefresh)
	}
	return a
}

// version is another one where the sequence is or the set of authorities, in
// whatever order they come.
func version(b *spiffebundle.Bundle, authorities []*x509.Certificate) string {
	sums := make([][sha256.Size]byte, len(authorities))
	for i, c := range authorities {
		sums[i] = sha256.Sum256(c.Raw)
	}
	slices.SortFunc(sums, func(a, b [sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) })
	set := sha256.New()
	for _, sum := range sums {
		set.Write(sum[:])
	}
	digest := set.Sum(nil)[:12]
	if sequence, ok := b.SequenceNumber(); ok {
		return fmt.Sprintf("spiffe:%d:%x", sequence, digest)
	}
	return fmt.Sprintf("spiffe:%x", digest)
}
