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
// taken or not. They wait for the cluster, until ctx ends, and where it has no deadline
// for 5 s.

// Advertise records what a peer advertises, as [fedhttp.PolicyBook.Advertise] does:
// an epoch older than the one on record is [fedhttp.ErrStaleEpoch].
func (f *Fleet) Advertise(ctx context.Context, a fedhttp.Advertisement) error {
	v := newPolicyValue(a.PolicyKey, a.Digest, nil)
	if err := f.mayWrite(&v, kindAdvertised); err != nil {
		return err
	}
	return f.updatePolicy(ctx, v, kindAdvertised, func(old *policyValue) (*policyValue, error) {
		switch {
		case old != nil && old.Epoch > v.Epoch:
			return nil, fmt.Errorf("fednats: peer %s, capability %s: epoch %d comes after epoch %d: %w",
				quote(a.Peer), quote(a.Capability), v.Epoch, old.Epoch, fedhttp.ErrStaleEpoch)
		case old != nil && *old == v:
			return nil, errUnchanged
		}
		return &v, nil
	})
}

// Withdraw records that a peer advertises a capability no longer. The epoch stays
// on record.
func (f *Fleet) Withdraw(ctx context.Context, peer, capability string) error {
	v := newPolicyValue(fedhttp.PolicyKey{Peer: peer, Capability: capability}, noDigest, nil)
	v.Withdrawn = true
	if err := f.mayWrite(&v, kindAdvertised); err != nil {
		return err
	}
	return f.updatePolicy(ctx, v, kindAdvertised, func(old *policyValue) (*policyValue, error) {
		if old == nil {
			return nil, nil
		}
		v.Epoch = old.Epoch
		return &v, nil
	})
}

// Accept records a digest that our side has agreed to.
func (f *Fleet) Accept(ctx context.Context, p fedhttp.Policy) error {
	return f.put(ctx, kindAccepted, newPolicyValue(p.PolicyKey, p.Digest, p.Terms))
}

// CacheNegotiation records the result of a negotiation, in the place of the one on
// record for the key. One that has expired is refused.
func (f *Fleet) CacheNegotiation(ctx context.Context, n fedhttp.Negotiation) error {
	if !time.Now().Before(n.ExpiresAt) {
		return errors.New("fednats: the negotiation has expired")
	}
	v := newPolicyValue(n.PolicyKey, n.Digest, n.Terms)
	expires := n.ExpiresAt.UTC().Round(0)
	v.ExpiresAt = &expires
	return f.put(ctx, kindNegotiated, v)
}

// Revoke takes back everything that lets tasks go under the digest for the key: its
// acceptance, and a negotiation that names it.
func (f *Fleet) Revoke(ctx context.Context, key fedhttp.PolicyKey, digest string) error {
	v := newPolicyValue(key, digest, nil)
	if err := f.mayWrite(&v, kindAccepted); err != nil {
		return err
	}
	// Without a look at what is there, which would not be the last word.
	msg := nats.NewMsg(bucketSubject(f.names.policies()) + v.name(kindAccepted))
	msg.Header.Set(kvOperation, kvDelete)
	if _, err := f.js.PublishMsg(ctx, msg); err != nil {
		return f.writeError(v.name(kindAccepted), err)
	}
	return f.updatePolicy(ctx, v, kindNegotiated, func(old *policyValue) (*policyValue, error) {
		if old == nil || old.Digest == v.Digest || !time.Now().Before(*old.ExpiresAt) {
			return nil, nil
		}
		return old, nil // a negotiation of another digest
	})
}

// mayWrite reports whether a record can be written.
func (f *Fleet) mayWrite(v *policyValue, kind string) error {
	if err := f.needs(PartPolicies, "PartPolicies"); err != nil {
		return err
	}
	if err := v.check(kind); err != nil {
		return fmt.Errorf("fednats: policy: %w", err)
	}
	return nil
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

var errUnchanged = errors.New("it is on record already")

// updatePolicy replaces the record of the kind, under the key of v, by what next makes
// of it: of nil where there is none that can be read. Nil deletes it; errUnchanged
// leaves it alone.
//
// Somebody else may write at the same time, and a leader that has lost its majority may
// answer the read. So "nothing to take back" is a write too: only a write finds out
// whether that was the last word. "It is on record already" is none, since gossip
// repeats itself, and each write is one for every replica.
func (f *Fleet) updatePolicy(
	ctx context.Context, v policyValue, kind string, next func(old *policyValue) (*policyValue, error),
) error {
	key := v.name(kind)
	return f.writeError(key, retryConflicts(ctx, func() error {
		value, revision, err := f.lastPolicy(ctx, key)
		if err != nil {
			return err
		}
		var old *policyValue
		if _, read, err := readPolicy(key, value); err == nil {
			old = &read
		}
		v, err := next(old)
		if errors.Is(err, errUnchanged) {
			return nil
		}
		if err != nil {
			return err
		}
		msg, err := policyMessage(bucketSubject(f.names.policies())+key, v)
		if err != nil {
			return err
		}
		_, err = f.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(revision))
		return err
	}))
}

const (
	kvOperation = "KV-Operation"
	kvDelete    = "DEL"
)

// policyMessage is what writes the record, or deletes it where that is nil.
func policyMessage(subject string, v *policyValue) (*nats.Msg, error) {
	msg := nats.NewMsg(subject)
	if v == nil {
		msg.Header.Set(kvOperation, kvDelete)
		return msg, nil
	}
	if v.ExpiresAt != nil {
		msg.Header.Set(jetstream.MsgTTLHeader, wholeSeconds(time.Until(*v.ExpiresAt)))
	}
	var err error
	msg.Data, err = encode(v)
	return msg, err
}

// lastPolicy returns what the bucket has under a key, and its revision: nil where it is
// deleted, and 0 where there never was anything. The leader is asked, whose order the
// revisions have: a follower may not have heard of what it has taken.
func (f *Fleet) lastPolicy(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	last, err := f.records.GetLastMsg(bucketStream(f.names.policies()), bucketSubject(f.names.policies())+key, nats.Context(ctx))
	if errors.Is(err, nats.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	return last.Data, last.Sequence, nil
}

// put writes a record.
func (f *Fleet) put(ctx context.Context, kind string, v policyValue) error {
	if err := f.mayWrite(&v, kind); err != nil {
		return err
	}
	msg, err := policyMessage(bucketSubject(f.names.policies())+v.name(kind), &v)
	if err == nil {
		_, err = f.js.PublishMsg(ctx, msg)
	}
	return f.writeError(v.name(kind), err)
}

// wholeSeconds rounds up: what ends by itself a moment late has ended by its own
// word before. The shortest time that there is, is a second.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10) + "s"
}

func (f *Fleet) writeError(key string, err error) error {
	if err == nil || errors.Is(err, fedhttp.ErrStaleEpoch) {
		return err
	}
	return fmt.Errorf("fednats: key %s: %w", quote(key), err)
}

// retryConflicts goes on where another writer was faster, or what was read is not the
// last word; and while there is no leader to ask, until ctx ends, as a write waits for one.
func retryConflicts(ctx context.Context, try func() error) error {
	if _, ends := ctx.Deadline(); !ends { // as of every question at the cluster
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, setupTimeout)
		defer cancel()
	}
	const tries = 20
	for i := 1; ; {
		err := try()
		wait := time.Duration(i) * time.Millisecond
		switch {
		case isLeaderless(err):
			wait = leaderlessWait
		case i < tries && isConflict(err):
			i++
		default:
			return err
		}
		if !sleep(ctx, wait) {
			return err
		}
	}
}

const leaderlessWait = 50 * time.Millisecond

// isLeaderless reports whether a stream's leader is being elected. The cluster has done
// nothing then.
func isLeaderless(err error) bool {
	const code = nats.JSErrCodeJetStreamNotAvailable
	var older nats.JetStreamError // of the API that asks the leader
	return isAPIError(err, jetstream.ErrorCode(code)) || errors.As(err, &older) && older.APIError() != nil && older.APIError().ErrorCode == code
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
