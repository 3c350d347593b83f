package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/fedhttp/fedhttp"
)

// maxFile bounds the files of policies and anchors, in bytes.
const maxFile = 1 << 20

// policy is an entry of the file of policies: what the peer offers the capability
// under, and that our side has agreed to it.
type policy struct {
	Peer       string            `yaml:"peer"`
	Capability string            `yaml:"capability"`
	Epoch      uint64            `yaml:"epoch"`
	Digest     string            `yaml:"digest"`
	Terms      map[string]string `yaml:"terms"`      // absent: obligations are not compared
	ExpiresAt  time.Time         `yaml:"expires_at"` // absent: agreed until it is taken out
}

func (p *policy) key() fedhttp.PolicyKey {
	return fedhttp.PolicyKey{Peer: p.Peer, Capability: p.Capability, Epoch: p.Epoch}
}

func (p *policy) equal(q *policy) bool {
	return p.key() == q.key() && p.Digest == q.Digest && p.ExpiresAt.Equal(q.ExpiresAt) &&
		(p.Terms == nil) == (q.Terms == nil) && maps.Equal(p.Terms, q.Terms)
}

// readFile reads a file of policies or anchors: YAML, of which JSON is a part.
func readFile(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return err
	case len(data) > maxFile:
		return fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	case len(bytes.TrimSpace(data)) == 0:
		return nil
	}
	if err := yaml.Load(data, into, yaml.WithKnownFields()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// loadPolicies reads a file of policies. The error names every fault.
func loadPolicies(path string) ([]policy, error) {
	var file struct {
		Policies []policy `yaml:"policies"`
	}
	if err := readFile(path, &file); err != nil {
		return nil, err
	}
	digests := map[fedhttp.PolicyKey]string{}
	var faults []error
	for i, p := range file.Policies {
		fault := func(text string) { faults = append(faults, fmt.Errorf("%s: policies[%d]: %s", path, i, text)) }
		for field, value := range map[string]string{"peer": p.Peer, "capability": p.Capability, "digest": p.Digest} {
			if value == "" {
				fault(field + " is missing")
			}
		}
		if _, twice := digests[p.key()]; twice {
			fault("the peer, capability and epoch are those of another entry")
		}
		digests[p.key()] = p.Digest
	}
	return file.Policies, errors.Join(faults...)
}

// apply makes the book say what the file does. before is what it said last.
func apply(book *fedhttp.PolicyBook, before, now []policy) error {
	advertised := map[[2]string]bool{}
	for _, p := range now {
		advertised[[2]string{p.Peer, p.Capability}] = true
	}
	for _, old := range before {
		kept := false
		for i := range now {
			kept = kept || old.equal(&now[i])
		}
		if !kept {
			book.Revoke(old.key(), old.Digest)
		}
		if !advertised[[2]string{old.Peer, old.Capability}] {
			book.Withdraw(old.Peer, old.Capability)
		}
	}
	// Of several epochs the highest is the one that counts.
	highest := map[[2]string]policy{}
	for _, p := range now {
		if key := [2]string{p.Peer, p.Capability}; p.Epoch >= highest[key].Epoch {
			highest[key] = p
		}
	}
	var faults []error
	for _, p := range highest {
		if err := book.Advertise(fedhttp.Advertisement{PolicyKey: p.key(), Digest: p.Digest}); err != nil {
			faults = append(faults, err)
		}
	}
	for _, p := range now {
		if p.ExpiresAt.IsZero() {
			book.Accept(fedhttp.Policy{PolicyKey: p.key(), Digest: p.Digest, Terms: p.Terms})
		} else {
			book.CacheNegotiation(fedhttp.Negotiation{PolicyKey: p.key(), Digest: p.Digest, Terms: p.Terms, ExpiresAt: p.ExpiresAt})
		}
	}
	return errors.Join(faults...)
}

// policyWatch reads a file of policies again when it has changed. Tasks that wait
// for a policy go out once it is there.
type policyWatch struct {
	path   string
	book   *fedhttp.PolicyBook
	logger *slog.Logger
	every  time.Duration

	last []policy
	seen stamp
}

// stamp tells one version of a file from another.
type stamp struct {
	at   time.Time
	size int64
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.ModTime(), info.Size()}, nil
}

// load reads the file for the first time.
func (w *policyWatch) load() error {
	seen, err := stampOf(w.path)
	if err != nil {
		return err
	}
	now, err := loadPolicies(w.path)
	if err == nil {
		err = apply(w.book, nil, now)
	}
	w.last, w.seen = now, seen
	return err
}

// run looks at the file until ctx ends. One that has faults changes nothing.
func (w *policyWatch) run(ctx context.Context) {
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		seen, err := stampOf(w.path)
		if err != nil || seen == w.seen { // one that is being replaced is there again soon
			continue
		}
		w.seen = seen
		now, err := loadPolicies(w.path)
		if err == nil {
			err = apply(w.book, w.last, now)
			w.last = now
		}
		if err != nil {
			w.logger.LogAttrs(ctx, slog.LevelError, "policies not taken", slog.Any("error", err))
			continue
		}
		w.logger.LogAttrs(ctx, slog.LevelInfo, "policies taken", slog.Int("policies", len(now)))
	}
}
