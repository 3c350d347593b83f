package fednats

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	watchBatch     = 1000
	watchExpiry    = 30 * time.Second
	watchHeartbeat = 2 * time.Second

	// Where a revision that is wanted does not come, it is asked for after askFirst, and
	// again after twice the time, up to askLongest. A reading that has not come on stillAsks
	// times is given up.
	askFirst   = 50 * time.Millisecond
	askLongest = time.Second
	stillAsks  = 10
	lookUnused = 5 * time.Second // what asks is gone after it
)

var (
	errGap   = errors.New("a revision is missing")
	errStill = errors.New("the server that is read from does not come on")
)

// reading reads a stream in order, by a consumer of its own. One server has that
// consumer, and it may be behind the stream's leader: what it takes for the end need
// not be. So a reading has come to a revision once that was handed over, or is known to
// be no more, as the last ones of a stream may be.
type reading struct {
	f        *Fleet
	stream   string
	consumer jetstream.Consumer
	messages jetstream.MessagesContext
	position uint64 // everything up to it was handed over, or is no more
	taken    uint64 // how many messages were handed over
	hurry    atomic.Pointer[context.CancelFunc]
}

// startReading reads after a revision. Stop the messages.
func (f *Fleet) startReading(ctx context.Context, stream string, after uint64) (*reading, error) {
	asking, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	consumer, err := f.js.CreateConsumer(asking, stream, readerConfig(after, 2*watchExpiry))
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(watchBatch), jetstream.PullExpiry(watchExpiry),
		jetstream.PullHeartbeat(watchHeartbeat), jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	return &reading{f: f, stream: stream, consumer: consumer, messages: messages, position: after}, nil
}

// ask has the revision that is wanted asked for, if there is one.
func (r *reading) ask() {
	if hurry := r.hurry.Load(); hurry != nil {
		(*hurry)()
	}
}

// run hands each message over, and says then, and whenever it has come further, that
// it has: until reached reports that there is no more to do, or something is in the
// way. wanted is the revision that somebody waits for.
func (r *reading) run(
	ctx context.Context, wanted func() uint64, each func(jetstream.Msg, *jetstream.MsgMetadata), reached func(uint64) (more bool),
) error {
	quiet := r.untilAsked(ctx)
	defer r.ask()
	var wait time.Duration // zero: nobody will ask
	still := 0
	if r.consumer.CachedInfo().NumPending == 0 {
		r.ask()
	}
	for reached(r.position) {
		msg, err := r.messages.Next(jetstream.NextContext(quiet))
		switch {
		case err == nil:
			pending, err := r.take(msg, each)
			if err != nil {
				return err
			}
			if still = 0; pending == 0 && wait == 0 && r.position < wanted() {
				r.ask()
			}
		case ctx.Err() != nil || quiet.Err() == nil:
			return err
		default:
			quiet = r.untilAsked(ctx)
			if wait = 0; r.position >= wanted() {
				continue
			}
			before := r.position
			if err := r.pass(ctx); err != nil {
				return err
			}
			if still++; r.position > before {
				still = 0
			}
			if still == stillAsks {
				return errStill
			}
			wait = min(askFirst<<still, askLongest)
			time.AfterFunc(wait, r.ask)
		}
	}
	return nil
}

// untilAsked returns a context that ends with the next ask.
func (r *reading) untilAsked(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	if before := r.hurry.Swap(&cancel); before != nil {
		(*before)()
	}
	return ctx
}

// take hands a message over. pending is how many more the server knows of.
func (r *reading) take(msg jetstream.Msg, each func(jetstream.Msg, *jetstream.MsgMetadata)) (pending uint64, err error) {
	meta, err := msg.Metadata()
	if err != nil {
		return 0, err
	}
	if r.taken++; meta.Sequence.Consumer != r.taken {
		return 0, errGap
	}
	// A server that is behind may begin before the place that it was told.
	if meta.Sequence.Stream > r.position {
		each(msg, meta)
		r.position = meta.Sequence.Stream
	}
	return meta.NumPending, nil
}

// pass goes to the stream's last revision, if there is none on the way to it: which only
// a server can tell that has that one.
func (r *reading) pass(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	s, err := r.f.js.Stream(ctx, r.stream)
	if err != nil {
		return err
	}
	look, err := r.f.js.CreateConsumer(ctx, r.stream, readerConfig(r.position, lookUnused))
	if err != nil {
		return err
	}
	if last := s.CachedInfo(); look.CachedInfo().NumPending == 0 && sameServer(last.Cluster, look.CachedInfo().Cluster) {
		r.position = max(r.position, last.State.LastSeq)
	}
	return nil
}

// sameServer reports whether the server that answered for a stream has the consumer.
func sameServer(stream, consumer *jetstream.ClusterInfo) bool {
	return consumer == nil || stream != nil && stream.Leader != "" && stream.Leader == consumer.Leader
}

// readerConfig is of a consumer that keeps nothing at the server which outlives it for
// long.
func readerConfig(after uint64, unused time.Duration) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
		AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: unused,
	}
}
