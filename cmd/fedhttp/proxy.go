package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fedconfig"
)

// proxyCommand is one command line of proxy.
type proxyCommand struct {
	client
	std         streams
	listen      string
	allowRemote bool
	grace       time.Duration
	logJSON     bool
	verbose     bool
}

func newProxy(std streams) *cobra.Command {
	c := &proxyCommand{std: std}
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Run a local gateway for clients in any language",
		Long: `Runs a gateway: http://127.0.0.1:PORT/{peer}/path goes to that path at the peer's
first origin, through the transport. The answer has its decision in Fedhttp-Decision:

  Fedhttp-Decision: outcome=rejected, reason=denied, peer="org-b", resends=0

A request gets its task from the routes in the file of peers, and from these headers,
which do not reach the peer:

  Fedhttp-Capability: summarize
  Fedhttp-Obligations: residency=eu, retention="30d"
  Fedhttp-Scope: dataset-12
  Fedhttp-Task: task-7
  Fedhttp-Policy-Wait: 30s          (0s: do not wait for a pending policy)

A call without a response is answered with problem+json (RFC 9457) that has the
outcome, the reason and whether the request was sent. Switch off the client's own
retries: what was sent and is not safe to send again (safe_to_resend) must not be.

Without --policies no task is sent whose obligations the peer's default terms do not
grant; without --anchors nothing is ever sent again.

` + healthPath + ` says whether the gateway is up, ` + statusPath + ` what the transport is doing. Spans and
metrics go where the standard OTEL_ variables say (OTEL_EXPORTER_OTLP_ENDPOINT and
others), and nowhere without them. The files of peers, policies and anchors are read
again when they change. SIGTERM, SIGINT and SIGHUP stop the gateway once its calls have
ended.

The gateway has no authentication: it listens on loopback, unless --allow-remote is
given.`,
		Example: "  fedhttp proxy -peers peers.yaml -policies policies.yaml -listen 127.0.0.1:8642\n" +
			"  curl -i http://127.0.0.1:8642/org-b/v1/tasks",
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&c.listen, "listen", "127.0.0.1:8642", "the `address` to listen on; port 0 is one of the system's choice")
	f.BoolVar(&c.allowRemote, "allow-remote", false, "listen beyond loopback, for whoever can connect")
	f.DurationVar(&c.grace, "grace", 30*time.Second, "how long calls may take to end once the gateway is stopped; 0s breaks them off")
	f.BoolVar(&c.logJSON, "log-json", false, "log in JSON")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "log more")
	return cmd
}

func (c *proxyCommand) run(ctx context.Context) error {
	if c.grace < 0 {
		return usage("--grace %v: want a time such as 30s, or 0s", c.grace)
	}
	logger := c.logger()
	telemetry, err := newTelemetry(ctx, logger)
	if err != nil {
		return failed(err)
	}
	defer func() {
		flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := telemetry.stop(flush); err != nil {
			logger.Warn("telemetry", slog.Any("error", err))
		}
	}()
	c.log = logger
	transport, err := c.transport(telemetry, logger, c.std.err)
	if err != nil {
		return err
	}
	defer transport.Close()
	listener, err := c.open(ctx)
	if err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String()) // a TCP address has one
	g := newGateway(transport, c.peers, port, c.allowRemote, logger, &c.client)
	ctx, release := untilSignal(ctx)
	defer release()
	if c.policiesFile == "" {
		logger.Info("without --policies no task with obligations is sent that the peer's default terms do not grant")
	}
	if c.anchorsFile == "" {
		logger.Info("without --anchors nothing is ever sent again")
	}
	if _, err := fmt.Fprintf(c.std.out, "http://%s\n", listener.Addr()); err != nil { // somebody waits for it
		return failed(errors.Join(err, listener.Close()))
	}

	var watches sync.WaitGroup
	watching, stopWatching := context.WithCancel(ctx)
	defer watches.Wait()
	defer stopWatching()
	watches.Go(func() {
		_ = fedconfig.Watch(watching, peersPath(c.peersFile), transport, fedconfig.WithLogger(logger),
			fedconfig.OnReload(g.setPeers), fedconfig.OnError(c.notReloaded))
	})
	if c.policies != nil {
		c.policies.known = g.knows
		watches.Go(func() { c.policies.run(watching) })
	}
	if c.anchors != nil {
		watches.Go(func() { c.anchors.maintain(watching, transport) })
	}
	return c.serve(ctx, g, listener, logger)
}

// notReloaded names the flag that a changed file of peers needs.
func (c *proxyCommand) notReloaded(err error) {
	var found *fedconfig.Error
	if c.anchorsFile == "" && errors.As(err, &found) && slices.ContainsFunc(found.Faults, func(f fedconfig.Fault) bool {
		return strings.HasSuffix(f.Field, ".require_anchor")
	}) {
		c.log.Error("require_anchor needs --anchors: start the gateway anew with it")
	}
}

func (c *proxyCommand) logger() *slog.Logger {
	options := &slog.HandlerOptions{}
	if c.verbose {
		options.Level = slog.LevelDebug
	}
	if c.logJSON {
		return slog.New(slog.NewJSONHandler(c.std.err, options))
	}
	return slog.New(slog.NewTextHandler(c.std.err, options))
}

// open listens, on loopback unless more is allowed.
func (c *proxyCommand) open(ctx context.Context) (net.Listener, error) {
	host, _, err := net.SplitHostPort(c.listen)
	if err != nil {
		return nil, usage("--listen %s: want an address such as 127.0.0.1:8642", quote(c.listen))
	}
	if !c.allowRemote && !isLoopback(host) {
		return nil, usage("--listen %s is not a loopback address; the gateway has no authentication: give --allow-remote to listen there all the same", quote(c.listen))
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", c.listen)
	if err != nil {
		return nil, flagged("--listen", err)
	}
	if !c.allowRemote && !isLoopback(listener.Addr().String()) { // what "localhost" is said to be
		listener.Close()
		return nil, usage("--listen %s is not a loopback address here, but %s", quote(c.listen), listener.Addr())
	}
	return listener, nil
}

// serve serves until ctx ends, and then lets the calls end: the held ones at once,
// since they were not sent, the others within the grace.
func (c *proxyCommand) serve(ctx context.Context, g *gateway, listener net.Listener, logger *slog.Logger) error {
	server := &http.Server{
		Handler: g, ErrorLog: log.New(logWriter{logger}, "", 0),
		DisableGeneralOptionsHandler: true, // OPTIONS * is for the handler to refuse
		ReadHeaderTimeout:            10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 128 << 10,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return failed(err)
	case <-ctx.Done():
	}
	logger.Info("stopping", slog.Duration("grace", c.grace))
	return stop(ctx, server, g.transport, c.grace)
}

func stop(ctx context.Context, server *http.Server, transport *fedhttp.Transport, grace time.Duration) error {
	_ = transport.Close() // never fails
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := server.Shutdown(limit); err != nil {
		return failed(errors.Join(errors.New("calls were broken off at the end of the grace"), server.Close()))
	}
	return nil
}
