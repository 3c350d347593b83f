package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fedhttp/fedhttp/fednats"
)

// role is what a command needs to be permitted: that of docs/fleet.md, and the parts
// of a fleet that it has.
type role struct {
	name  string
	parts fednats.Parts
}

// do connects to the fleet and does the work, within the timeout; where it follows
// something, only the beginning is. An error says what to look at.
func (a *fleetAccess) do(ctx context.Context, as role, follows bool, work func(context.Context, *fednats.Fleet) error) error {
	if err := a.complete(); err != nil {
		return err
	}
	servers, err := a.servers()
	if err != nil {
		return err
	}
	options, err := a.options()
	if err != nil {
		return failed(err)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	// A server does not answer what it does not permit: it says so beside, and then
	// there is nothing to wait for.
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	options = append(options, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrPermissionViolation) {
			refuse(err)
		}
	}))
	level := slog.LevelWarn
	if follows {
		level = slog.LevelInfo // that the connection is lost, and back
	}
	starting, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	fleet, err := fednats.Open(starting, fednats.Config{
		URL: a.urls, Options: options, Prefix: a.prefix, Parts: as.parts, NoSetup: true, Name: "fedhttp",
		Logger: slog.New(slog.NewTextHandler(a.std.err, &slog.HandlerOptions{Level: level})),
	})
	if err == nil {
		defer fleet.Close(ctx)
		if !follows {
			ctx = starting
		}
		err = work(ctx, fleet)
	}
	if refusal := context.Cause(ctx); errors.Is(refusal, nats.ErrPermissionViolation) {
		err = refusal
	}
	return a.remedy(err, servers, as)
}

// remedy says what to look at where the fleet cannot be used.
func (a *fleetAccess) remedy(err error, servers string, as role) error {
	var e *exit
	if err == nil || errors.As(err, &e) {
		return err
	}
	hint := ""
	var certificate *tls.CertificateVerificationError
	var alert *net.OpError
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		err = errors.New(plain(err.Error()))
		hint = fmt.Sprintf("the role %q of docs/fleet.md may do this: see to --creds or the user in --nats, --prefix and --inbox-prefix", as.name)
	case errors.Is(err, nats.ErrNoServers):
		hint = "nothing listens there; see to --nats"
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err, nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrAccountAuthExpired):
		hint = "see to --creds, or to the user and password in --nats"
	case errors.As(err, &certificate), errors.Is(err, nats.ErrSecureConnWanted):
		hint = "see to --tls-ca, and to the host in --nats"
	case errors.Is(err, nats.ErrTLS), errors.Is(err, nats.ErrSecureConnRequired),
		errors.As(err, &alert) && alert.Op == "remote error":
		hint = "see to --tls-cert and --tls-key, and to the port in --nats"
	case errors.Is(err, jetstream.ErrStreamNotFound):
		hint = "the account has no such fleet; see to --prefix, or set it up as docs/fleet.md says"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		hint = fmt.Sprintf("no answer within %v; see to --nats, or give a longer --timeout", a.timeout)
	default:
		return failed(fmt.Errorf("%s: %s", servers, withoutFields(err)))
	}
	return failed(fmt.Errorf("%s: %s: %s", servers, withoutFields(err), hint))
}

// withoutFields is an error of fednats without what it says of its Config, which no flag is
// called.
func withoutFields(err error) string {
	text := strings.Replace(err.Error(), "Config.URL: ", "", 1)
	if problem, remedy, found := strings.Cut(text, "; "); found && strings.Contains(remedy, "Config.") {
		return problem
	}
	return text
}
