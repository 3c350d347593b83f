package fednats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrClosed is what the methods of a closed Fleet return, but for Close.
var ErrClosed = errors.New("fednats: the fleet is closed")

// Fleet is a program's part in a fleet. It is safe for concurrent use. Close it.
type Fleet struct {
	cfg   Config
	names names
	conn  *nats.Conn
	owned bool // the connection is ours to close
	js    jetstream.JetStream
	log   *slog.Logger
	// records is of the API before jetstream, which alone can ask a stream's leader for
	// a message where its followers may be asked too.
	records nats.JetStreamManager

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup
	once sync.Once

	refusals refusals
	lastErr  atomic.Pointer[string]

	outboxes                      []*outbox // nil where their part is not taken
	denied, unresolved, escalated *outbox
	unlock                        func() // of Config.Dir

	mu       sync.Mutex
	watchers []*watcher
	ledger   *ledger
	buckets  map[string]jetstream.KeyValue
	ended    bool  // nothing may begin any more
	closed   error // what Close returned
}

// Open takes part in a fleet: it connects, creates the buckets and streams that are
// missing, reads what an earlier process has left in Config.Dir, and, unless
// Config.Offline or Config.NoSetup is set, the denials of the fleet.
//
// The error names every fault of the configuration. With the cluster out of reach,
// Open tries until ctx ends, unless Config.Offline is set.
func Open(ctx context.Context, cfg Config) (*Fleet, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	f := &Fleet{cfg: cfg, names: names{cfg.Prefix}, log: cfg.Logger, conn: cfg.Conn}
	f.refusals.log = cfg.Logger
	f.life, f.end = context.WithCancel(context.Background())
	if err := f.open(ctx); err != nil {
		f.end()
		f.work.Wait()
		f.release()
		return nil, err
	}
	return f, nil
}

func (f *Fleet) open(ctx context.Context) error {
	if err := f.openOutboxes(); err != nil {
		return err
	}
	if f.conn == nil {
		if err := f.connect(ctx); err != nil {
			return err
		}
	}
	js, err := jetstream.New(f.conn, jetstream.WithDefaultTimeout(setupTimeout))
	if err != nil {
		return fmt.Errorf("fednats: %w", err)
	}
	f.js = js
	if f.records, err = f.conn.JetStream(nats.MaxWait(setupTimeout)); err != nil {
		return fmt.Errorf("fednats: %w", err)
	}
	if f.cfg.Offline {
		f.work.Go(f.setUpLater)
	} else if err := f.setUpUntil(ctx); err != nil {
		return err
	}
	var denials *ledger
	if f.cfg.Parts&PartDenials != 0 && !f.cfg.NoSetup { // a tool sends nothing that could be denied
		denials = f.sharedLedger() // while all that is spooled still is
	}
	for _, o := range f.outboxes {
		f.work.Go(func() { o.run(f.life) })
	}
	f.work.Go(f.watchConnection)
	if denials == nil || f.cfg.Offline {
		return nil
	}
	return denials.read(ctx)
}

// setUpUntil sets up; a cluster that has no leader yet is asked again.
func (f *Fleet) setUpUntil(ctx context.Context) error {
	for {
		err := f.setup(ctx)
		if err == nil || !isPassing(err) {
			return err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

func (f *Fleet) setUpLater() {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		if f.connected() {
			err := f.setup(f.life)
			if err == nil {
				return
			}
			f.note(err)
		}
		if !sleep(f.life, wait) {
			return
		}
	}
}

var errDisconnected = errors.New("not connected")

// Errors of the server that jetstream has no name for.
const (
	errNoPeers      = 10005 // no suitable peers for placement
	errNoAccount    = 10039 // JetStream not enabled for account
	errOverlap      = 10065 // subjects overlap with an existing stream
	errNotClustered = 10074 // replicas > 1 not supported in non-clustered mode
)

func isAPIError(err error, code jetstream.ErrorCode) bool {
	var api jetstream.JetStreamError
	return errors.As(err, &api) && api.APIError() != nil && api.APIError().ErrorCode == code
}

// isPassing reports whether an error may end by itself.
func isPassing(err error) bool {
	var api jetstream.JetStreamError
	if errors.As(err, &api) && api.APIError() != nil {
		// No leader, no quorum, no room; or not enough servers that are known yet.
		return api.APIError().Code >= 500 && api.APIError().ErrorCode != errNotClustered || api.APIError().ErrorCode == errNoPeers
	}
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, errDisconnected) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrReconnectBufExceeded)
}

func (f *Fleet) connected() bool { return f.conn.Status() == nats.CONNECTED }

// watchConnection tells all that wait for the cluster when it is back.
func (f *Fleet) watchConnection() {
	changes := f.conn.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.CLOSED)
	defer f.conn.RemoveStatusListener(changes)
	for {
		select {
		case <-f.life.Done():
			return
		case status, open := <-changes:
			if !open {
				return
			}
			f.log.Info("fednats: connection", slog.String("status", status.String()))
			if status != nats.CONNECTED {
				continue
			}
			for _, o := range f.outboxes {
				o.kick()
			}
			f.mu.Lock()
			for _, w := range f.watchers {
				w.kick()
			}
			f.mu.Unlock()
		}
	}
}

// note keeps the last error for Status.
func (f *Fleet) note(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	text := bounded(err.Error())
	if errors.Is(err, errDisconnected) {
		f.lastErr.CompareAndSwap(nil, &text) // it says less than why
		return
	}
	f.lastErr.Store(&text)
}

// needs says which part a method belongs to.
func (f *Fleet) needs(part Parts, name string) error {
	if f.life.Err() != nil {
		return ErrClosed
	}
	if f.cfg.Parts&part == 0 {
		return fmt.Errorf("fednats: %s is none of Config.Parts", name)
	}
	return nil
}

// Close lets what is spooled be published, until ctx ends, and then ends
// everything. It returns how much was left: on disk, where Config.Dir is set, for
// the next process; else it is lost. A second call returns what the first did.
//
// Close the Transport first. The books that were fed are stale from now on, and
// what is recorded is kept in memory alone.
func (f *Fleet) Close(ctx context.Context) error {
	f.once.Do(func() {
		var left []error
		for _, o := range f.outboxes {
			if n := o.drain(ctx); n > 0 {
				kept := "lost"
				if f.cfg.Dir != "" {
					kept = "kept on disk"
				}
				left = append(left, fmt.Errorf("fednats: %d %s were not published, and are %s", n, o.name, kept))
			}
		}
		f.mu.Lock()
		f.ended = true
		f.mu.Unlock()
		f.end()
		f.work.Wait()
		f.release()
		f.mu.Lock()
		for _, w := range f.watchers {
			w.fresh.end()
		}
		f.closed = errors.Join(left...)
		f.mu.Unlock()
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

func (f *Fleet) release() {
	for _, o := range f.outboxes {
		o.close()
	}
	if f.unlock != nil {
		f.unlock()
	}
	if f.owned && f.conn != nil {
		f.conn.Close()
	}
}

// sleep reports whether ctx was still there at the end of d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
