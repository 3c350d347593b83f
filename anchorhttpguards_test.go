package fedhttp

import (
	"crypto/x509"
	"net/http"
	"testing"
	"time"
)

// TestHTTPAnchorValidNow: roots of which none is valid yet do not replace good ones;
// among others they are taken ahead of their time.
func TestHTTPAnchorValidNow(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	ca, later := newTestCA(t, "ca"), newTestCA(t, "later", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(24 * time.Hour) })
	over := newTestCA(t, "over", expiring(time.Unix(1e9, 0)))
	unchanged := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }
	s := anchorAt(t, scripted(t,
		answerWith(pemType, pemOf(ca), "ETag", `"1"`),
		answerWith(pemType, pemOf(later), "ETag", `"2"`),
		answerWith(jwksType, jwks(t, []jwk{x509Key(later), x509Key(over)})),
		unchanged,
		answerWith(pemType, pemOf(ca, later)),
	))
	first := fetch(t, s)
	fetchFails(t, s, "no CA certificate in it is valid at ")
	fetchFails(t, s, "no CA certificate in it is valid at ")
	wantAnchor(t, "after them", fetch(t, s), first)
	if a := fetch(t, s); !a.Roots.Equal(poolOf(ca, later)) {
		t.Error("the roots are not the two of the answer")
	}
}

// TestHTTPAnchorSequenceAndTime: where sets are numbered, the number alone says which
// is newer, also to the Transport.
func TestHTTPAnchorSequenceAndTime(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	first, second := "Thu, 01 Jan 2026 00:00:00 GMT", "Fri, 02 Jan 2026 00:00:00 GMT"
	set := func(id, modified string, sequence ...any) http.HandlerFunc {
		return answerWith(jwksType, jwks(t, []jwk{signingKey(id)}, sequence...), "Last-Modified", modified)
	}
	s := anchorAt(t, scripted(t,
		set("1", second),
		set("1", second, spiffeSequence, 1),
		set("2", second, spiffeSequence, 2),
		set("3", first, spiffeSequence, 3),
	))
	if fetch(t, s).IssuedAt.IsZero() {
		t.Error("no IssuedAt without a sequence")
	}
	for range 3 {
		if a := fetch(t, s); !a.IssuedAt.IsZero() {
			t.Errorf("issued at %v, and it has a sequence", a.IssuedAt)
		}
	}
}

func TestHTTPAnchorTwoTypes(t *testing.T) {
	checkLeaks(t)
	t.Parallel()
	fetchFails(t, anchorAt(t, answerWith(pemType, pemOf(newTestCA(t, "ca")), "Content-Type", "text/html")), "there are 2 content types")
}
