package fednats

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// connect makes a connection of our own, which is tried for ever: a cluster that
// is away comes back, and credentials that have expired are renewed. Only those that
// are refused right away are an error: nobody may ever have issued any.
func (f *Fleet) connect(ctx context.Context) error {
	options := append([]nats.Option{
		nats.Name("fedhttp " + f.cfg.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond), nats.ReconnectJitter(250*time.Millisecond, time.Second),
		nats.RetryOnFailedConnect(true),
		// It would be closed for good by the second refusal in a row.
		nats.IgnoreAuthErrorAbort(),
		// What cannot be sent now is in the spool: a second copy would come late.
		nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { f.note(withRemedy(err)) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { f.note(withRemedy(err)) }),
	}, f.cfg.Options...)
	conn, err := f.dial(ctx, options)
	if err != nil {
		return fmt.Errorf("fednats: %w", withRemedy(err))
	}
	f.conn, f.owned = conn, true
	if f.cfg.Offline {
		f.note(withRemedy(conn.LastError()))
		return nil
	}
	for !conn.IsConnected() {
		last := conn.LastError()
		if remedy(last) != "" || conn.IsClosed() {
			return fmt.Errorf("fednats: not connected: %w", withRemedy(last))
		}
		if !sleep(ctx, 10*time.Millisecond) {
			return f.notConnected(ctx)
		}
	}
	return nil
}

// dial tries each server once. It waits no longer than ctx for those that take a
// connection and say nothing.
func (f *Fleet) dial(ctx context.Context, options []nats.Option) (*nats.Conn, error) {
	if f.cfg.Offline {
		return nats.Connect(f.cfg.URL, options...)
	}
	type result struct {
		conn *nats.Conn
		err  error
	}
	dialled := make(chan result, 1)
	go func() {
		conn, err := nats.Connect(f.cfg.URL, options...)
		dialled <- result{conn, err}
	}()
	select {
	case r := <-dialled:
		return r.conn, r.err
	case <-ctx.Done():
		go func() {
			if r := <-dialled; r.conn != nil {
				r.conn.Close()
			}
		}()
		return nil, fmt.Errorf("not connected: %w", context.Cause(ctx))
	}
}

// notConnected says why, as far as that is known.
func (f *Fleet) notConnected(ctx context.Context) error {
	if last := f.lastErr.Load(); last != nil {
		return fmt.Errorf("fednats: Config.URL: not connected: %w: %s", context.Cause(ctx), *last)
	}
	return fmt.Errorf("fednats: Config.URL: not connected: %w", context.Cause(ctx))
}

// withRemedy adds what helps, where that is known.
func withRemedy(err error) error {
	if r := remedy(err); r != "" {
		return fmt.Errorf("%w; %s", err, r)
	}
	return err
}

// remedy says what helps against a refusal that does not end by itself; "" for all
// other errors.
func remedy(err error) string {
	var (
		untrusted *tls.CertificateVerificationError
		name      x509.HostnameError
		op        *net.OpError
	)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired):
		return "the server wants other credentials, issued by its operator and not expired: give them in Config.Options, as with nats.UserCredentials"
	case strings.Contains(err.Error(), "error signing nonce"): // nats.go has no value for it
		return "issue the file of nats.UserCredentials in Config.Options anew: it has no key"
	case isAPIError(err, errNotClustered):
		return "set Config.Replicas to 1, or run a cluster"
	case isAPIError(err, errNoAccount):
		return "enable JetStream for the account"
	case isAPIError(err, errOverlap):
		return "set Config.Prefix to one that nothing else in the account has"
	case errors.As(err, &name):
		return "name the server in Config.URL as its certificate does"
	case errors.As(err, &untrusted):
		return "give the CA of the server's certificate in Config.Options, with nats.RootCAs"
	case errors.As(err, &op) && op.Op == "remote error" && strings.Contains(op.Err.Error(), "certificate"),
		// The server's alert and our first bytes may cross.
		errors.Is(err, nats.ErrTLS) && strings.Contains(err.Error(), "closed by remote after TLS handshake"):
		return "give a certificate that the server trusts in Config.Options, with nats.ClientCert"
	}
	return ""
}
