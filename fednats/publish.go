package fednats

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// openOutboxes makes an outbox for each kind of message, with what an earlier
// process has left of it.
func (f *Fleet) openOutboxes() error {
	if f.cfg.Dir != "" {
		if err := os.MkdirAll(f.cfg.Dir, 0o700); err != nil {
			return fmt.Errorf("fednats: Config.Dir: %w", err)
		}
		unlock, err := lockDir(f.cfg.Dir)
		if err != nil {
			return fmt.Errorf("fednats: Config.Dir: %w", err)
		}
		f.unlock = unlock
	}
	for _, kind := range []struct {
		part Parts
		name string
		at   **outbox
	}{
		{PartDenials, "denials", &f.denied},
		{PartUnresolved, "unresolved", &f.unresolved},
		{PartEscalations, "escalations", &f.escalated},
	} {
		if f.cfg.Parts&kind.part == 0 {
			continue
		}
		o := newOutbox(kind.name, f.cfg.SpoolMax)
		o.publish, o.ready, o.log, o.note = f.publish, f.connected, f.log, f.note
		if f.cfg.Dir != "" {
			j, left, damaged, err := openJournal(f.cfg.Dir, f.cfg.Prefix+"-"+kind.name, f.log)
			if err != nil {
				return fmt.Errorf("fednats: Config.Dir: %w", err)
			}
			o.restore(j, left, damaged)
		}
		*kind.at = o
		f.outboxes = append(f.outboxes, o)
	}
	return nil
}

// publish has an item taken by the cluster. One that is there already counts as
// taken: the answer to an earlier try may have been lost.
func (f *Fleet) publish(ctx context.Context, i *item) error {
	msg := nats.NewMsg(i.Subject)
	msg.Data = i.Data
	msg.Header.Set(jetstream.MsgIDHeader, i.ID)
	if i.TTL {
		msg.Header.Set(jetstream.MsgTTLHeader, wholeSeconds(time.Until(i.Until)))
	}
	if i.Once {
		msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
	}
	_, err := f.js.PublishMsg(ctx, msg)
	if err == nil {
		return nil
	}
	var api jetstream.JetStreamError
	if errors.As(err, &api) && api.APIError() != nil {
		switch api.APIError().ErrorCode {
		case jetstream.JSErrCodeStreamWrongLastSequence:
			if i.Once {
				return nil // its subject has a message, and that is this one
			}
		case jetstream.JSErrCodeStreamMessageExceedsMaximum:
			return fmt.Errorf("%w: %w", errNever, err)
		}
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("%w: %w", errNever, err)
	}
	return fmt.Errorf("fednats: %s: %w", i.Subject, err)
}
