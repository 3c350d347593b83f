package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/fedhttp/fedhttp"
)

// pollEvery is how often the files of policies and anchors are looked at.
const pollEvery = time.Second

// client is what get, post and proxy have in common: whom they may call, and
// under what.
type client struct {
	peersFile, policiesFile, anchorsFile string
	caFile, certFile, keyFile            string

	log      *slog.Logger // of the files that are read again
	peers    []fedhttp.Peer
	policies *policyWatch // nil: none
	anchors  *anchorFile  // nil: none
}

func (c *client) flags(cmd *cobra.Command) {
	peersFlag(cmd, &c.peersFile)
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.policiesFile, "policies", "", "file of the policies that our side has agreed to; without it no task is sent whose obligations a peer's default terms do not grant")
	f.StringVar(&c.anchorsFile, "anchors", "", "file of where trust anchors come from; without it nothing is ever sent again")
	f.StringVar(&c.caFile, "cacert", "", "PEM file of the authorities that peers' certificates come from (default: the system's)")
	f.StringVar(&c.certFile, "cert", "", "PEM file of our certificate, for peers that ask for one")
	f.StringVar(&c.keyFile, "key", "", "PEM file of its key (default: the file of the certificate)")
}

// transport makes the Transport that the flags describe, with what changes makes of it.
func (c *client) transport(t *telemetry, logger *slog.Logger, stderr io.Writer, changes ...func(*fedhttp.Config)) (*fedhttp.Transport, error) {
	peers, err := loadPeers(c.peersFile, stderr)
	if err != nil {
		return nil, err
	}
	c.peers = peers
	if err := c.anchorless(); err != nil {
		return nil, failed(err)
	}
	base, err := c.base()
	if err != nil {
		return nil, err
	}
	cfg := fedhttp.Config{
		Peers: peers, Base: base, Book: &fedhttp.PolicyBook{},
		TracerProvider: t.tracer, MeterProvider: t.meter, Logger: logger,
	}
	if c.policiesFile != "" {
		c.policies = &policyWatch{path: c.policiesFile, book: cfg.Book, logger: c.log, every: pollEvery}
		c.policies.known = func(id string) bool {
			return slices.ContainsFunc(peers, func(p fedhttp.Peer) bool { return p.ID == id })
		}
		if err := c.policies.load(); err != nil {
			return nil, flagged("--policies", err)
		}
	}
	if c.anchorsFile != "" {
		if c.anchors, err = newAnchorFile(c.anchorsFile, base.Clone(), base.TLSClientConfig.RootCAs); err != nil {
			return nil, flagged("--anchors", err)
		}
		c.anchors.log = c.log
		cfg.Anchors = c.anchors
	}
	for _, change := range changes {
		change(&cfg)
	}
	transport, err := fedhttp.NewTransport(cfg)
	if err != nil {
		return nil, failed(err)
	}
	return transport, nil
}

// anchorless is the error for the peers that nothing could be sent to without --anchors.
func (c *client) anchorless() error {
	var faults []error
	for i, p := range c.peers {
		if p.RequireAnchor && c.anchorsFile == "" {
			faults = append(faults, fmt.Errorf("%s: peers[%d].require_anchor: nothing can be sent to %s without an anchor; give --anchors FILE", peersPath(c.peersFile), i, quote(p.ID)))
		}
	}
	return errors.Join(faults...)
}

// remedy names the flag that mends it, where one was not given; "" where none does.
func (c *client) remedy(d fedhttp.Decision) string {
	switch {
	case d.Outcome == fedhttp.OutcomePolicyUnresolved && c.policiesFile == "":
		return "; without --policies there is none"
	case d.Reason == fedhttp.ReasonNoAnchorSource:
		return "; without --anchors nothing is ever sent again"
	}
	return ""
}

// remedied is err with its remedy.
func (c *client) remedied(err error, d fedhttp.Decision) error {
	if remedy := c.remedy(d); remedy != "" {
		return fmt.Errorf("%w%s", err, remedy)
	}
	return err
}

// base sends the requests. It asks for no compression by itself: what a peer
// sends is what comes out.
func (c *client) base() (*http.Transport, error) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DisableCompression = true
	if c.certFile == "" && c.keyFile != "" {
		return nil, usage("--key needs --cert")
	}
	config, err := loadTLS(tlsFlags{"--cacert", "--cert", "--key"}, c.caFile, c.certFile, c.keyFile)
	if err != nil {
		return nil, failed(err)
	}
	base.TLSClientConfig = config
	return base, nil
}
