package fednats

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// testCA issues certificates for servers and clients of 127.0.0.1.
type testCA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // PEM
}

func newTestCA(t *testing.T) *testCA {
	ca := &testCA{}
	der, key := ca.issue(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	cert, err := x509.ParseCertificate(der)
	must(t, err)
	ca.cert, ca.key, ca.file = cert, key, filepath.Join(t.TempDir(), "ca.pem")
	writePEM(t, ca.file, "CERTIFICATE", der)
	return ca
}

func (ca *testCA) issue(t *testing.T, template *x509.Certificate) ([]byte, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "test"}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	parent, signer := template, key
	if ca.cert != nil {
		parent, signer = ca.cert, ca.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	must(t, err)
	return der, key
}

func (ca *testCA) leaf(t *testing.T, usage x509.ExtKeyUsage) (certFile, keyFile string) {
	t.Helper()
	der, key := ca.issue(t, &x509.Certificate{
		ExtKeyUsage: []x509.ExtKeyUsage{usage}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
	})
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", private)
	return certFile, keyFile
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// operator is who hands out accounts and users, as nsc does.
type operator struct {
	key     nkeys.KeyPair
	public  string
	account nkeys.KeyPair
	system  string // the account that JetStream itself needs
	jwts    *server.MemAccResolver
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{jwts: &server.MemAccResolver{}}
	var err error
	o.key, err = nkeys.CreateOperator()
	must(t, err)
	o.public = publicKey(t, o.key)
	o.account, err = nkeys.CreateAccount()
	must(t, err)
	system, err := nkeys.CreateAccount()
	must(t, err)
	o.system = publicKey(t, system)
	for _, public := range []string{publicKey(t, o.account), o.system} {
		claims := jwt.NewAccountClaims(public)
		if public != o.system {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		}
		token, err := claims.Encode(o.key)
		must(t, err)
		must(t, o.jwts.Store(public, token))
	}
	return o
}

func publicKey(t *testing.T, k nkeys.KeyPair) string {
	t.Helper()
	p, err := k.PublicKey()
	must(t, err)
	return p
}

// creds is a file of a user with the permissions, nil: all; it ends at a time that
// is not zero.
func (o *operator) creds(t *testing.T, may *server.Permissions, ends time.Time) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "user.creds")
	o.renew(t, file, may, ends)
	return file
}

func (o *operator) renew(t *testing.T, file string, may *server.Permissions, ends time.Time) {
	t.Helper()
	user, err := nkeys.CreateUser()
	must(t, err)
	claims := jwt.NewUserClaims(publicKey(t, user))
	if may != nil {
		claims.Pub.Allow, claims.Sub.Allow = may.Publish.Allow, may.Subscribe.Allow
	}
	if !ends.IsZero() {
		claims.Expires = ends.Unix()
	}
	token, err := claims.Encode(o.account)
	must(t, err)
	seed, err := user.Seed()
	must(t, err)
	text, err := jwt.FormatUserConfig(token, seed)
	must(t, err)
	must(t, os.WriteFile(file+".new", text, 0o600))
	must(t, os.Rename(file+".new", file)) // whole at any time
}
