package fednats

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/fedhttp/fedhttp"
)

// leaderless is a bucket's stream while its leader is elected: the first questions get an
// error.
type leaderless struct {
	nats.JetStreamManager
	left int
	code nats.ErrorCode
}

func (l *leaderless) GetLastMsg(stream, subject string, opts ...nats.JSOpt) (*nats.RawStreamMsg, error) {
	if l.left > 0 {
		l.left--
		return nil, &nats.APIError{Code: 503, ErrorCode: l.code, Description: "unavailable"}
	}
	return l.JetStreamManager.GetLastMsg(stream, subject, opts...)
}

// leaderlessStreams does the same for who reads.
type leaderlessStreams struct {
	jetstream.JetStream
	left int
}

func (l *leaderlessStreams) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	if l.left > 0 {
		l.left--
		return nil, &jetstream.APIError{Code: 503, ErrorCode: jetstream.ErrorCode(nats.JSErrCodeJetStreamNotAvailable), Description: "unavailable"}
	}
	return l.JetStream.Stream(ctx, name)
}

// TestNoLeaderToRead: who reads what is on record waits likewise.
func TestNoLeaderToRead(t *testing.T) {
	t.Parallel()
	f := open(t, newServer(t, t.TempDir()), Config{Parts: PartPolicies})
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(1), Digest: "sha256:a"}))
	l := &leaderlessStreams{f.js, 1}
	f.js = l
	if p, err := f.Policies(t.Context()); err != nil || len(p.Accepted) != 1 || l.left > 0 {
		t.Errorf("%+v, %v, with %d refusals left", p, err, l.left)
	}
}

// TestNoLeader: who writes while a leader is elected waits for it until the context ends,
// or for setupTimeout where it has no end, and is told at once of what does not end by
// itself.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	f := open(t, newServer(t, t.TempDir()), Config{})
	current := f.records
	asks := func(left int, code nats.ErrorCode) *leaderless {
		l := &leaderless{current, left, code}
		f.records = l
		return l
	}
	const many = 1 << 30
	advertised := fedhttp.Advertisement{PolicyKey: key(1), Digest: "sha256:a"}
	l := asks(3, nats.JSErrCodeJetStreamNotAvailable)
	if err := f.Advertise(t.Context(), advertised); err != nil || l.left > 0 {
		t.Errorf("%v, with %d refusals left", err, l.left)
	}
	asks(many, nats.JSErrCodeJetStreamNotAvailable)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	var refusal *nats.APIError
	if err := f.Advertise(ctx, advertised); !errors.As(err, &refusal) || ctx.Err() == nil {
		t.Errorf("%v; the context: %v", err, ctx.Err())
	}
	if err := f.Advertise(t.Context(), advertised); !errors.As(err, &refusal) { // a context without an end
		t.Error(err)
	}
	l = asks(many, nats.JSErrCodeJetStreamNotEnabledForAccount)
	if err := f.Advertise(t.Context(), advertised); !errors.As(err, &refusal) || l.left != many-1 {
		t.Errorf("%v, after %d questions", err, many-l.left)
	}
}
