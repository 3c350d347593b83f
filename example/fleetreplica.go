package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/fedhttp/fedhttp"
	"github.com/fedhttp/fedhttp/fednats"
	"github.com/fedhttp/fedhttp/fedtest"
)

// replica is one of A's instances: a client, and its part in the fleet.
type replica struct {
	*client
	transport *fedhttp.Transport
	fleet     *fednats.Fleet // nil: it is alone
}

// openFleet makes a replica's part in the fleet.
func openFleet(ctx context.Context, s *natsServer, copies int) (fleet *fednats.Fleet, closeFleet func(), err error) {
	cfg := fednats.Config{Name: s.cfg.Name, Replicas: copies, Logger: slog.New(slog.DiscardHandler)}
	closeConn, err := s.reach(&cfg)
	if err != nil {
		return nil, nil, err
	}
	if fleet, err = fednats.Open(ctx, cfg); err != nil {
		closeConn()
		return nil, nil, err
	}
	return fleet, func() {
		// What waits to be published has a moment; a run that was broken off has none.
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_ = fleet.Close(ctx) // the figures say what was lost
		closeConn()
	}, nil
}

// newReplica makes a replica of a fleet, or one that is alone where fleet is nil.
// Both have the same configuration but for what the fleet shares.
func newReplica(ctx context.Context, o *organisations, fleet *fednats.Fleet, fail func(error)) (*replica, error) {
	base, book := newBase(), &fedhttp.PolicyBook{}
	anchors, err := newAnchors(o, base)
	if err != nil {
		return nil, err
	}
	cfg := fedhttp.Config{
		Base: base, Book: book, Anchors: anchors,
		Peers: []fedhttp.Peer{{
			ID: orgB, Origins: []string{o.b.URL}, DefaultTerms: defaultTerms, Receipt: fedhttp.RequireReceipt,
			Retry: fedhttp.RetryPolicy{
				MinBackoff: scaled(100 * time.Millisecond), MaxBackoff: scaled(5 * time.Second), MinRefreshInterval: scaled(time.Second),
			},
		}},
		Logger: slog.New(slog.DiscardHandler),
	}
	var alone *coordinator
	if fleet == nil {
		alone = &coordinator{ctx: ctx, client: o.c.Client(), url: o.c.URL, book: book, fail: fail}
		cfg.Coordinator = alone
	} else {
		if err := fleet.Feed(ctx, book); err != nil {
			return nil, err
		}
		cfg.Anchors, cfg.Denials = fleet.Anchors(anchors), fleet.Denials()
		cfg.Coordinator, cfg.Escalator = fleet.Coordinator(), fleet.Escalator()
	}
	transport, err := fedhttp.NewTransport(cfg)
	if err != nil {
		return nil, err
	}
	return &replica{
		client: &client{
			Client: &http.Client{Transport: transport}, book: book,
			close: func() {
				_ = transport.Close() // nil, always
				if alone != nil {
					alone.running.Wait()
				}
			},
		},
		transport: transport, fleet: fleet,
	}, nil
}

// learn reads what B advertises. In a fleet one replica does, for all.
func (r *replica) learn(ctx context.Context, o *organisations) error {
	var offers []fedtest.Advertisement
	if err := getJSON(ctx, r.Client, o.b.CapabilitiesURL(), &offers); err != nil {
		return err
	}
	var errs []error
	for _, offer := range offers {
		a := fedhttp.Advertisement{
			PolicyKey: fedhttp.PolicyKey{Peer: orgB, Capability: offer.Capability, Epoch: offer.Epoch}, Digest: offer.Digest,
		}
		if r.fleet != nil {
			errs = append(errs, r.fleet.Advertise(ctx, a))
		} else {
			errs = append(errs, r.book.Advertise(a))
		}
	}
	return errors.Join(errs...)
}

// knowsOffer tells whether the replica's book has the advertisement.
func (r *replica) knowsOffer(offer fedtest.Advertisement) bool {
	task := fedhttp.Task{Capability: offer.Capability, Obligations: obligations}
	auth, _ := r.book.Authorize(orgB, task, defaultTerms, time.Now()) // the digest comes beside an error too
	return auth.Digest == offer.Digest
}

// knowsDenial tells whether a fleet's replica would refuse the task.
func (r *replica) knowsDenial(task fedhttp.Task) bool {
	auth, _ := r.book.Authorize(orgB, task, defaultTerms, time.Now())
	_, denied := r.fleet.Denials().Denied(orgB, task, auth)
	return denied
}

func (r *replica) held() int { return r.transport.Status()[0].Held }

// negotiate is the fleet's negotiator: it has C negotiate what replicas wait for,
// and writes what was agreed for all of them, of which it tells before. It goes on
// until ctx ends.
func negotiate(ctx context.Context, o *organisations, fleet *fednats.Fleet, writes func(), fail func(error)) {
	err := fleet.FollowUnresolved(ctx, func(u fedhttp.Unresolved) {
		agreed, err := propose(ctx, o.c.Client(), o.c.URL, u)
		if err == nil {
			writes()
			key := fedhttp.PolicyKey{Peer: u.Peer, Capability: u.Capability, Epoch: u.Epoch}
			err = fleet.Accept(ctx, fedhttp.Policy{PolicyKey: key, Digest: agreed.Digest, Terms: agreed.Terms})
		}
		if err != nil && ctx.Err() == nil {
			fail(fmt.Errorf("negotiating %s with %s: %w", u.Capability, u.Peer, err))
		}
	})
	if err != nil && ctx.Err() == nil {
		fail(err)
	}
}

// storedEscalations counts what the fleet has on record, by correlation id. A
// question that comes while a leader is elected may get no answer: it is asked again.
func storedEscalations(ctx context.Context, fleet *fednats.Fleet) (map[string]int, error) {
	var list []fednats.StoredEscalation
	var err error
	await(ctx, patience, func() bool {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		list, err = fleet.Escalations(ctx)
		return err == nil
	})
	stored := map[string]int{}
	for _, e := range list {
		stored[e.Decision.CorrelationID]++
	}
	return stored, err
}
