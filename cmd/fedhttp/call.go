package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/fedhttp/fedhttp"
)

// call is one command line of get or post.
type call struct {
	client
	std         streams
	headers     []string
	data        []datum
	include     bool
	verbose     bool
	output      string
	maxTime     string
	task        fedhttp.Task
	obligations []string
}

func newCall(std streams, method string) *cobra.Command {
	name := strings.ToLower(method)
	c := &call{std: std}
	cmd := &cobra.Command{
		Use:   name + " URL",
		Short: "Make one " + method + " request to a peer",
		Long: `Makes one ` + method + ` request to the peer that the URL belongs to, and writes the body of the
response to stdout. Redirects are not followed.

The exit code is the outcome's: 0 where the peer's application answered, whatever
the status; 10 rejected, 11 routing_failed, 12 ambiguous, 13 policy_unresolved,
14 scope_denied, 15 peer_unavailable, 16 unknown_peer, 17 task_required,
18 policy_mismatch, 19 canceled; 1 where the program itself failed, 2 where it was
called wrongly.`,
		Example: "  fedhttp " + name + " -peers peers.yaml -v https://registry.b.example/v1/tasks",
		Args:    one("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), method, args[0])
		},
	}
	c.flags(cmd)
	f := cmd.Flags()
	f.StringArrayVarP(&c.headers, "header", "H", nil, "a header `\"Name: value\"`; \"Name;\" is one without a value, \"Name:\" takes one away")
	if method == http.MethodPost {
		f.VarP(dataFlag{&c.data, false}, "data", "d", "`data` to send; @FILE reads a file (@- stdin) without its line ends; several are joined by &")
		f.Var(dataFlag{&c.data, true}, "data-binary", "like --data, with files as they are")
	}
	f.BoolVarP(&c.include, "include", "i", false, "write the status line and the header first")
	f.StringVarP(&c.output, "output", "o", "", "`file` for the response (default: stdout)")
	f.StringVar(&c.maxTime, "max-time", "", "`time` limit of the whole call, in seconds or as 1m30s (default: none)")
	f.BoolVarP(&c.verbose, "verbose", "v", false, "write the decision and the trace to stderr")
	f.StringVar(&c.task.Capability, "capability", "", "the peer's capability that the request is a task for")
	f.StringVar(&c.task.Scope, "scope", "", "the task's scope")
	f.StringVar(&c.task.ID, "task", "", "the task's `name` in traces")
	f.StringArrayVar(&c.obligations, "obligation", nil, "an obligation of the task, `key=value`; may be given again")
	return cmd
}

func (c *call) run(ctx context.Context, method, target string) (err error) {
	c.std.err = &lockedWriter{to: c.std.err}
	terms, err := parseTerms("--obligation", c.obligations)
	if err != nil {
		return err
	}
	c.task.Obligations = terms
	limit, err := parseSeconds(c.maxTime)
	if err != nil {
		return err
	}
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	req, err := c.request(ctx, method, target)
	if err != nil {
		return err
	}
	spans := &recorder{}
	var processors []sdktrace.SpanProcessor
	if c.verbose {
		processors = append(processors, spans)
	}
	c.log = slog.New(slog.NewTextHandler(c.std.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	telemetry, err := newTelemetry(ctx, c.log, processors...)
	if err != nil {
		return failed(err)
	}
	told := make(unresolved, 1)
	transport, err := c.transport(telemetry, slog.New(slog.DiscardHandler), c.std.err, func(cfg *fedhttp.Config) {
		cfg.Coordinator = told
		if c.policiesFile == "" { // then no policy can come, and nothing waits for one
			for i := range cfg.Peers {
				cfg.Peers[i].Hold = fedhttp.HoldPolicy{Max: -1}
			}
		}
	})
	if err != nil {
		return err
	}
	defer transport.Close()
	defer c.flush(ctx, telemetry)
	out, err := c.open()
	if err != nil {
		return flagged("--output", err)
	}
	defer func() {
		if late := out.close(); err == nil && late != nil {
			err = failed(late)
		}
	}()
	ctx, stop := untilSignal(req.Context())
	defer stop()
	waited := c.wait(ctx, told)
	decision, err := c.send(transport, req.WithContext(ctx), out)
	waited()
	if c.verbose {
		writeDecision(c.std.err, decision)
		for _, tree := range spans.trees() {
			tree.write(c.std.err, "", "")
		}
	}
	return err
}

// flushTime is how long a call waits for its telemetry to be sent.
const flushTime = 2 * time.Second

func (c *call) flush(ctx context.Context, telemetry *telemetry) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	if err := telemetry.stop(ctx); err != nil {
		fmt.Fprintf(c.std.err, "fedhttp: telemetry: %s\n", plain(err.Error()))
	}
}

// unresolved is a Coordinator that only passes on what it is told first.
type unresolved chan fedhttp.Unresolved

func (told unresolved) PolicyUnresolved(_ context.Context, u fedhttp.Unresolved) {
	select {
	case told <- u:
	default:
	}
}

// wait looks after a call that may have to wait for its policy, until stop: it reads
// the file of policies again when that changes, and says once that it waits.
func (c *call) wait(ctx context.Context, told unresolved) (stop func()) {
	if c.policies == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var both sync.WaitGroup
	both.Go(func() { c.policies.run(ctx) })
	both.Go(func() {
		select {
		case <-ctx.Done():
		case u := <-told:
			if peer, err := find(c.peers, u.Peer); err == nil && peer.Hold.Max >= 0 {
				fmt.Fprintf(c.std.err, "fedhttp: waiting for the policy of %s for %s in %s (%s)\n", plain(u.Peer), quote(u.Capability), plain(c.policiesFile), u.Reason)
			}
		}
	})
	return func() {
		cancel()
		both.Wait()
	}
}

// send makes the call and writes the response.
func (c *call) send(transport *fedhttp.Transport, req *http.Request, out *output) (fedhttp.Decision, error) {
	resp, err := transport.RoundTrip(req) // an http.Client would only follow redirects
	if err != nil {
		return c.failure(req, err)
	}
	defer resp.Body.Close()
	decision, _ := fedhttp.DecisionFromResponse(resp)
	if err := unfinished(resp, decision); err != nil {
		return c.failure(req, err)
	}
	wrote := c.write(resp, out)
	switch err := decision.Err(); {
	case err != nil && wrote != nil:
		return decision, &exit{exitCode(decision.Outcome), fmt.Errorf("%w; and %w", c.remedied(err, decision), wrote)}
	case err != nil:
		return decision, &exit{exitCode(decision.Outcome), c.remedied(err, decision)}
	case wrote != nil:
		return decision, failed(wrote)
	}
	return decision, nil
}

// failure is the end of a call without a response.
func (c *call) failure(req *http.Request, err error) (fedhttp.Decision, error) {
	var e *fedhttp.Error
	if !errors.As(err, &e) {
		return fedhttp.Decision{}, failed(err)
	}
	if e.Decision.Reason == fedhttp.ReasonUnlistedOrigin { // what there is in Go's Config no file has
		err = fmt.Errorf("no configured peer; not sent (%v): %s is an origin of no peer in %s: add it there",
			e.Decision.Reason, quote(req.URL.Scheme+"://"+req.URL.Host), plain(peersPath(c.peersFile)))
	}
	return e.Decision, &exit{exitCode(e.Decision.Outcome), c.remedied(err, e.Decision)}
}

func (c *call) write(resp *http.Response, out *output) error {
	if err := out.begin(); err != nil {
		return err
	}
	if c.include {
		protocol := resp.Proto
		if resp.ProtoMajor > 1 {
			protocol = fmt.Sprintf("HTTP/%d", resp.ProtoMajor)
		}
		var head bytes.Buffer
		fmt.Fprintf(&head, "%s %s\r\n", protocol, resp.Status)
		_ = resp.Header.Write(&head) // a buffer takes everything
		head.WriteString("\r\n")
		if _, err := out.Write(head.Bytes()); err != nil {
			return err
		}
	}
	_, err := io.Copy(out, resp.Body)
	if err != nil && out.failure() == nil {
		return fmt.Errorf("the response broke off: %w", err)
	}
	return err
}

// parseSeconds reads a time limit: seconds as curl takes them, or a duration.
func parseSeconds(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if seconds, notSeconds := strconv.ParseFloat(s, 64); notSeconds == nil && seconds < 1e9 {
		d, err = time.Duration(seconds*float64(time.Second)), nil
	}
	if err != nil || d <= 0 {
		return 0, usage("--max-time %s: want seconds such as 2.5, or a duration such as 1m30s", quote(s))
	}
	return d, nil
}
