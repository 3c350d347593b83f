package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fednats"
)

var operator = role{"operator", fednats.PartEscalations}

// escalationList is one command line of escalations.
type escalationList struct {
	fleetAccess
	peer                string
	all, follow, asJSON bool
}

func newEscalations(std streams) *cobra.Command {
	c := &escalationList{fleetAccess: fleetAccess{std: std}}
	cmd := &cobra.Command{
		Use:   "escalations",
		Short: "Show what a fleet's operator has to see to",
		Long: `Shows the escalations of a fleet that nobody has acknowledged, the oldest first: what
happened to which task, on which evidence, and the correlation id to ask the peer's
operators by. With --follow it goes on with those that come, and tells of the ones
that somebody acknowledges meanwhile, until it is interrupted.

It needs the role "operator" of docs/fleet.md, and changes nothing but what
"escalations ack" acknowledges.`,
		Example: "  fedhttp escalations -nats tls://nats.example:4222 -creds operator.creds -inbox-prefix _INBOX_operator\n" +
			"  fedhttp escalations ack org-b.3f2a... -by alice",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			work := c.list
			if c.follow {
				work = c.goOn
			}
			return c.do(cmd.Context(), operator, c.follow, work)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.peer, "peer", "", "those of the peer with this `ID` alone")
	f.BoolVar(&c.all, "all", false, "the acknowledged ones too; they are kept for 90 days")
	f.BoolVar(&c.follow, "follow", false, "go on with those that come")
	f.BoolVar(&c.asJSON, "json", false, "print JSON, a line for each")
	c.flags(cmd)
	cmd.AddCommand(newAck(&c.fleetAccess))
	return cmd
}

func (c *escalationList) list(ctx context.Context, fleet *fednats.Fleet) error {
	all, err := fleet.AllEscalations(ctx)
	if err != nil {
		return err
	}
	now, shown := time.Now(), 0
	for _, e := range all {
		if c.hides(&e) {
			continue
		}
		if err := c.write(&e, now, shown == 0); err != nil {
			return failed(err)
		}
		shown++
	}
	if shown == 0 && !c.asJSON {
		fmt.Fprintln(c.std.out, "There is none.")
	}
	return nil
}

func (c *escalationList) hides(e *fednats.StoredEscalation) bool {
	return c.peer != "" && e.Decision.Peer != c.peer || e.AckedBy != "" && !c.all
}

// goOn shows those that are open, those that come, and of what it has shown what is
// acknowledged.
func (c *escalationList) goOn(ctx context.Context, fleet *fednats.Fleet) error {
	telling, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	open := map[string]bool{}
	first := true
	err := fleet.FollowEscalations(telling, func(e fednats.StoredEscalation) {
		if telling.Err() != nil || c.hides(&e) && !open[e.ID] {
			return
		}
		if open[e.ID] = true; e.AckedBy != "" {
			delete(open, e.ID)
		}
		if err := c.write(&e, time.Now(), first); err != nil {
			stop(failed(err))
		}
		first = false
	})
	if ctx.Err() != nil {
		return nil // interrupted, as it has to be
	}
	return err
}

// write writes one, below what is there already.
func (c *escalationList) write(e *fednats.StoredEscalation, now time.Time, first bool) error {
	if c.asJSON {
		return writeLine(c.std.out, newEscalationLine(e))
	}
	if !first {
		fmt.Fprintln(c.std.out)
	}
	return writeEscalation(c.std.out, e, now)
}

// maxEvidence is how much evidence of one escalation is shown; there are fewer sources.
const maxEvidence = 16

func writeEscalation(w io.Writer, e *fednats.StoredEscalation, now time.Time) error {
	d := &e.Decision
	var r rows
	add := func(key, value string) {
		if value != "" {
			r.add(key, plain(value))
		}
	}
	r.add("met", instant(e.At, now))
	add("by", e.From)
	add("peer", d.Peer)
	add("capability", d.Capability)
	add("task", d.TaskID)
	what := e.Kind.String()
	if outcome := d.Outcome.String(); outcome != what {
		what += ", " + outcome
	}
	if d.Reason != fedhttp.ReasonNone {
		what += ", " + d.Reason.String()
	}
	add("what", what)
	add("delivery", d.Delivery.String())
	add("correlation id", d.CorrelationID)
	var evidence []string
	for _, one := range d.Evidence[:min(len(d.Evidence), maxEvidence)] {
		evidence = append(evidence, one.String())
	}
	r.add("evidence", evidence...)
	add("peer says", d.PolicyReason)
	add("under", d.PolicyDigest)
	if e.AckedBy != "" {
		r.add("acknowledged", "by "+plain(e.AckedBy)+", "+instant(e.AckedAt, now))
	}
	if _, err := fmt.Fprintln(w, plain(e.ID)); err != nil {
		return err
	}
	r.write(w, "  ")
	return nil
}

// escalationLine is an escalation as JSON.
type escalationLine struct {
	ID            string                 `json:"id"`
	At            time.Time              `json:"at"`
	StoredAt      time.Time              `json:"stored_at"`
	From          string                 `json:"from"`
	Kind          fedhttp.EscalationKind `json:"kind"`
	Peer          string                 `json:"peer"`
	Capability    string                 `json:"capability"`
	TaskID        string                 `json:"task_id"`
	Outcome       fedhttp.Outcome        `json:"outcome"`
	Reason        fedhttp.Reason         `json:"reason"`
	Delivery      fedhttp.Delivery       `json:"delivery"`
	Evidence      []fedhttp.Evidence     `json:"evidence"`
	CorrelationID string                 `json:"correlation_id"`
	PolicyReason  string                 `json:"policy_reason"`
	PolicyDigest  string                 `json:"policy_digest"`
	Epoch         uint64                 `json:"epoch"`
	AnchorVersion string                 `json:"anchor_version"`
	Attempts      int                    `json:"attempts"`
	AckedBy       string                 `json:"acked_by,omitempty"` // absent: nobody has
	AckedAt       time.Time              `json:"acked_at,omitzero"`
}

func newEscalationLine(e *fednats.StoredEscalation) escalationLine {
	d := &e.Decision
	return escalationLine{
		ID: e.ID, At: e.At, StoredAt: e.StoredAt, From: e.From, Kind: e.Kind,
		Peer: d.Peer, Capability: d.Capability, TaskID: d.TaskID, Outcome: d.Outcome, Reason: d.Reason, Delivery: d.Delivery,
		Evidence: append([]fedhttp.Evidence{}, d.Evidence...), CorrelationID: d.CorrelationID, PolicyReason: d.PolicyReason,
		PolicyDigest: d.PolicyDigest, Epoch: d.Epoch, AnchorVersion: d.AnchorVersion, Attempts: d.Attempts,
		AckedBy: e.AckedBy, AckedAt: e.AckedAt,
	}
}
