package fednats

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/fedhttp/fedhttp"
)

// anchorValue is the result of a fetch, as the bucket has it.
type anchorValue struct {
	Peer text `json:"peer"`
	// Lease is the revision of the lease under which it was fetched.
	Lease uint64 `json:"lease"`
	By    text   `json:"by,omitempty"`
	// Failed is why there is none; Anchor is then the one before. NotShared says
	// that there is one, and that each replica has to fetch it itself.
	Failed    text        `json:"failed,omitempty"`
	NotShared bool        `json:"not_shared,omitempty"`
	Anchor    *anchorPart `json:"anchor,omitempty"`
}

type anchorPart struct {
	Version     text          `json:"version"`
	IssuedAt    time.Time     `json:"issued_at,omitzero"`
	ExpiresAt   time.Time     `json:"expires_at,omitzero"`
	RefreshHint time.Duration `json:"refresh_hint_ns,omitempty"`
	Roots       [][]byte      `json:"roots,omitempty"` // DER
	FetchedAt   time.Time     `json:"fetched_at"`

	certificates []*x509.Certificate
}

func leaseKey(peer string) string  { return "lease." + token(peer) }
func anchorKey(peer string) string { return "anchor." + token(peer) }

// newAnchorValue is what to tell the others of a fetch.
func newAnchorValue(peer, by string, lease uint64, a fedhttp.Anchor, err error, before *anchorPart) anchorValue {
	v := anchorValue{Peer: text(peer), By: text(by), Lease: lease}
	switch {
	case err != nil:
		v.Failed, v.Anchor = text(bounded(err.Error())), before
	case a.Roots != nil && a.Certificates == nil:
		v.NotShared = true
	default:
		v.Anchor = &anchorPart{
			Version: text(a.Version), IssuedAt: utc(a.IssuedAt), ExpiresAt: utc(a.ExpiresAt), RefreshHint: a.RefreshHint,
			FetchedAt: utc(time.Now()), certificates: a.Certificates,
		}
		for _, c := range a.Certificates {
			v.Anchor.Roots = append(v.Anchor.Roots, c.Raw)
		}
	}
	return v
}

// utc leaves a zero time zero.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Round(0)
}

// check reads the certificates, and says what no result can have. The Transport
// refuses an anchor that is expired, or older than the one before, by itself.
func (v *anchorValue) check(peer string) error {
	if string(v.Peer) != peer {
		return fmt.Errorf("the value is of peer %s", quote(string(v.Peer)))
	}
	a := v.Anchor
	if a == nil {
		return nil
	}
	if a.Version == "" || len(a.Version) > maxName {
		return errors.New("its version is empty, or longer than 1000 bytes")
	}
	for _, der := range a.Roots {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("its roots: %w", err)
		}
		if !c.IsCA {
			return errors.New("its roots: one is no CA")
		}
		a.certificates = append(a.certificates, c)
	}
	return nil
}

func (a *anchorPart) anchor() fedhttp.Anchor {
	return fedhttp.Anchor{
		Version: string(a.Version), IssuedAt: a.IssuedAt, ExpiresAt: a.ExpiresAt, RefreshHint: a.RefreshHint,
		Certificates: a.certificates,
	}
}
