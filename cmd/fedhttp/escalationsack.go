package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedhttp/fedhttp/fednats"
)

func newAck(access *fleetAccess) *cobra.Command {
	var by string
	cmd := &cobra.Command{
		Use:   "ack ID...",
		Short: "Acknowledge escalations that you have seen to",
		Long: `Records who has seen to escalations, for the whole fleet. They are listed no more, but
with --all. Of one that was acknowledged before, the first word stays on record.`,
		Example: "  fedhttp escalations ack org-b.3f2a... -by alice",
		Args:    some("ID"),
		RunE: func(cmd *cobra.Command, ids []string) error {
			if by == "" || len(by) > maxShown {
				return usage("who has seen to it? Give --by NAME, of at most %d bytes", maxShown)
			}
			return access.do(cmd.Context(), operator, false, func(ctx context.Context, fleet *fednats.Fleet) error {
				var faults []error
				for _, id := range ids {
					said, err := acknowledge(ctx, fleet, id, by)
					if errors.Is(err, fednats.ErrNoEscalation) {
						faults = append(faults, fmt.Errorf("no escalation %s: see \"fedhttp escalations\" for the ids", quote(id)))
						continue
					}
					if err != nil {
						return errors.Join(append(faults, err)...)
					}
					fmt.Fprintf(access.std.out, "%s: %s\n", plain(id), said)
				}
				if len(faults) > 0 {
					return failed(errors.Join(faults...))
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&by, "by", "", "the `name` of who has seen to it; required")
	return cmd
}

// acknowledge says whose word is on record then: somebody else may have been faster.
func acknowledge(ctx context.Context, fleet *fednats.Fleet, id, by string) (string, error) {
	e, err := fleet.Escalation(ctx, id)
	if err != nil {
		return "", err
	}
	if e.AckedBy == "" {
		if err := fleet.AckEscalation(ctx, id, by); err != nil {
			return "", err
		}
		// The server that is asked may be a moment behind the one that has taken it.
		for wait := time.Millisecond; e.AckedBy == ""; wait *= 2 {
			if e, err = fleet.Escalation(ctx, id); err != nil {
				return "", err
			}
			if e.AckedBy == by {
				return "acknowledged by " + plain(by), nil
			}
			select {
			case <-ctx.Done():
				return "", context.Cause(ctx)
			case <-time.After(wait):
			}
		}
	}
	return fmt.Sprintf("was acknowledged before, by %s, %s", plain(e.AckedBy), instant(e.AckedAt, time.Now())), nil
}
