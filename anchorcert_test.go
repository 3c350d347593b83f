package fedhttp

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"slices"
	"testing"
	"time"
)

// testCA is a CA of the tests of anchor sources. Its key follows from its name, so
// that the seeds of a fuzz target are the same each time.
type testCA struct {
	cert *x509.Certificate
	key  ed25519.PrivateKey
}

func newTestCA(t testing.TB, name string, change ...func(*x509.Certificate)) *testCA {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	for _, c := range change {
		c(template)
	}
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, name)
	key := ed25519.NewKeyFromSeed(seed)
	return &testCA{testSign(t, template, template, key, key), key}
}

func testSign(t testing.TB, template, parent *x509.Certificate, key, signer ed25519.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(nil, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// expiring makes a certificate that is over at t.
func expiring(at time.Time) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotAfter = at }
}

// issue returns a certificate for a server on loopback.
func (ca *testCA) issue(t testing.TB) tls.Certificate {
	t.Helper()
	leaf := testSign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf of " + ca.cert.Subject.CommonName},
		NotBefore: ca.cert.NotBefore, NotAfter: ca.cert.NotAfter, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, ca.cert, ca.key, ca.key)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: ca.key, Leaf: leaf}
}

// poolOf returns the certificates of the CAs, those which Roots should be equal to.
func poolOf(cas ...*testCA) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, ca := range cas {
		pool.AddCert(ca.cert)
	}
	return pool
}

// pemOf is a bundle of the CAs.
func pemOf(cas ...*testCA) []byte {
	var b bytes.Buffer
	for _, ca := range cas {
		b.Write(pemBlock("CERTIFICATE", ca.cert.Raw))
	}
	return b.Bytes()
}

func pemBlock(name string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: name, Bytes: der})
}

// jwk is a key of a JWK Set, of which the tests change members.
type jwk map[string]any

// x509Key is the key of a SPIFFE bundle that has the CA's certificate.
func x509Key(ca *testCA) jwk {
	return jwk{
		"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(ca.key.Public().(ed25519.PublicKey)),
		"use": "x509-svid", "x5c": []string{base64.StdEncoding.EncodeToString(ca.cert.Raw)},
	}
}

// signingKey is a key that no certificate is for.
func signingKey(id string) jwk { return jwk{"kty": "OKP", "crv": "Ed25519", "x": "AAAA", "kid": id} }

// jwks is a JWK Set of the keys, with the members that more has, in pairs.
func jwks(t testing.TB, keys []jwk, more ...any) []byte {
	t.Helper()
	doc := map[string]any{"keys": keys}
	for pair := range slices.Chunk(more, 2) {
		doc[pair[0].(string)] = pair[1]
	}
	data, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
