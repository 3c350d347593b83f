package fednats

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestOpenFails: what does not end by itself ends Open at once, and the error names
// the field and what helps.
func TestOpenFails(t *testing.T) {
	t.Parallel()
	s := newNetServer(t, t.TempDir(), "127.0.0.1:0")
	js, err := jetstream.New(connect(t, s))
	must(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "another", Subjects: []string{"taken.escalations.*"}})
	must(t, err)
	_, err = js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "theirs-policies"})
	must(t, err)
	for _, c := range []struct {
		cfg  Config
		want []string
	}{
		{Config{URL: s.URL(), Replicas: 3}, []string{"set Config.Replicas to 1"}},
		{Config{URL: s.URL(), Prefix: "taken"}, []string{"stream taken-escalations", "set Config.Prefix"}},
		{Config{URL: s.URL(), Prefix: "theirs"}, []string{"bucket theirs-policies", "allow_msg_ttl"}},
		{Config{URL: "nats://127.0.0.1, http://u:hunter2@127.0.0.1"}, []string{"Config.URL: the scheme of the 2."}},
		{Config{URL: "nats://u:hunter2@:4222"}, []string{"Config.URL: the 1. has no host"}},
	} {
		f, err := Open(t.Context(), c.cfg)
		if err == nil {
			closeFleet(t, f)
			t.Errorf("%+v: no error", c.cfg)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v; want %q", err, want)
			}
		}
	}
}

// TestOpenUnreached: with servers that are not there, or say nothing, Open ends with its
// context, and says why as far as it knows.
func TestOpenUnreached(t *testing.T) {
	t.Parallel()
	var servers []string // each is waited for for 2 s
	for range within / time.Second {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		servers = append(servers, "nats://u:hunter2@"+l.Addr().String())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	time.AfterFunc(200*time.Millisecond, func() { cancel(over) })
	opened := make(chan error, 1)
	go func() {
		_, err := Open(ctx, Config{URL: strings.Join(servers, ",")})
		opened <- err
	}()
	select {
	case err := <-opened:
		if !errors.Is(err, over) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("silent: %v", err)
		}
	case <-time.After(within):
		t.Error("Open still waits for servers that say nothing")
	}

	ctx, cancel = context.WithCancelCause(t.Context())
	dialer := &countingDialer{at: 3, then: func() { cancel(over) }} // the second refusal is on record
	_, err := Open(ctx, Config{URL: "nats://u:hunter2@" + freeAddress(t), Options: []nats.Option{nats.SetCustomDialer(dialer)}})
	if !errors.Is(err, over) || !strings.Contains(err.Error(), "refused") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("refused: %v", err)
	}
}

// countingDialer does something when it is asked for a connection the so manieth time.
type countingDialer struct {
	dials atomic.Int32
	at    int32
	then  func()
}

func (d *countingDialer) Dial(network, address string) (net.Conn, error) {
	if d.dials.Add(1) == d.at {
		d.then()
	}
	return net.Dial(network, address)
}
