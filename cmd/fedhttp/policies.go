package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/fedhttp/fedhttp"
)

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

func (p *policy) capability() [2]string { return [2]string{p.Peer, p.Capability} }

// replacedBy reports whether q is about the same digest, and as much of a negotiation.
func (p *policy) replacedBy(q *policy) bool {
	return p.key() == q.key() && p.Digest == q.Digest && p.ExpiresAt.IsZero() == q.ExpiresAt.IsZero()
}

// flagged is an error with the flag that names the file it is about.
func flagged(flag string, err error) error { return failed(fmt.Errorf("%s: %w", flag, err)) }

// readFile returns the content of a file of policies or anchors.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a pipe is read once, or keeps us waiting
		return nil, fmt.Errorf("%s is no regular file, which it has to be to be read again", path)
	}
	return readPath(path, maxFile, "leave out what has expired, and peers that are not configured")
}

// parseFile parses a file of policies or anchors: YAML, of which JSON is a part. The list
// in it is called name, and its entries have the keys.
func parseFile(path string, data []byte, into any, name, keys string) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil
	}
	if err := yaml.Load(data, into, yaml.WithKnownFields()); err != nil {
		return fmt.Errorf("%s: %s", path, yamlWords(err, name, keys))
	}
	return nil
}

// parsePolicies parses a file of policies. The error names every fault.
func parsePolicies(path string, data []byte) ([]policy, error) {
	var file struct {
		Policies []policy `yaml:"policies"`
	}
	if err := parseFile(path, data, &file, "policies", "peer, capability, epoch, digest, terms, expires_at"); err != nil {
		return nil, err
	}
	digests := map[fedhttp.PolicyKey]string{}
	var faults []error
	for i, p := range file.Policies {
		fault := func(text string) { faults = append(faults, fmt.Errorf("%s: policies[%d]: %s", path, i, text)) }
		for _, field := range []struct{ name, value string }{{"peer", p.Peer}, {"capability", p.Capability}, {"digest", p.Digest}} {
			if field.value == "" {
				fault(field.name + " is missing")
			}
		}
		if _, twice := digests[p.key()]; twice {
			fault("the peer, capability and epoch are those of another entry")
		}
		digests[p.key()] = p.Digest
	}
	return file.Policies, errors.Join(faults...)
}

// highest are, of each peer and capability, the entries that count: those of the
// highest epoch.
func highest(all []policy) map[[2]string]policy {
	found := map[[2]string]policy{}
	for _, p := range all {
		if key := p.capability(); p.Epoch >= found[key].Epoch {
			found[key] = p
		}
	}
	return found
}

// take makes the book say what the file says now, or changes nothing.
func (w *policyWatch) take(now []policy) error {
	counts := highest(now)
	var faults []error
	for i, p := range now { // a book of its own finds what the book would not take
		key := p.capability()
		if p.Epoch != counts[key].Epoch {
			continue
		}
		trial := &fedhttp.PolicyBook{}
		err := trial.Advertise(fedhttp.Advertisement{PolicyKey: fedhttp.PolicyKey{Peer: p.Peer, Capability: p.Capability, Epoch: w.epochs[key]}, Digest: p.Digest})
		if err == nil {
			err = trial.Advertise(fedhttp.Advertisement{PolicyKey: p.key(), Digest: p.Digest})
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: policies[%d]: %w", w.path, i, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	if w.epochs == nil {
		w.epochs = map[[2]string]uint64{}
	}
	for key, p := range counts {
		w.epochs[key] = p.Epoch
	}
	apply(w.book, w.last, now, counts)
	w.last = now
	return nil
}

// apply changes the book from what the file has said before.
func apply(book *fedhttp.PolicyBook, before, now []policy, counts map[[2]string]policy) {
	for _, old := range before {
		// One of the same kind takes its place in one step, so that no task finds none.
		if !slices.ContainsFunc(now, func(p policy) bool { return old.replacedBy(&p) }) {
			book.Revoke(old.key(), old.Digest)
		}
		if _, advertised := counts[old.capability()]; !advertised {
			book.Withdraw(old.Peer, old.Capability)
		}
	}
	for _, p := range counts {
		_ = book.Advertise(fedhttp.Advertisement{PolicyKey: p.key(), Digest: p.Digest}) // the trial has taken it
	}
	for _, p := range now {
		if p.ExpiresAt.IsZero() {
			book.Accept(fedhttp.Policy{PolicyKey: p.key(), Digest: p.Digest, Terms: p.Terms})
		} else {
			book.CacheNegotiation(fedhttp.Negotiation{PolicyKey: p.key(), Digest: p.Digest, Terms: p.Terms, ExpiresAt: p.ExpiresAt})
		}
	}
}

// policyWatch reads a file of policies again when it has changed. Tasks that wait
// for a policy go out once it is there.
type policyWatch struct {
	path   string
	book   *fedhttp.PolicyBook
	logger *slog.Logger
	every  time.Duration
	known  func(peer string) bool

	last     []policy
	epochs   map[[2]string]uint64 // the highest that each capability has had
	seen     []byte               // what the file had when it was read last
	emptied  bool                 // it has become empty since
	reported string               // the error that was logged last
}

// load reads the file for the first time.
func (w *policyWatch) load() error {
	data, err := readFile(w.path)
	if err != nil {
		return err
	}
	if _, err := w.read(data); err != nil {
		return err
	}
	w.warn(context.Background())
	return nil
}

// read makes the book say what the content says, or changes nothing.
func (w *policyWatch) read(data []byte) (policies int, err error) {
	w.seen = data
	now, err := parsePolicies(w.path, data)
	if err == nil {
		err = w.take(now)
	}
	return len(now), err
}

// warn names the policies that are over, and the peers that are not configured: their
// policies are nobody's.
func (w *policyWatch) warn(ctx context.Context) {
	if len(w.last) == 0 {
		w.logger.LogAttrs(ctx, slog.LevelWarn, "no policy is in the file, so no task with obligations is sent until one is", slog.String("file", plain(w.path)))
	}
	for _, p := range w.last {
		if !p.ExpiresAt.IsZero() && !time.Now().Before(p.ExpiresAt) {
			w.logger.LogAttrs(ctx, slog.LevelWarn, "a policy has expired, and lets no task go out", slog.String("peer", plain(p.Peer)),
				slog.String("capability", plain(p.Capability)), slog.Uint64("epoch", p.Epoch), slog.Time("expires_at", p.ExpiresAt))
		}
	}
	warned := map[string]bool{}
	for _, p := range w.last {
		if !warned[p.Peer] && !w.known(p.Peer) {
			w.logger.LogAttrs(ctx, slog.LevelWarn, "policies of a peer that is not configured", slog.String("peer", plain(p.Peer)))
		}
		warned[p.Peer] = true
	}
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
			w.look(ctx)
		}
	}
}

// look compares what the file has, and not its time: what takes a file's place may be as
// old, and who may read it can change without one. An empty file is looked at once more,
// since many writers begin so, and it would take every policy back.
func (w *policyWatch) look(ctx context.Context) {
	data, err := readFile(w.path)
	before := w.emptied
	w.emptied = err == nil && len(data) == 0
	switch {
	case err != nil:
		w.fail(ctx, err)
		return
	case bytes.Equal(data, w.seen):
		w.reported = ""
		return
	case w.emptied && !before:
		return
	}
	policies, err := w.read(data)
	if err != nil {
		w.fail(ctx, err)
		return
	}
	w.reported = ""
	w.logger.LogAttrs(ctx, slog.LevelInfo, "policies taken", slog.Int("policies", policies))
	w.warn(ctx)
}

// fail logs an error, unless it is the one that was logged last.
func (w *policyWatch) fail(ctx context.Context, err error) {
	if w.reported != err.Error() {
		w.reported = err.Error()
		w.logger.LogAttrs(ctx, slog.LevelError, "policies not taken", slog.Any("error", err))
	}
}
