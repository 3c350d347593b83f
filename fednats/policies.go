package fednats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fedhttp/fedhttp"
)

// The writers of policies are for negotiators and gossip. Each returns once the
// cluster has taken the record, which the books of all replicas, this one's
// included, have a moment later; or an error, with which the record may have been
// taken or not. They wait for the cluster, until ctx ends.

// Advertise records what a peer advertises, as [fedhttp.PolicyBook.Advertise] does:
// an epoch older than the one on record is [fedhttp.ErrStaleEpoch].
func (f *Fleet) Advertise(ctx context.Context, a fedhttp.Advertisement) error {
	v := newPolicyValue(a.PolicyKey, a.Digest, nil)
	return f.updateAdvertised(ctx, v, func(old *policyValue) (*policyValue, error) {
		switch {
		case old != nil && old.Epoch > v.Epoch:
			return nil, fmt.Errorf("fednats: peer %s, capability %s: epoch %d comes after epoch %d: %w",
				quote(a.Peer), quote(a.Capability), v.Epoch, old.Epoch, fedhttp.ErrStaleEpoch)
		case old != nil && *old == v:
			return nil, nil
		}
		return &v, nil
	})
}

// Withdraw records that a peer advertises a capability no longer. The epoch stays
// on record. Where nothing is, nothing changes.
func (f *Fleet) Withdraw(ctx context.Context, peer, capability string) error {
	v := newPolicyValue(fedhttp.PolicyKey{Peer: peer, Capability: capability}, noDigest, nil)
	v.Withdrawn = true
	return f.updateAdvertised(ctx, v, func(old *policyValue) (*policyValue, error) {
		if old == nil || old.Withdrawn {
			return nil, nil
		}
		v.Epoch = old.Epoch
		return &v, nil
	})
}

// Accept records a digest that our side has agreed to.
func (f *Fleet) Accept(ctx context.Context, p fedhttp.Policy) error {
	return f.put(ctx, kindAccepted, newPolicyValue(p.PolicyKey, p.Digest, p.Terms), 0)
}

// CacheNegotiation records the result of a negotiation, in the place of the one on
// record for the key. One that has expired is refused.
func (f *Fleet) CacheNegotiation(ctx context.Context, n fedhttp.Negotiation) error {
	left := time.Until(n.ExpiresAt)
	if left <= 0 {
		return errors.New("fednats: the negotiation has expired")
	}
	v := newPolicyValue(n.PolicyKey, n.Digest, n.Terms)
	expires := n.ExpiresAt.UTC().Round(0)
	v.ExpiresAt = &expires
	return f.put(ctx, kindNegotiated, v, left)
}

// Revoke takes back everything that lets tasks go under the digest for the key: its
// acceptance, and a negotiation that names it.
func (f *Fleet) Revoke(ctx context.Context, key fedhttp.PolicyKey, digest string) error {
	v := newPolicyValue(key, digest, nil)
	bucket, err := f.policies(ctx, &v, kindAccepted)
	if err != nil {
		return err
	}
	for _, kind := range []string{kindAccepted, kindNegotiated} {
		err := retryConflicts(func() error {
			e, err := bucket.Get(ctx, v.name(kind))
			if errors.Is(err, jetstream.ErrKeyNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			if _, old, err := readPolicy(e.Key(), e.Value()); err == nil && old.Digest != v.Digest {
				return nil // a negotiation of another digest
			}
			return bucket.Delete(ctx, e.Key(), jetstream.LastRevision(e.Revision()))
		})
		if err != nil {
			return f.writeError(v.name(kind), err)
		}
	}
	return nil
}

// policies returns the bucket for a record that can be written to it.
func (f *Fleet) policies(ctx context.Context, v *policyValue, kind string) (jetstream.KeyValue, error) {
	if err := f.needs(PartPolicies, "PartPolicies"); err != nil {
		return nil, err
	}
	if err := v.check(kind); err != nil {
		return nil, fmt.Errorf("fednats: policy: %w", err)
	}
	bucket, err := f.bucket(ctx, f.names.policies())
	if err != nil {
		return nil, f.writeError(v.name(kind), err)
	}
	return bucket, nil
}

// bucket asks for no more permission than to write to it and to read of it.
func (f *Fleet) bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	f.mu.Lock()
	b := f.buckets[name]
	f.mu.Unlock()
	if b != nil {
		return b, nil
	}
	b, err := f.js.KeyValue(ctx, name)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.buckets == nil {
		f.buckets = make(map[string]jetstream.KeyValue)
	}
	f.buckets[name] = b
	return b, nil
}

// updateAdvertised writes what next makes of the advertisement on record, which is
// nil where there is none that can be read; nothing where that is nil. Somebody
// else may write at the same time.
func (f *Fleet) updateAdvertised(
	ctx context.Context, v policyValue, next func(old *policyValue) (*policyValue, error),
) error {
	bucket, err := f.policies(ctx, &v, kindAdvertised)
	if err != nil {
		return err
	}
	key := v.name(kindAdvertised)
	err = retryConflicts(func() error {
		var old *policyValue
		e, err := bucket.Get(ctx, key)
		switch {
		case err == nil:
			if _, read, err := readPolicy(key, e.Value()); err == nil {
				old = &read
			}
		case !errors.Is(err, jetstream.ErrKeyNotFound):
			return err
		}
		v, err := next(old)
		if err != nil || v == nil {
			return err
		}
		value, err := encode(v)
		if err != nil {
			return err
		}
		if e == nil {
			_, err = bucket.Create(ctx, key, value)
		} else {
			_, err = bucket.Update(ctx, key, value, e.Revision())
		}
		return err
	})
	return f.writeError(key, err)
}

// put writes a record, which ends by itself after a time that is not zero.
func (f *Fleet) put(ctx context.Context, kind string, v policyValue, ttl time.Duration) error {
	if _, err := f.policies(ctx, &v, kind); err != nil {
		return err
	}
	value, err := encode(v)
	if err != nil {
		return f.writeError(v.name(kind), err)
	}
	msg := nats.NewMsg(bucketSubject(f.names.policies()) + v.name(kind))
	msg.Data = value
	if ttl > 0 {
		msg.Header.Set(jetstream.MsgTTLHeader, wholeSeconds(ttl))
	}
	_, err = f.js.PublishMsg(ctx, msg)
	return f.writeError(v.name(kind), err)
}

// wholeSeconds rounds up: what ends by itself a moment late has ended by its own
// word before.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10) + "s"
}

func (f *Fleet) writeError(key string, err error) error {
	if err == nil || errors.Is(err, fedhttp.ErrStaleEpoch) {
		return err
	}
	return fmt.Errorf("fednats: key %s: %w", quote(key), err)
}

// retryConflicts goes on where another writer was faster.
func retryConflicts(try func() error) error {
	const tries = 20
	for i := 1; ; i++ {
		err := try()
		if i == tries || !isConflict(err) {
			return err
		}
	}
}

func isConflict(err error) bool {
	if errors.Is(err, jetstream.ErrKeyExists) {
		return true
	}
	var api jetstream.JetStreamError
	if !errors.As(err, &api) || api.APIError() == nil {
		return false
	}
	code := api.APIError().ErrorCode
	return code == jetstream.JSErrCodeStreamWrongLastSequence || code == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}
