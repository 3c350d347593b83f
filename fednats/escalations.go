package fednats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fedhttp/fedhttp"
)

// StoredEscalation is an escalation as the fleet keeps it, for 90 days.
type StoredEscalation struct {
	// ID names it to AckEscalation.
	ID string
	// From is the replica that met it (Config.Name), StoredAt when the cluster took it.
	From     string
	StoredAt time.Time
	fedhttp.Escalation
	// AckedBy and AckedAt are the operator's who has seen to it; zero: nobody has.
	AckedBy string
	AckedAt time.Time
}

// ErrNoEscalation is for an id that the fleet has no escalation of: it never had
// one, or no longer has.
var ErrNoEscalation = errors.New("there is no such escalation")

// Escalations returns those that nobody has acknowledged, the oldest first. What
// cannot be read is left out, logged and counted.
func (f *Fleet) Escalations(ctx context.Context) ([]StoredEscalation, error) {
	all, err := f.AllEscalations(ctx)
	return slices.DeleteFunc(all, func(s StoredEscalation) bool { return s.AckedBy != "" }), err
}

// AllEscalations returns those of [Fleet.Escalations] and the acknowledged ones,
// each as of its last word.
func (f *Fleet) AllEscalations(ctx context.Context) ([]StoredEscalation, error) {
	var all []StoredEscalation
	at := make(map[string]int)
	err := f.readEscalations(ctx, false, func(s StoredEscalation) {
		// One that is acknowledged meanwhile comes twice.
		if i, twice := at[s.ID]; twice {
			all[i] = s
			return
		}
		at[s.ID] = len(all)
		all = append(all, s)
	})
	return all, err
}

// Escalation returns the one with the id, or an error that matches
// [ErrNoEscalation].
func (f *Fleet) Escalation(ctx context.Context, id string) (StoredEscalation, error) {
	last, v, err := f.lastEscalation(ctx, id)
	if err != nil {
		return StoredEscalation{}, err
	}
	return v.stored(id, last.Time), nil
}

// lastEscalation reads what the stream has under an id.
func (f *Fleet) lastEscalation(ctx context.Context, id string) (*jetstream.RawStreamMsg, *escalationValue, error) {
	if err := f.needs(PartEscalations, "PartEscalations"); err != nil {
		return nil, nil, err
	}
	if !isEscalationID(id) {
		return nil, nil, fmt.Errorf("fednats: escalation %s: %w: that is no id", quote(id), ErrNoEscalation)
	}
	var last *jetstream.RawStreamMsg
	stream, err := f.js.Stream(ctx, f.names.escalations())
	if err == nil {
		last, err = stream.GetLastMsgForSubject(ctx, f.names.escalationSubject()+id)
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		err = ErrNoEscalation
	}
	v := new(escalationValue)
	if err == nil {
		err = json.Unmarshal(last.Data, v)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("fednats: escalation %s: %w", quote(id), err)
	}
	return last, v, nil
}

// isEscalationID reports whether a subject can end with id.
func isEscalationID(id string) bool {
	for t := range strings.SplitSeq(id, ".") {
		if t == "" || strings.ContainsAny(t, "*> \t\r\n\f") {
			return false
		}
	}
	return true
}

// FollowEscalations calls tell with all that the stream has and all that comes,
// acknowledgements among them, until ctx ends; then it returns its cause.
func (f *Fleet) FollowEscalations(ctx context.Context, tell func(StoredEscalation)) error {
	return f.readEscalations(ctx, true, tell)
}

// AckEscalation records that an operator has seen to an escalation. To do so twice
// does no harm; the first one stays on record. Where there is none with the id, the
// error matches [ErrNoEscalation].
func (f *Fleet) AckEscalation(ctx context.Context, id, by string) error {
	if err := f.needs(PartEscalations, "PartEscalations"); err != nil {
		return err
	}
	if by == "" {
		return errors.New("fednats: an acknowledgement needs a name")
	}
	return retryConflicts(ctx, func() error {
		last, v, err := f.lastEscalation(ctx, id)
		if err != nil || v.AckedBy != "" {
			return err
		}
		v.AckedBy, v.AckedAt = by, time.Now().UTC()
		msg := nats.NewMsg(last.Subject)
		if msg.Data, err = json.Marshal(v); err == nil {
			_, err = f.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(last.Sequence))
		}
		if err != nil {
			return fmt.Errorf("fednats: escalation %s: %w", quote(id), err)
		}
		return nil
	})
}

func (f *Fleet) readEscalations(ctx context.Context, follow bool, tell func(StoredEscalation)) error {
	if err := f.needs(PartEscalations, "PartEscalations"); err != nil {
		return err
	}
	return f.read(ctx, f.names.escalations(), follow, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) {
		id := strings.TrimPrefix(msg.Subject(), f.names.escalationSubject())
		var v escalationValue
		if err := json.Unmarshal(msg.Data(), &v); err != nil {
			f.refusals.add(f.names.escalations(), id, err)
			return
		}
		tell(v.stored(id, meta.Timestamp))
	})
}

func (v *escalationValue) stored(id string, at time.Time) StoredEscalation {
	return StoredEscalation{ID: id, From: v.From, StoredAt: at, Escalation: v.Escalation, AckedBy: v.AckedBy, AckedAt: v.AckedAt}
}

// read reads a stream from its beginning, and to its end where it does not follow it.
func (f *Fleet) read(ctx context.Context, stream string, follow bool, tell func(jetstream.Msg, *jetstream.MsgMetadata)) error {
	var after uint64
	for {
		err := f.readFrom(ctx, stream, &after, follow, tell)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// The consumer's server has ended, or was not known everywhere yet; or a leader is
		// being elected.
		interrupted := isLeaderless(err) || errors.Is(err, errGap) || errors.Is(err, errStill) || errors.Is(err, jetstream.ErrNoHeartbeat) ||
			errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound)
		if err == nil || !interrupted && (!follow || !isPassing(err)) {
			return err
		}
		f.note(err)
		if !sleep(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
}

func (f *Fleet) readFrom(
	ctx context.Context, stream string, after *uint64, follow bool, tell func(jetstream.Msg, *jetstream.MsgMetadata),
) error {
	s, err := f.js.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("fednats: stream %s: %w", stream, err)
	}
	last := s.CachedInfo().State.LastSeq
	if last <= *after && !follow {
		return nil
	}
	r, err := f.startReading(ctx, stream, *after)
	if err != nil {
		return fmt.Errorf("fednats: %w", err)
	}
	defer r.messages.Stop()
	return r.run(ctx, func() uint64 { return last }, tell, func(position uint64) bool {
		*after = position
		return follow || position < last
	})
}
