package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fednats"
)

// agreement is what a command line names in full. There is no flag for "whatever is
// advertised": what a peer advertises is a claim.
type agreement struct {
	*fleetAccess
	key    fedhttp.PolicyKey
	digest string
	terms  []string
}

func (c *agreement) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.key.Peer, "peer", "", "the `ID` of the peer")
	f.StringVar(&c.key.Capability, "capability", "", "the `capability`")
	f.Uint64Var(&c.key.Epoch, "epoch", 0, "the negotiation epoch")
	f.StringVar(&c.digest, "digest", "", "the policy's digest, in full")
	for _, name := range []string{"peer", "capability", "epoch", "digest"} {
		_ = cmd.MarkFlagRequired(name) // it is there
	}
}

// write does the work where everything has a name.
func (c *agreement) write(ctx context.Context, work func(context.Context, *fednats.Fleet) error) error {
	for _, f := range []struct{ flag, value string }{{"--peer", c.key.Peer}, {"--capability", c.key.Capability}, {"--digest", c.digest}} {
		if f.value == "" {
			return usage("%s is empty; want it in full", f.flag)
		}
	}
	return c.do(ctx, acceptor, false, work)
}

func newAccept(access *fleetAccess) *cobra.Command {
	c := &agreement{fleetAccess: access}
	cmd := &cobra.Command{
		Use:   "accept",
		Short: "Accept a policy for the whole fleet",
		Long: `Records that our side agrees to one digest, for one capability of one peer in one
epoch, and says what tasks may go out under from then on. The digest is that of the
policy that was read and agreed to; nothing is ever accepted because it is advertised.

It may come before the peer advertises it. What is accepted already stays accepted;
the same digest once more replaces its terms.`,
		Example: "  fedhttp policies accept -peer org-b -capability summarize -epoch 4 -digest sha256:9f2c... -term residency=eu",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			terms, err := parseTerms("--term", c.terms)
			if err != nil {
				return err
			}
			return c.write(cmd.Context(), func(ctx context.Context, fleet *fednats.Fleet) error { return c.accept(ctx, fleet, terms) })
		},
	}
	c.flags(cmd)
	cmd.Flags().StringArrayVar(&c.terms, "term", nil, "what the policy grants, `key=value`; may be given again (default: obligations are not compared)")
	return cmd
}

func newRevoke(access *fleetAccess) *cobra.Command {
	c := &agreement{fleetAccess: access}
	cmd := &cobra.Command{
		Use:   "revoke",
		Short: "Take an acceptance or negotiation back for the whole fleet",
		Long: `Takes back everything that lets tasks go out under a digest, for one capability of one
peer in one epoch: its acceptance, and a negotiation that names it. Where there is
neither, it says so and the exit code is 1. Tasks that are on their way are not
called back.`,
		Example: "  fedhttp policies revoke -peer org-b -capability summarize -epoch 4 -digest sha256:9f2c...",
		Args:    none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.write(cmd.Context(), c.revoke)
		},
	}
	c.flags(cmd)
	return cmd
}

func (c *agreement) accept(ctx context.Context, fleet *fednats.Fleet, terms fedhttp.Terms) error {
	if err := fleet.Accept(ctx, fedhttp.Policy{PolicyKey: c.key, Digest: c.digest, Terms: terms}); err != nil {
		return err
	}
	fmt.Fprintf(c.std.out, "accepted for %s, %s: %s\n\n", plain(c.key.Peer), plain(c.key.Capability), policyText(c.key.Epoch, c.digest, terms))
	return c.show(ctx, fleet, func(p *fednats.Policies) { c.acceptIn(p, terms) })
}

func (c *agreement) revoke(ctx context.Context, fleet *fednats.Fleet) error {
	before, err := fleet.Policies(ctx)
	if err != nil {
		return err
	}
	if err := fleet.Revoke(ctx, c.key, c.digest); err != nil {
		return err
	}
	if !slices.ContainsFunc(before.Accepted, c.isAccepted) && !slices.ContainsFunc(before.Negotiated, c.isNegotiated) {
		fmt.Fprintf(c.std.err, "fedhttp: nothing is revoked: for %s, %s nothing lets tasks go out under %s\n",
			plain(c.key.Peer), plain(c.key.Capability), policyText(c.key.Epoch, c.digest, nil))
		return &exit{code: exitFailed}
	}
	fmt.Fprintf(c.std.out, "revoked for %s, %s: %s\n\n", plain(c.key.Peer), plain(c.key.Capability), policyText(c.key.Epoch, c.digest, nil))
	return c.show(ctx, fleet, c.revokeIn)
}

// acceptIn and revokeIn do to a list what was done to the fleet.
func (c *agreement) acceptIn(p *fednats.Policies, terms fedhttp.Terms) {
	policy := fedhttp.Policy{PolicyKey: c.key, Digest: c.digest, Terms: terms}
	p.Accepted = append(slices.DeleteFunc(p.Accepted, c.isAccepted), fednats.StoredPolicy{Policy: policy, StoredAt: time.Now()})
}

func (c *agreement) revokeIn(p *fednats.Policies) {
	p.Accepted = slices.DeleteFunc(p.Accepted, c.isAccepted)
	p.Negotiated = slices.DeleteFunc(p.Negotiated, c.isNegotiated)
}

func (c *agreement) isAccepted(p fednats.StoredPolicy) bool {
	return p.PolicyKey == c.key && p.Digest == c.digest
}

func (c *agreement) isNegotiated(n fednats.StoredNegotiation) bool {
	return n.PolicyKey == c.key && n.Digest == c.digest
}

// show shows what is on record for the capability now. The server that is asked may be
// a moment behind the one that has taken the change, so that this is made once more.
func (c *agreement) show(ctx context.Context, fleet *fednats.Fleet, change func(*fednats.Policies)) error {
	policies, err := fleet.Policies(ctx)
	if err != nil {
		return err
	}
	change(policies)
	known := newKnown(policies, nil, func(peer, capability string) bool {
		return peer == c.key.Peer && capability == c.key.Capability
	})
	return known.write(c.std.out, time.Now())
}
