package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/fedhttp/fedhttp/fednats"
)

// newAuthority returns a file with a certificate and its key, of who is its own
// authority, as a server and as a client.
func newAuthority(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	return write(t, "all.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))+
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
}

// setUp makes a fleet at the server.
func setUp(t *testing.T, url string, options ...nats.Option) {
	t.Helper()
	fleet, err := fednats.Open(t.Context(), fednats.Config{URL: url, Options: options, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	must(t, fleet.Close(t.Context()))
}

func TestFleetTLS(t *testing.T) {
	t.Parallel()
	file, other := newAuthority(t), newAuthority(t)
	config, err := loadTLS(tlsFlags{}, file, file, "")
	must(t, err)
	url := startServer(t, func(o *server.Options) {
		o.TLS, o.TLSVerify, o.TLSTimeout = true, true, within.Seconds()
		o.TLSConfig = &tls.Config{Certificates: config.Certificates, ClientCAs: config.RootCAs, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12}
	}).URL()
	setUp(t, url, nats.Secure(config))
	run := func(args ...string) result {
		r := runWith(t, "", append([]string{"escalations", "-nats", url}, args...)...)
		if strings.Contains(r.err, "Config.") { // which has no field that is a flag
			t.Error(r.err)
		}
		return r
	}
	run("-tls-ca", file, "-tls-cert", file).want(t, 0, "There is none.")
	run("-tls-ca", file, "-tls-cert", file, "-tls-key", file).want(t, 0)
	run("-tls-ca", file, "-tls-cert", file, "-tls-key", other).want(t, exitFailed, "fedhttp: --tls-cert "+file+", --tls-key "+other+": tls: private key does not match")
	run("-tls-cert", file).want(t, exitFailed, "see to --tls-ca")
	run("-tls-ca", other, "-tls-cert", file).want(t, exitFailed, "see to --tls-ca")
	run("-tls-ca", file).want(t, exitFailed, "see to --tls-cert")
	run("-tls-ca", file, "-tls-cert", other).want(t, exitFailed, "see to --tls-cert")

	// Who asks for TLS never goes on without.
	plaintext := startServer(t, nil).URL()
	runWith(t, "", "escalations", "-nats", plaintext, "-tls-ca", file).want(t, exitFailed, "see to --tls-ca")
	runWith(t, "", "escalations", "-nats", strings.Replace(plaintext, "nats://", "tls://", 1)).want(t, exitFailed, "secure connection not available")
}

// TestRemedy: a server that refuses our certificate is heard of in one of several ways.
func TestRemedy(t *testing.T) {
	t.Parallel()
	a := &fleetAccess{timeout: time.Second}
	for _, err := range []error{
		fmt.Errorf("%w: connection closed by remote after TLS handshake: %w", nats.ErrTLS, io.EOF),
		&net.OpError{Op: "remote error", Err: errors.New("tls: certificate required")},
	} {
		if text := a.remedy(fmt.Errorf("fednats: %w", err), "tls://a", operator).Error(); !strings.Contains(text, "see to --tls-cert") {
			t.Error(text)
		}
	}
	if text := a.remedy(&net.OpError{Op: "dial", Err: errors.New("no route")}, "tls://a", operator).Error(); text != "tls://a: dial: no route" {
		t.Error(text)
	}
}

func TestFleetCreds(t *testing.T) {
	t.Parallel()
	pair := func(create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		keys, err := create()
		must(t, err)
		public, err := keys.PublicKey()
		must(t, err)
		return keys, public
	}
	root, rootKey := pair(nkeys.CreateOperator)
	account, accountKey := pair(nkeys.CreateAccount)
	_, systemKey := pair(nkeys.CreateAccount)
	encode := func(claims jwt.Claims, by nkeys.KeyPair) string {
		token, err := claims.Encode(by)
		must(t, err)
		return token
	}
	creds := func(by nkeys.KeyPair) string {
		user, userKey := pair(nkeys.CreateUser)
		seed, err := user.Seed()
		must(t, err)
		text, err := jwt.FormatUserConfig(encode(jwt.NewUserClaims(userKey), by), seed)
		must(t, err)
		return write(t, "user.creds", string(text))
	}
	claims := jwt.NewAccountClaims(accountKey)
	claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
	resolver := &server.MemAccResolver{}
	must(t, resolver.Store(accountKey, encode(claims, root)))
	must(t, resolver.Store(systemKey, encode(jwt.NewAccountClaims(systemKey), root)))
	trusted, err := jwt.DecodeOperatorClaims(encode(jwt.NewOperatorClaims(rootKey), root))
	must(t, err)
	url := startServer(t, func(o *server.Options) {
		o.TrustedOperators, o.AccountResolver, o.SystemAccount = []*jwt.OperatorClaims{trusted}, resolver, systemKey
	}).URL()
	good := creds(account)
	setUp(t, url, nats.UserCredentials(good))
	runWith(t, "", "escalations", "-nats", url, "-creds", good).want(t, 0, "There is none.")
	stranger, _ := pair(nkeys.CreateAccount)
	for _, file := range []string{creds(stranger), write(t, "none.creds", "nothing")} {
		runWith(t, "", "escalations", "-nats", url, "-creds", file).want(t, exitFailed, "--creds")
	}
	runWith(t, "", "escalations", "-nats", url).want(t, exitFailed, "--creds")
}

// TestFleetEnvironment: what no flag gives comes from the environment.
func TestFleetEnvironment(t *testing.T) {
	f := newTestFleet(t)
	t.Setenv("FEDHTTP_NATS", strings.Replace(f.url, "%", "operator", 1))
	t.Setenv("FEDHTTP_NATS_INBOX_PREFIX", "_INBOX_operator")
	runWith(t, "", "escalations").want(t, 0, "There is none.")
	for _, s := range fleetSettings {
		switch s.flag {
		case "nats", "inbox-prefix":
			continue
		}
		t.Run(s.flag, func(t *testing.T) {
			t.Setenv(s.variable, "no such thing")
			runWith(t, "", "escalations").want(t, map[bool]int{true: exitUsage, false: exitFailed}[s.flag == "prefix" || s.flag == "tls-key"], "--"+s.flag)
		})
	}
	t.Setenv("FEDHTTP_NATS_PREFIX", "no such thing")
	runWith(t, "", "escalations", "-prefix", "fedhttp").want(t, 0)
}
