package fedhttp

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"time"
)

// maxAnchorMembers bounds the keys of a JWK Set and the certificates of a PEM
// bundle. The public web's CAs are about 150.
const maxAnchorMembers = 1000

// anchorSet is what a JWK Set or a PEM bundle says.
type anchorSet struct {
	version  string
	roots    *x509.CertPool      // nil: the set has no CA certificates
	members  []*x509.Certificate // those of roots
	expires  time.Time           // when the last of roots is over; zero: no roots
	hint     time.Duration       // zero: none
	sequence *uint64             // nil: none
}

// addRoot adds a CA certificate. Anything else is refused: a server's own
// certificate among the roots would be trusted as that very certificate, and is
// there because the wrong file was published.
func (s *anchorSet) addRoot(der []byte) error {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	// What crypto/x509 asks of an issuer.
	signs := cert.KeyUsage == 0 || cert.KeyUsage&x509.KeyUsageCertSign != 0
	if !cert.IsCA || !signs {
		return fmt.Errorf("is of no CA, but of %s; want those that issue the server's certificate, and not its own", quote(cert.Subject.String()))
	}
	if s.roots == nil {
		s.roots = x509.NewCertPool()
	}
	s.roots.AddCert(cert)
	s.members = append(s.members, cert)
	if cert.NotAfter.After(s.expires) {
		s.expires = cert.NotAfter
	}
	return nil
}

// setVersion is a version for a set of members, whatever their order, and however
// often each is there.
func setVersion(members [][]byte) string {
	sums := make([][]byte, len(members))
	for i, m := range members {
		sum := sha256.Sum256(m)
		sums[i] = sum[:]
	}
	slices.SortFunc(sums, bytes.Compare)
	sums = slices.CompactFunc(sums, bytes.Equal)
	sum := sha256.Sum256(bytes.Join(sums, nil))
	return "sha256:" + hex.EncodeToString(sum[:16])
}
