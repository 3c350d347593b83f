package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
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
	data        []string
	binary      []string
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
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd.Context(), method, args[0])
		},
	}
	c.flags(cmd)
	f := cmd.Flags()
	f.StringArrayVarP(&c.headers, "header", "H", nil, "a header `\"Name: value\"`; \"Name;\" is one without a value, \"Name:\" takes one away")
	if method == http.MethodPost {
		f.StringArrayVarP(&c.data, "data", "d", nil, "`data` to send; @FILE reads a file (@- stdin) without its line ends; several are joined by &")
		f.StringArrayVar(&c.binary, "data-binary", nil, "like --data, with files as they are")
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

func (c *call) run(ctx context.Context, method, target string) error {
	terms, err := parseTerms(c.obligations)
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
	telemetry, err := newTelemetry(ctx, processors...)
	if err != nil {
		return failed(err)
	}
	transport, err := c.transport(telemetry, slog.New(slog.DiscardHandler), c.std.err)
	if err != nil {
		return err
	}
	defer transport.Close()
	decision, err := c.send(transport, req)
	if c.verbose {
		writeDecision(c.std.err, decision)
		for _, tree := range spans.trees() {
			tree.write(c.std.err, "", "")
		}
	}
	flush, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if late := telemetry.stop(flush); late != nil {
		fmt.Fprintf(c.std.err, "fedhttp: telemetry: %s\n", plain(late.Error()))
	}
	return err
}

// send makes the call and writes the response.
func (c *call) send(transport *fedhttp.Transport, req *http.Request) (fedhttp.Decision, error) {
	resp, err := transport.RoundTrip(req) // an http.Client would only follow redirects
	if err != nil {
		var e *fedhttp.Error
		if !errors.As(err, &e) {
			return fedhttp.Decision{}, failed(err)
		}
		return e.Decision, &exit{exitCode(e.Decision.Outcome), err}
	}
	defer resp.Body.Close()
	decision, _ := fedhttp.DecisionFromResponse(resp)
	var e *fedhttp.Error
	if err := switched(resp, decision); errors.As(err, &e) {
		return e.Decision, &exit{exitCode(e.Decision.Outcome), err}
	}
	if err := c.write(resp); err != nil {
		return decision, failed(err)
	}
	if err := decision.Err(); err != nil {
		return decision, &exit{exitCode(decision.Outcome), err}
	}
	return decision, nil
}

func (c *call) write(resp *http.Response) (err error) {
	out := c.std.out
	if c.output != "" && c.output != "-" {
		f, err := os.Create(c.output)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
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
	_, err = io.Copy(out, resp.Body)
	return err
}

func (c *call) request(ctx context.Context, method, target string) (*http.Request, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, usage("%s is no URL; want one such as https://registry.b.example/v1/tasks", quote(withoutSecrets(target)))
	}
	var body io.Reader
	data, given, err := c.body()
	if err != nil {
		return nil, err
	}
	if given {
		body = bytes.NewReader(data)
	}
	if c.task.Capability != "" || len(c.task.Obligations) > 0 || c.task.Scope != "" || c.task.ID != "" {
		ctx = fedhttp.ContextWithTask(ctx, c.task)
	}
	user := u.User
	u.User, u.Fragment, u.RawFragment = nil, "", ""
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, failed(err)
	}
	if user != nil {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	req.Header.Set("User-Agent", "fedhttp/"+strings.Trim(version(), "()"))
	req.Header.Set("Accept", "*/*")
	if given {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return req, c.setHeaders(req)
}

func (c *call) setHeaders(req *http.Request) error {
	own := map[string]bool{} // those that have replaced a header of ours
	for _, line := range c.headers {
		name, value, ok := strings.Cut(line, ":")
		empty := !ok && strings.HasSuffix(name, ";")
		name = strings.TrimSuffix(name, ";")
		if !ok && !empty || strings.TrimSpace(name) != name || name == "" {
			return usage("-H %s: want \"Name: value\"", quote(line))
		}
		value = strings.TrimSpace(value)
		key := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case key == "Host" && value != "":
			req.Host = value
		case ok && value == "":
			req.Header.Del(key)
			if key == "User-Agent" {
				req.Header.Set(key, "") // which is how net/http is told to send none
			}
		case own[key]:
			req.Header.Add(key, value)
		default:
			req.Header.Set(key, value)
			own[key] = true
		}
	}
	return nil
}

// body joins the data of all flags, as curl does.
func (c *call) body() (data []byte, given bool, err error) {
	var parts [][]byte
	for i, value := range append(append([]string{}, c.data...), c.binary...) {
		part := []byte(value)
		if path, isFile := strings.CutPrefix(value, "@"); isFile {
			if part, err = c.read(path); err != nil {
				return nil, false, failed(err)
			}
			if i < len(c.data) {
				part = slices.DeleteFunc(part, func(b byte) bool { return b == '\r' || b == '\n' || b == 0 })
			}
		}
		parts = append(parts, part)
	}
	return bytes.Join(parts, []byte("&")), len(parts) > 0, nil
}

func (c *call) read(path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(c.std.in)
	}
	return os.ReadFile(path)
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
