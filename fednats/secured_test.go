package fednats

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/fedhttp/fedhttp"
)

// securedServer wants a certificate of the CA and credentials of the operator.
func securedServer(t *testing.T, ca *testCA, op *operator) *Server {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(ca.leaf(t, x509.ExtKeyUsageServerAuth))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	s, err := StartServer(ctx, ServerConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0", Configure: func(o *server.Options) {
		o.TLS, o.TLSVerify, o.TLSTimeout = true, true, within.Seconds()
		o.TLSConfig = &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
		}
		o.TrustedKeys, o.AccountResolver, o.SystemAccount = []string{op.public}, op.jwts, op.system
	}})
	must(t, err)
	t.Cleanup(s.Close)
	return s
}

// TestSecured: TLS with certificates on both sides, and roles that an operator has
// issued credentials for, with the permissions of docs/fleet.md.
func TestSecured(t *testing.T) {
	t.Parallel()
	ca, op := newTestCA(t), newOperator(t)
	s := securedServer(t, ca, op)
	certFile, keyFile := ca.leaf(t, x509.ExtKeyUsageClientAuth)
	may := map[string]*server.Permissions{}
	for _, u := range documentedUsers(t).Users {
		may[u.Username] = u.Permissions
	}
	as := func(user string, parts Parts) *Fleet {
		return openAt(t, Config{URL: s.URL(), Name: user, Parts: parts, Options: []nats.Option{
			nats.RootCAs(ca.file), nats.ClientCert(certFile, keyFile),
			nats.UserCredentials(op.creds(t, may[user], time.Time{})), nats.CustomInboxPrefix("_INBOX_" + user),
		}})
	}
	as("setup", 0)
	replica, other, negotiator := as("replica", 0), as("replica", 0), as("negotiator", PartPolicies|PartUnresolved)
	if state, err := replica.conn.TLSConnectionState(); err != nil || !state.HandshakeComplete {
		t.Errorf("no TLS: %v", err)
	}

	book, d := feed1(t, replica), denial("s")
	must(t, negotiator.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: key(1), Digest: "sha256:a"}))
	must(t, negotiator.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:a"}))
	wantBasis(t, book, key(1), "accepted sha256:a")
	must(t, replica.Denials().Record(t.Context(), d))
	eventually(t, "the denial is shared", func() bool { return denied(other.Denials(), d) })
	replica.Escalator().Escalate(t.Context(), escalation("1"))
	eventually(t, "the escalation is published", func() bool { return replica.Status().Escalations.Published == 1 })

	forbidden(t, "a replica accepts", replica, bucketSubject(replica.names.policies())+"acc.", func(ctx context.Context) error {
		return replica.Accept(ctx, fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:evil"})
	})
}

// TestRefused: what the server or we refuse ends Open at once, with what helps and
// without what is secret.
func TestRefused(t *testing.T) {
	t.Parallel()
	ca, otherCA, op := newTestCA(t), newTestCA(t), newOperator(t)
	s := securedServer(t, ca, op)
	certFile, keyFile := ca.leaf(t, x509.ExtKeyUsageClientAuth)
	otherCert, otherKey := otherCA.leaf(t, x509.ExtKeyUsageClientAuth)
	good := op.creds(t, nil, time.Time{})
	expired, foreign := op.creds(t, nil, time.Now().Add(-time.Minute)), newOperator(t).creds(t, nil, time.Time{})
	missing, garbage := filepath.Join(t.TempDir(), "no.creds"), filepath.Join(t.TempDir(), "bad.creds")
	must(t, os.WriteFile(garbage, []byte("SUAtopsecret"), 0o600))
	trusted, client := nats.RootCAs(ca.file), nats.ClientCert(certFile, keyFile)
	byName := strings.Replace(s.URL(), "127.0.0.1", "localhost", 1) // which is no name of the certificate
	withUser := strings.Replace(s.URL(), "://", "://user:topsecret@", 1)

	for _, c := range []struct {
		name, url string
		options   []nats.Option
		remedy    string
	}{
		{"nothing", s.URL(), nil, "nats.RootCAs"},
		{"no CA", s.URL(), []nats.Option{client, nats.UserCredentials(good)}, "nats.RootCAs"},
		{"another CA", s.URL(), []nats.Option{nats.RootCAs(otherCA.file), client, nats.UserCredentials(good)}, "nats.RootCAs"},
		{"a CA that is not there", s.URL(), []nats.Option{nats.RootCAs(missing), client}, missing},
		{"another name", byName, []nats.Option{trusted, client, nats.UserCredentials(good)}, "Config.URL"},
		{"no certificate", s.URL(), []nats.Option{trusted, nats.UserCredentials(good)}, "nats.ClientCert"},
		{"a certificate of another CA", s.URL(), []nats.Option{trusted, nats.ClientCert(otherCert, otherKey), nats.UserCredentials(good)}, "nats.ClientCert"},
		{"no credentials", s.URL(), []nats.Option{trusted, client}, "nats.UserCredentials"},
		{"a password", withUser, []nats.Option{trusted, client}, "nats.UserCredentials"},
		{"expired credentials", s.URL(), []nats.Option{trusted, client, nats.UserCredentials(expired)}, "not expired"},
		{"another operator's", s.URL(), []nats.Option{trusted, client, nats.UserCredentials(foreign)}, "its operator"},
		{"credentials that are not there", s.URL(), []nats.Option{trusted, client, nats.UserCredentials(missing)}, missing},
		{"credentials that are none", s.URL(), []nats.Option{trusted, client, nats.UserCredentials(garbage)}, "nats.UserCredentials"},
		{"no URL", "nats://user:topsecret@a b:4222", nil, "Config.URL"},
		{"a slash in a password", "nats://user:topsecret/@127.0.0.1:4222", nil, "percent-encoded"},
		{"no port", s.URL() + ",user:topsecret@127.0.0.1:x", nil, "Config.URL"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		f, err := Open(ctx, Config{URL: c.url, Options: c.options})
		cancel()
		if err == nil {
			closeFleet(t, f)
			t.Errorf("%s: no error", c.name)
			continue
		}
		if errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), c.remedy) {
			t.Errorf("%s: %v; want %q in it, before the context ends", c.name, err, c.remedy)
		}
		wantNoSecrets(t, c.name, err.Error(), good, expired, foreign)
	}

	// Who goes on all the same learns it from the status.
	f := openAt(t, Config{URL: withUser, Offline: true, Options: []nats.Option{client, nats.UserCredentials(good)}})
	eventually(t, "the status has what helps", func() bool { return strings.Contains(f.Status().LastError, "nats.RootCAs") })
	wantNoSecrets(t, "status", f.Status().LastError+f.Status().Server, good)
}

// wantNoSecrets looks for passwords, and for what of the files only their owners have.
func wantNoSecrets(t *testing.T, what, said string, files ...string) {
	t.Helper()
	secrets := []string{"topsecret"}
	for _, file := range files {
		b, err := os.ReadFile(file)
		must(t, err)
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); len(line) > 40 && !strings.ContainsAny(line, " *") {
				secrets = append(secrets, line)
			}
		}
	}
	if len(secrets) != 1+2*len(files) { // a token and a seed each
		t.Fatalf("%d secrets in %d files", len(secrets)-1, len(files))
	}
	for _, s := range secrets {
		if strings.Contains(said, s) {
			t.Errorf("%s: a secret is in %q", what, said)
		}
	}
}

// TestCredentialsRenewed: a replica whose credentials expire comes back with those
// that take their place, however late, and what it had to tell meanwhile with it.
func TestCredentialsRenewed(t *testing.T) {
	t.Parallel()
	ca, op := newTestCA(t), newOperator(t)
	s := securedServer(t, ca, op)
	certFile, keyFile := ca.leaf(t, x509.ExtKeyUsageClientAuth)
	var refused logBuffer
	var f *Fleet
	var file string
	for life := 3 * time.Second; f == nil; life *= 2 { // they may end before all is set up
		file = op.creds(t, nil, time.Now().Add(life))
		ctx, cancel := context.WithTimeout(t.Context(), within)
		var err error
		f, err = Open(ctx, Config{URL: s.URL(), Logger: slog.New(slog.DiscardHandler), Options: []nats.Option{
			nats.RootCAs(ca.file), nats.ClientCert(certFile, keyFile), nats.UserCredentials(file),
			nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { _, _ = refused.Write([]byte(err.Error() + "\n")) }),
		}})
		cancel()
		if err != nil && life > within {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { closeFleet(t, f) })
	eventually(t, "it is refused several times", func() bool { return strings.Count(refused.String(), "authorization violation") > 3 })
	if f.Status().Connected || f.conn.IsClosed() {
		t.Errorf("connected %v, closed %v", f.Status().Connected, f.conn.IsClosed())
	}
	f.Escalator().Escalate(t.Context(), escalation("1"))
	op.renew(t, file, nil, time.Time{})
	eventually(t, "it is published", func() bool { return f.Status().Escalations.Published == 1 })
}
