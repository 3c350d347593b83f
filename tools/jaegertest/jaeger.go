package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"time"
)

// ports are those that Jaeger listens on, all of them on loopback.
type ports struct {
	query, queryGRPC   int // the API, and the UI's place
	otlpHTTP, otlpGRPC int // where spans are sent to
	health, healthGRPC int
}

// standard are the ports that Jaeger's documentation names.
var standard = ports{query: 16686, queryGRPC: 16685, otlpHTTP: 4318, otlpGRPC: 4317, health: 13133, healthGRPC: 13132}

func (p *ports) each() []*int {
	return []*int{&p.query, &p.queryGRPC, &p.otlpHTTP, &p.otlpGRPC, &p.health, &p.healthGRPC}
}

const (
	loopback     = "127.0.0.1"
	startTimeout = time.Minute
)

func address(port int) string { return fmt.Sprintf("%s:%d", loopback, port) }

// arguments change Jaeger's built-in configuration, which keeps the traces in
// memory: its query service would listen on every interface, and the rest on
// whatever localhost or JAEGER_LISTEN_HOST says. What nobody asks for here (older
// protocols, sampling strategies, its own metrics and traces, debug pages) is off.
func (p ports) arguments() []string {
	var args []string
	for _, setting := range []string{
		"extensions.jaeger_query.http.endpoint=" + address(p.query),
		"extensions.jaeger_query.grpc.endpoint=" + address(p.queryGRPC),
		"extensions.jaeger_query.enable_tracing=false", // into whatever listens on port 4317
		"receivers.otlp.protocols.http.endpoint=" + address(p.otlpHTTP),
		"receivers.otlp.protocols.grpc.endpoint=" + address(p.otlpGRPC),
		"extensions.healthcheckv2.http.endpoint=" + address(p.health),
		"extensions.healthcheckv2.grpc.endpoint=" + address(p.healthGRPC),
		"service.extensions=[jaeger_storage,jaeger_query,healthcheckv2]",
		"service.pipelines.traces.receivers=[otlp]",
		"service.telemetry.metrics.level=none",
		"service.telemetry.logs.level=warn",
	} {
		args = append(args, "--set", setting)
	}
	return args
}

// jaeger is a running Jaeger.
type jaeger struct {
	ports
	pid  int
	done chan struct{} // closed when it has ended
	err  error         // why; valid once done is closed
	kill context.CancelFunc
}

// start runs the program and returns once it is ready for traces. It ends with
// ctx, with stop, and on Linux with this process, however that ends. What it
// logs goes to log.
func start(ctx context.Context, program string, p ports, log io.Writer) (*jaeger, error) {
	// Another Jaeger there would answer in place of this one.
	for _, port := range p.each() {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address(*port))
		if err != nil {
			return nil, fmt.Errorf("a port that Jaeger needs: %w", err)
		}
		l.Close()
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, program, p.arguments()...)
	cmd.Env = append(os.Environ(), "JAEGER_LISTEN_HOST="+loopback)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = time.Second
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	j := &jaeger{ports: p, pid: cmd.Process.Pid, done: make(chan struct{}), kill: cancel}
	go func() {
		j.err = cmp.Or(cmd.Wait(), errors.New("exit status 0"))
		close(j.done)
	}()
	if err := j.await(ctx); err != nil {
		j.stop()
		return nil, err
	}
	return j, nil
}

// stop ends Jaeger and forgets its traces. It returns when the process is gone.
func (j *jaeger) stop() {
	j.kill()
	<-j.done
}

// await returns once Jaeger says that all of its parts run.
func (j *jaeger) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %v", startTimeout))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx, "http://"+address(j.health)+"/status")
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-j.done:
			return fmt.Errorf("jaeger ended before it was ready: %w", j.err)
		case <-ctx.Done():
			return fmt.Errorf("jaeger: %w; last: %w", context.Cause(ctx), err)
		}
	}
}

func ready(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}
