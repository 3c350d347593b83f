package fednats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// markerTTL is how long a bucket remembers that a key has ended by itself.
	markerTTL = time.Hour
	// denialTTL bounds how long the fleet remembers a denial, whatever its Until.
	denialTTL = 7 * 24 * time.Hour
	// anchorTTL is how long a result of a fetch is of use to anybody.
	anchorTTL = time.Hour

	unresolvedTTL = 7 * 24 * time.Hour
	// unresolvedWindow is how long one report of an unresolved policy stands for
	// those of the whole fleet.
	unresolvedWindow = 10 * time.Minute

	escalationTTL    = 90 * 24 * time.Hour
	escalationWindow = 10 * time.Minute

	setupTimeout = 5 * time.Second // for each question at the cluster
)

// setup creates what is missing of the parts, and binds to what is there: a program
// that may not create needs somebody who may to have been there before.
func (f *Fleet) setup(ctx context.Context) error {
	var faults []error
	for _, b := range []struct {
		part Parts
		cfg  jetstream.KeyValueConfig
	}{
		{PartPolicies, jetstream.KeyValueConfig{Bucket: f.names.policies(), LimitMarkerTTL: markerTTL}},
		{PartDenials, jetstream.KeyValueConfig{Bucket: f.names.denials(), LimitMarkerTTL: markerTTL, TTL: denialTTL}},
		{PartDegraded, jetstream.KeyValueConfig{Bucket: f.names.degraded(), LimitMarkerTTL: markerTTL}},
		{PartAnchors, jetstream.KeyValueConfig{Bucket: f.names.anchors(), LimitMarkerTTL: time.Second, TTL: anchorTTL}},
	} {
		if f.cfg.Parts&b.part == 0 {
			continue
		}
		b.cfg.Replicas, b.cfg.MaxBytes, b.cfg.MaxValueSize = f.cfg.Replicas, f.cfg.MaxBytes, maxMessage
		if err := f.setupBucket(ctx, b.cfg); err != nil {
			faults = append(faults, f.setupError("bucket", b.cfg.Bucket, err))
		}
	}
	for _, s := range []struct {
		part Parts
		cfg  jetstream.StreamConfig
	}{
		{PartUnresolved, jetstream.StreamConfig{
			Name: f.names.unresolved(), Subjects: []string{f.names.unresolvedSubject() + ">"},
			MaxAge: unresolvedTTL, Duplicates: unresolvedWindow,
		}},
		{PartEscalations, jetstream.StreamConfig{
			Name: f.names.escalations(), Subjects: []string{f.names.escalationSubject() + ">"},
			MaxAge: escalationTTL, Duplicates: escalationWindow,
		}},
	} {
		if f.cfg.Parts&s.part == 0 {
			continue
		}
		// The latest word on each subject. A full stream refuses: an old escalation
		// must not make room for a new one, unseen.
		s.cfg.MaxMsgsPerSubject, s.cfg.Discard = 1, jetstream.DiscardNew
		s.cfg.Replicas, s.cfg.MaxMsgSize, s.cfg.AllowDirect = f.cfg.Replicas, maxMessage, true
		s.cfg.MaxBytes = orUnlimited(f.cfg.MaxBytes)
		if err := f.setupStream(ctx, s.cfg); err != nil {
			faults = append(faults, f.setupError("stream", s.cfg.Name, err))
		}
	}
	return errors.Join(faults...)
}

// maxMessage is what the server takes of a message: a value and its header.
const maxMessage = maxValue + 4<<10

func orUnlimited(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}

func (f *Fleet) setupBucket(ctx context.Context, cfg jetstream.KeyValueConfig) error {
	return f.bindOrCreate(ctx, bucketStream(cfg.Bucket), func(ctx context.Context) error {
		_, err := f.js.CreateKeyValue(ctx, cfg)
		return err
	}, func(found jetstream.StreamConfig) error {
		if cfg.LimitMarkerTTL > 0 && !found.AllowMsgTTL {
			return errors.New("it is there, and keeps no time for each key; want allow_msg_ttl")
		}
		return nil
	})
}

func (f *Fleet) setupStream(ctx context.Context, cfg jetstream.StreamConfig) error {
	return f.bindOrCreate(ctx, cfg.Name, func(ctx context.Context) error {
		_, err := f.js.CreateStream(ctx, cfg)
		return err
	}, func(found jetstream.StreamConfig) error {
		if found.MaxMsgsPerSubject != 1 || found.Discard != jetstream.DiscardNew {
			return errors.New("it is there, and is none of a fleet; want max_msgs_per_subject 1 and discard new")
		}
		return nil
	})
}

func (f *Fleet) bindOrCreate(
	ctx context.Context, stream string, create func(context.Context) error, check func(jetstream.StreamConfig) error,
) error {
	for {
		found, err := f.lookUp(ctx, stream)
		if err == nil {
			return check(found)
		}
		if f.cfg.NoSetup || !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
		ask, cancel := context.WithTimeout(ctx, setupTimeout)
		err = create(ask)
		cancel()
		// Another replica that starts at the same time may have created it.
		if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) && !errors.Is(err, jetstream.ErrBucketExists) {
			return err
		}
	}
}

func (f *Fleet) lookUp(ctx context.Context, stream string) (jetstream.StreamConfig, error) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	s, err := f.js.Stream(ctx, stream)
	if err != nil {
		return jetstream.StreamConfig{}, err
	}
	return s.CachedInfo().Config, nil
}

// setupError adds what a lack of permissions looks like: no answer.
func (f *Fleet) setupError(kind, name string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		if last := f.conn.LastError(); last != nil {
			err = fmt.Errorf("%w; the connection says: %s", err, quote(last.Error()))
		}
	}
	if errors.Is(err, nats.ErrNoResponders) {
		err = fmt.Errorf("%w; the servers have no JetStream, or it has no leader yet", err)
	}
	return fmt.Errorf("fednats: %s %s: %w", kind, name, withRemedy(err))
}
