package realtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue returns a certificate for 127.0.0.1, for both ends, valid for an hour
// from begin.
func (a *authority) issue(t *testing.T, begin time.Time) (certPEM, keyPEM []byte, pair tls.Certificate) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf"},
		NotBefore: begin, NotAfter: begin.Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return certPEM, keyPEM, pair
}

// trust is who trusts whom in the tests with TLS.
type trust struct {
	dir                string // has ca.pem, other.pem, cert.pem, key.pem, both.pem, client.pem
	roots              *x509.CertPool
	server             tls.Certificate
	good, wrong, stale tls.Certificate // of clients: the servers trust the first, and trusted the last
}

func newTrust(t *testing.T) *trust {
	t.Helper()
	tr := &trust{dir: t.TempDir(), roots: x509.NewCertPool()}
	ca, other := newAuthority(t), newAuthority(t)
	tr.roots.AddCert(ca.cert)
	valid, over := time.Now().Add(-time.Minute), time.Now().Add(-2*time.Hour)
	cert, key, pair := ca.issue(t, valid)
	tr.server = pair
	clientCert, clientKey, pair := ca.issue(t, valid)
	tr.good = pair
	_, _, tr.wrong = other.issue(t, valid)
	_, _, tr.stale = ca.issue(t, over)
	tr.write(t, "ca.pem", ca.pem)
	tr.write(t, "other.pem", other.pem)
	tr.write(t, "cert.pem", cert)
	tr.write(t, "key.pem", key)
	tr.write(t, "both.pem", slices.Concat(cert, key))
	tr.write(t, "client.pem", slices.Concat(clientCert, clientKey))
	return tr
}

func (tr *trust) write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(tr.file(name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (tr *trust) file(name string) string { return filepath.Join(tr.dir, name) }
