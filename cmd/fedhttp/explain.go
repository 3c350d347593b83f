package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedhttp/fedhttp"
)

func newExplain(std streams) *cobra.Command {
	var peersFile, peerID, request, issuedAt string
	var entry int
	var asJSON, reused bool
	var obligations []string
	at := circumstances{}
	c := &cobra.Command{
		Use:   "explain [FILE|-]",
		Short: "Say what a response would be taken for, and what would be done",
		Long: `Reads a response as curl -i prints it (HTTP/1.x, HTTP/2 or HTTP/3, CRLF or LF, interim
responses before it), or an entry of a HAR file, and says what a transport with
these peers makes of it: the evidence, the verdict, what would be done and why, and
which signal of the peer would decide what cannot be told. An empty file is a
connection that ended without a response.

The answer is that of a real transport, which is given the response. It assumes a
request without a body that was sent over a connection of its own, and that anchors
can be fetched. The flags say otherwise.`,
		Example: `  curl -si https://registry.b.example/v1/tasks | fedhttp explain -peers peers.yaml -peer org-b
  fedhttp explain -peers peers.yaml -entry 3 session.har`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			peers, err := loadPeers(peersFile, std.err)
			if err != nil {
				return err
			}
			method, _, _ := strings.Cut(request, " ")
			answer, err := readCaptured(args, std.in, entry, method)
			if err != nil {
				return err
			}
			answer.reused = answer.reused || reused
			if err := at.read(answer, request, issuedAt, obligations); err != nil {
				return err
			}
			peer, err := peerOf(cmd.Context(), peers, peerID, answer)
			if err != nil {
				return err
			}
			e, err := explain(cmd.Context(), peer, at, answer)
			if err != nil {
				return failed(err)
			}
			if asJSON {
				encoder := json.NewEncoder(std.out)
				encoder.SetIndent("", "  ")
				return encoder.Encode(e) // run sees to what cannot be written
			}
			e.write(std.out)
			return nil
		},
	}
	peersFlag(c, &peersFile)
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&peerID, "peer", "", "the peer that answered (default: the only one, or that of the HAR entry's URL)")
	_ = c.RegisterFlagCompletionFunc("peer", completePeer(&peersFile)) // the flag is there
	f.IntVar(&entry, "entry", 0, "the `number` of the HAR file's entry, from 1")
	f.StringVar(&request, "request", "", "what was asked for, such as \"POST /v1/tasks\"; routes give it its task")
	f.StringVar(&at.task.Capability, "capability", "", "the task's capability")
	f.StringArrayVar(&obligations, "obligation", nil, "an obligation of the task, `key=value`; may be given again")
	f.StringVar(&at.digest, "digest", "", "the policy digest that it was sent under (default: the receipt's own)")
	f.StringVar(&issuedAt, "anchor-issued-at", "", "when the anchor that it was sent under was issued, RFC 3339 (default: not known)")
	f.BoolVar(&at.degraded, "degraded", false, "the peer is known to be degraded")
	f.BoolVar(&reused, "reused", false, "the connection had served other requests before")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// readCaptured reads the response, whose request had the method; "": what the HAR
// entry says, else GET.
func readCaptured(args []string, in io.Reader, entry int, method string) (*captured, error) {
	data, err := readInput(args, in)
	if err != nil {
		return nil, failed(err)
	}
	if isHAR(data) {
		return readHAR(data, entry, method)
	}
	if entry != 0 {
		return nil, usage("--entry is for HAR files, and this is none")
	}
	answer, err := readResponse(data, cmp.Or(method, http.MethodGet))
	if err != nil {
		return nil, failed(err)
	}
	return answer, nil
}

func readInput(args []string, in io.Reader) ([]byte, error) {
	const remedy = "leave out all but the response, or the entry of the HAR file, that is to be explained"
	if len(args) == 1 && args[0] != "-" {
		return readPath(args[0], maxInput, remedy)
	}
	return readAll(in, "stdin", maxInput, remedy)
}

// read completes the circumstances with what the flags and the HAR file say.
func (at *circumstances) read(answer *captured, request, issuedAt string, obligations []string) error {
	at.method, at.target = "GET", "/"
	switch method, target, ok := strings.Cut(request, " "); {
	case ok:
		at.method, at.target = method, target
	case request != "":
		return usage("--request %s: want a method and a path, such as \"POST /v1/tasks\"", quote(request))
	case answer.url != "":
		if u, err := url.Parse(answer.url); err == nil && strings.HasPrefix(u.EscapedPath(), "/") {
			at.target = u.EscapedPath()
		}
		if isMethod(answer.method) {
			at.method = answer.method
		}
	}
	if !isMethod(at.method) {
		return usage("--request %s: that is no method", quote(request))
	}
	if _, err := url.ParseRequestURI(at.target); err != nil || !strings.HasPrefix(at.target, "/") {
		return usage("--request %s: want a path that begins with a slash", quote(request))
	}
	if issuedAt != "" {
		t, err := time.Parse(time.RFC3339, issuedAt)
		if err != nil || t.After(time.Now()) {
			return usage("--anchor-issued-at %s: want a time that has passed, such as 2027-01-31T12:00:00Z", quote(issuedAt))
		}
		at.issuedAt = t
	}
	terms, err := parseTerms("--obligation", obligations)
	if err != nil {
		return err
	}
	if len(terms) > 0 && at.task.Capability == "" {
		return usage("--obligation needs --capability")
	}
	at.task.Obligations = terms
	return nil
}

func isMethod(s string) bool {
	return s != "" && len(s) < 32 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") == ""
}

// parseTerms reads the "key=value" entries of a flag; nil where there is none.
func parseTerms(flag string, entries []string) (fedhttp.Terms, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	terms := make(fedhttp.Terms, len(entries))
	for _, entry := range entries {
		key, value, ok := strings.Cut(entry, "=")
		if _, twice := terms[key]; !ok || key == "" || twice {
			return nil, usage("%s %s: want key=value, each key once", flag, quote(entry))
		}
		terms[key] = value
	}
	return terms, nil
}

// peerOf finds the peer that answered: the one that is named, else the one that a
// transport takes the URL's origin to be of, else the only one.
func peerOf(ctx context.Context, peers []fedhttp.Peer, id string, answer *captured) (fedhttp.Peer, error) {
	if id == "" && answer.url != "" {
		if owner, err := ownerOf(ctx, peers, answer.url); err == nil && owner != "" {
			id = owner
		}
	}
	return find(peers, id)
}

// explanation is what is known of a response. It is printed, or encoded as JSON.
type explanation struct {
	Peer          string             `json:"peer"`
	Request       string             `json:"request"`
	Response      string             `json:"response"`
	Status        int                `json:"status"` // 0: none came
	Evidence      []fedhttp.Evidence `json:"evidence"`
	Verdict       string             `json:"verdict"`
	Outcome       fedhttp.Outcome    `json:"outcome"`
	Reason        fedhttp.Reason     `json:"reason"`
	Delivery      fedhttp.Delivery   `json:"delivery"`
	Degraded      bool               `json:"degraded"`
	CorrelationID string             `json:"correlation_id"`
	PolicyReason  string             `json:"policy_reason"`
	// Resend is "never", "after_refresh" or "after_newer_anchor".
	Resend    string `json:"resend"`
	Escalated bool   `json:"escalated"`
	// Returned says that the caller gets the response, and not an error.
	Returned bool     `json:"response_returned"`
	Does     []string `json:"does"`
	Why      []string `json:"why"`
	// Decisive are the signals of which each would decide what cannot be told.
	Decisive []decisive `json:"decisive"`
	Notes    []string   `json:"notes"`
}

// decisive is a signal that would decide it.
type decisive struct {
	Verdict string `json:"verdict"`
	Signal  string `json:"signal"`
	Who     string `json:"who"`
}

// explain asks a real Transport, several times where one answer is not enough.
func explain(ctx context.Context, peer fedhttp.Peer, at circumstances, answer *captured) (*explanation, error) {
	t := trial{peer: peer, at: at, answer: answer}
	first, err := t.run(ctx)
	if err != nil {
		return nil, err
	}
	e := &explanation{
		Peer: peer.ID, Request: at.method + " " + plain(at.target), Response: describe(answer),
		Evidence: first.decision.Evidence, Verdict: first.verdict, Degraded: first.degraded,
		Resend: "never", Decisive: []decisive{}, Notes: slices.Clone(answer.notes),
	}
	if answer.response != nil {
		e.Status = answer.response.StatusCode
	}
	last := first
	if first.decision.Reason == fedhttp.ReasonAttemptsExhausted {
		if last, e.Resend, err = t.resend(ctx); err != nil {
			return nil, err
		}
	}
	d := last.decision
	e.Outcome, e.Reason, e.Delivery = d.Outcome, d.Reason, first.decision.Delivery
	e.CorrelationID, e.PolicyReason = first.decision.CorrelationID, first.decision.PolicyReason
	e.Escalated, e.Returned = d.Escalated, last.returned
	if e.Resend != "never" {
		// The trial's second answer is ours, and no part of what was captured.
		e.Outcome, e.Reason = fedhttp.OutcomeRoutingFailed, fedhttp.ReasonNone
		e.Escalated, e.Returned = false, false
	}
	e.Does, e.Why = does(e, first), why(e)
	if first.verdict == fedhttp.VerdictAmbiguous.String() || first.verdict == fedhttp.VerdictNone.String() && e.Status >= 400 {
		if e.Decisive, err = t.decisive(ctx, first); err != nil {
			return nil, err
		}
	}
	t.remark(e)
	if e.Evidence == nil {
		e.Evidence = []fedhttp.Evidence{}
	}
	if e.Notes == nil {
		e.Notes = []string{}
	}
	return e, nil
}

func describe(c *captured) string {
	if c.response == nil {
		return "none"
	}
	protocol := strings.TrimSuffix(c.response.Proto, ".0")
	if c.response.ProtoMajor == 1 {
		protocol = c.response.Proto
	}
	return fmt.Sprintf("%s %d, %d bytes of body", protocol, c.response.StatusCode, len(c.body))
}

// resendLimit is the time limit of the trial that resends. A Retry-After that asks
// for more ends it with the reason deadline: then it would have been waited for.
const resendLimit = 900 * time.Millisecond

// resend finds out whether the peer's settings let the call be sent again, with an
// anchor that is confirmed, else with a newer one.
func (t trial) resend(ctx context.Context) (found, string, error) {
	t.limit = resendLimit
	for anchors, how := range []string{1: "after_refresh", 2: "after_newer_anchor"} {
		if anchors == 0 {
			continue
		}
		t.anchors = anchors
		f, err := t.run(ctx)
		if err != nil {
			return f, "", err
		}
		if f.decision.Attempts > 1 || f.decision.Reason == fedhttp.ReasonDeadline {
			return f, how, nil
		}
		if f.decision.Reason != fedhttp.ReasonAnchorUnchanged {
			return f, "never", nil
		}
	}
	return found{}, "", fmt.Errorf("a newer anchor was taken for an unchanged one")
}
