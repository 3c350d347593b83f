package fednats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Escalations returns those that nobody has acknowledged, the oldest first. What
// cannot be read is left out, logged and counted.
func (f *Fleet) Escalations(ctx context.Context) ([]StoredEscalation, error) {
	var open []StoredEscalation
	err := f.readEscalations(ctx, false, func(s StoredEscalation) {
		if s.AckedBy == "" {
			open = append(open, s)
		}
	})
	return open, err
}

// FollowEscalations calls tell with all that the stream has and all that comes,
// acknowledgements among them, until ctx ends; then it returns its cause.
func (f *Fleet) FollowEscalations(ctx context.Context, tell func(StoredEscalation)) error {
	return f.readEscalations(ctx, true, tell)
}

// FollowUnresolved calls tell with the policies that tasks wait for, those of the
// last week and all that come, until ctx ends; then it returns its cause. One that
// is still unresolved is told again, after ten minutes at the earliest. It is for
// negotiators: each that follows is told of all.
func (f *Fleet) FollowUnresolved(ctx context.Context, tell func(fedhttp.Unresolved)) error {
	if err := f.needs(PartUnresolved, "PartUnresolved"); err != nil {
		return err
	}
	return f.read(ctx, f.names.unresolved(), true, func(msg jetstream.Msg, _ *jetstream.MsgMetadata) {
		var u fedhttp.Unresolved
		if err := json.Unmarshal(msg.Data(), &u); err != nil {
			f.refusals.add(f.names.unresolved(), msg.Subject(), err)
			return
		}
		tell(u)
	})
}

// AckEscalation records that an operator has seen to an escalation. To do so twice
// does no harm; the first one stays on record.
func (f *Fleet) AckEscalation(ctx context.Context, id, by string) error {
	if err := f.needs(PartEscalations, "PartEscalations"); err != nil {
		return err
	}
	if by == "" || strings.ContainsAny(id, "*> \t\r\n") || id == "" {
		return errors.New("fednats: an acknowledgement needs an escalation's id and a name")
	}
	stream, err := f.js.Stream(ctx, f.names.escalations())
	if err != nil {
		return fmt.Errorf("fednats: escalation %s: %w", quote(id), err)
	}
	subject := f.names.escalationSubject() + id
	err = retryConflicts(func() error {
		last, err := stream.GetLastMsgForSubject(ctx, subject)
		if err != nil {
			return err
		}
		var v escalationValue
		if err := json.Unmarshal(last.Data, &v); err != nil {
			return err
		}
		if v.AckedBy != "" {
			return nil
		}
		v.AckedBy, v.AckedAt = by, time.Now().UTC()
		msg := nats.NewMsg(subject)
		if msg.Data, err = json.Marshal(v); err != nil {
			return err
		}
		_, err = f.js.PublishMsg(ctx, msg, jetstream.WithExpectLastSequencePerSubject(last.Sequence))
		return err
	})
	if err != nil {
		return fmt.Errorf("fednats: escalation %s: %w", quote(id), err)
	}
	return nil
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
		tell(StoredEscalation{
			ID: id, From: v.From, StoredAt: meta.Timestamp, Escalation: v.Escalation, AckedBy: v.AckedBy, AckedAt: v.AckedAt,
		})
	})
}

// read reads a stream from its beginning, and to its end where it does not follow it.
func (f *Fleet) read(ctx context.Context, stream string, follow bool, tell func(jetstream.Msg, *jetstream.MsgMetadata)) error {
	start := uint64(1)
	for {
		err := f.readFrom(ctx, stream, &start, follow, tell)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil || !follow || !isPassing(err) && !errors.Is(err, errGap) && !errors.Is(err, jetstream.ErrNoHeartbeat) {
			return err
		}
		f.note(err)
		if !sleep(ctx, time.Second) {
			return context.Cause(ctx)
		}
	}
}

func (f *Fleet) readFrom(
	ctx context.Context, stream string, start *uint64, follow bool, tell func(jetstream.Msg, *jetstream.MsgMetadata),
) error {
	consumer, err := f.js.CreateConsumer(ctx, stream, readerConfig(*start))
	if err != nil {
		return fmt.Errorf("fednats: stream %s: %w", stream, err)
	}
	if !follow && consumer.CachedInfo().NumPending == 0 {
		return nil
	}
	messages, err := consumer.Messages(jetstream.PullExpiry(watchExpiry), jetstream.PullHeartbeat(watchHeartbeat),
		jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return fmt.Errorf("fednats: stream %s: %w", stream, err)
	}
	defer messages.Stop()
	return inOrder(ctx, messages, func(msg jetstream.Msg, meta *jetstream.MsgMetadata) (more bool) {
		tell(msg, meta)
		*start = meta.Sequence.Stream + 1
		return follow || meta.NumPending > 0
	})
}
