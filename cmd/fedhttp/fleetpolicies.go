package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fednats"
)

// The roles that read policies and tell of what is wanted, and that write them.
var (
	negotiator = role{"negotiator", fednats.PartPolicies | fednats.PartUnresolved}
	acceptor   = role{"negotiator", fednats.PartPolicies}
)

// policyList is one command line of policies.
type policyList struct {
	fleetAccess
	peer           string
	follow, asJSON bool
}

func newPolicies(std streams) *cobra.Command {
	c := &policyList{fleetAccess: fleetAccess{std: std}}
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "Show what a fleet knows of policies, and accept them",
		Long: `Shows, of each peer and capability, what the peer advertises, which digests are
accepted, what was negotiated and until when, what tasks wait for, and what that comes
to: under which digest tasks with obligations may go out now. With --follow it goes
on with what tasks begin to wait for, until it is interrupted.

It needs the role "negotiator" of docs/fleet.md. What obligations a peer's own default
policy grants stands in the file of peers; it is not known here.`,
		Example: "  fedhttp policies -nats tls://nats.example:4222 -creds negotiator.creds -inbox-prefix _INBOX_negotiator\n" +
			"  fedhttp policies accept -peer org-b -capability summarize -epoch 4 -digest sha256:9f2c...",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.do(cmd.Context(), negotiator, c.follow, c.list)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.peer, "peer", "", "those of the peer with this `ID` alone")
	f.BoolVar(&c.follow, "follow", false, "go on with what tasks begin to wait for")
	f.BoolVar(&c.asJSON, "json", false, "print JSON, a line for each record")
	c.flags(cmd)
	cmd.AddCommand(newAccept(&c.fleetAccess), newRevoke(&c.fleetAccess))
	return cmd
}

func (c *policyList) list(ctx context.Context, fleet *fednats.Fleet) error {
	// In this order, what was agreed in between is no longer waited for.
	within, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	waits, err := fleet.Unresolved(within)
	if err != nil {
		return err
	}
	policies, err := fleet.Policies(within)
	if err != nil {
		return err
	}
	known := newKnown(policies, waits, func(peer, _ string) bool { return c.peer == "" || c.peer == peer })
	now := time.Now()
	if c.asJSON {
		for _, line := range known.lines() {
			if err := writeLine(c.std.out, line); err != nil {
				return failed(err)
			}
		}
	} else if err := known.write(c.std.out, now); err != nil {
		return failed(err)
	}
	if c.follow {
		return c.goOn(ctx, fleet, waits)
	}
	return nil
}

// wait tells one that is waited for from another, and from the same one later.
type wait struct {
	peer, capability string
	epoch            uint64
	digest           string
	reason           fedhttp.Reason
	at               int64
}

func waitOf(u fedhttp.Unresolved) wait {
	return wait{u.Peer, u.Capability, u.Epoch, u.Digest, u.Reason, u.At.UnixNano()}
}

// goOn shows what comes after the waits that were read.
func (c *policyList) goOn(ctx context.Context, fleet *fednats.Fleet, read []fedhttp.Unresolved) error {
	telling, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	old := make(map[wait]bool, len(read))
	for _, u := range read {
		old[waitOf(u)] = true
	}
	err := fleet.FollowUnresolved(telling, func(u fedhttp.Unresolved) {
		if telling.Err() != nil || old[waitOf(u)] || c.peer != "" && u.Peer != c.peer {
			return
		}
		var err error
		if c.asJSON {
			err = writeLine(c.std.out, unresolvedLine(u))
		} else {
			_, err = fmt.Fprintf(c.std.out, "%s  %s  unresolved  %s\n", plain(u.Peer), plain(u.Capability), unresolvedText(u, time.Now()))
		}
		if err != nil {
			stop(failed(err))
		}
	})
	if ctx.Err() != nil {
		return nil // interrupted, as it has to be
	}
	return err
}
