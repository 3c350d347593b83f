package fednats

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/fedhttp/fedhttp"
)

// logBuffer is a log to read.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestHostileValues: what anybody may have written in the bucket makes nothing
// accepted, is reported, and takes nothing else along.
func TestHostileValues(t *testing.T) {
	t.Parallel()
	var log logBuffer
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{Logger: slog.New(slog.NewJSONHandler(&log, nil))})
	book := feed1(t, f)
	advertised := func(n int) fedhttp.PolicyKey {
		k := fedhttp.PolicyKey{Peer: fmt.Sprint("org-", n), Capability: "summarize", Epoch: 4}
		must(t, f.Advertise(t.Context(), fedhttp.Advertisement{PolicyKey: k, Digest: "sha256:a"}))
		wantBasis(t, book, k, "not_accepted")
		return k
	}
	good := func(k fedhttp.PolicyKey) policyValue { return newPolicyValue(k, "sha256:a", nil) }
	text := func(v any) []byte {
		b, err := json.Marshal(v)
		must(t, err)
		return b
	}
	until := time.Now().Add(time.Hour)
	put := func(name string, value []byte) {
		_, err := f.js.Publish(t.Context(), bucketSubject(f.names.policies())+name, value)
		must(t, err)
	}
	cases := map[string]func(k fedhttp.PolicyKey) (name string, value []byte){
		"nothing": func(k fedhttp.PolicyKey) (string, []byte) { v := good(k); return v.name(kindAccepted), nil },
		"no JSON": func(k fedhttp.PolicyKey) (string, []byte) {
			v := good(k)
			return v.name(kindAccepted), []byte("\x00\x1b[2J")
		},
		"half": func(k fedhttp.PolicyKey) (string, []byte) {
			v := good(k)
			return v.name(kindAccepted), text(v)[:20]
		},
		"two values": func(k fedhttp.PolicyKey) (string, []byte) {
			v := good(k)
			return v.name(kindAccepted), append(text(v), text(v)...)
		},
		"null": func(k fedhttp.PolicyKey) (string, []byte) { v := good(k); return v.name(kindAccepted), []byte("null") },
		"an unknown field": func(k fedhttp.PolicyKey) (string, []byte) {
			v := good(k)
			return v.name(kindAccepted), bytes.Replace(text(v), []byte("{"), []byte(`{"only_if":"x",`), 1)
		},
		"oversized": func(k fedhttp.PolicyKey) (string, []byte) {
			v := good(k)
			return v.name(kindAccepted), append(text(v), bytes.Repeat([]byte(" "), maxValue)...)
		},
		"another peer": func(k fedhttp.PolicyKey) (string, []byte) {
			v, other := good(k), good(fedhttp.PolicyKey{Peer: "org-x", Capability: k.Capability, Epoch: 4})
			return other.name(kindAccepted), text(v)
		},
		"another epoch": func(k fedhttp.PolicyKey) (string, []byte) {
			v, other := good(k), good(fedhttp.PolicyKey{Peer: k.Peer, Capability: k.Capability, Epoch: 5})
			return other.name(kindAccepted), text(v)
		},
		"another digest": func(k fedhttp.PolicyKey) (string, []byte) {
			v, other := good(k), newPolicyValue(k, "sha256:b", nil)
			return other.name(kindAccepted), text(v)
		},
		"an advertisement's key": func(k fedhttp.PolicyKey) (string, []byte) {
			v := good(k)
			v.Terms = &termsValue{}
			return v.name(kindAdvertised), text(v)
		},
		"an unknown kind": func(k fedhttp.PolicyKey) (string, []byte) { v := good(k); return v.name("ack"), text(v) },
		"a key that is longer": func(k fedhttp.PolicyKey) (string, []byte) {
			v := good(k)
			return v.name(kindAccepted) + ".x", text(v)
		},
		"an acceptance with an end": func(k fedhttp.PolicyKey) (string, []byte) {
			v := good(k)
			v.ExpiresAt = &until
			return v.name(kindAccepted), text(v)
		},
		"a negotiation without an end": func(k fedhttp.PolicyKey) (string, []byte) { v := good(k); return v.name(kindNegotiated), text(v) },
		"a withdrawn acceptance": func(k fedhttp.PolicyKey) (string, []byte) {
			v := good(k)
			v.Withdrawn = true
			return v.name(kindAccepted), text(v)
		},
		"a negative epoch": func(k fedhttp.PolicyKey) (string, []byte) {
			v := good(k)
			return v.name(kindAccepted), bytes.Replace(text(v), []byte(":4"), []byte(":-4"), 1)
		},
		"terms that are none": func(k fedhttp.PolicyKey) (string, []byte) {
			v := good(k)
			return v.name(kindAccepted), bytes.Replace(text(v), []byte("{"), []byte(`{"terms":["residency"],`), 1)
		},
		"no base64": func(k fedhttp.PolicyKey) (string, []byte) {
			v := good(k)
			return v.name(kindAccepted), bytes.Replace(text(v), []byte("sha256:a"), []byte(`\u0000base64:?`), 1)
		},
	}
	n, last := 0, uint64(0)
	for name, c := range cases {
		k := advertised(n)
		n++
		put(c(k))
		last++
		eventually(t, name+" is refused", func() bool { return f.Status().Refused == last })
		if got := basis(book, k); got != "not_accepted" && got != "not_advertised" {
			t.Errorf("%s: %s", name, got)
		}
	}
	if lines := strings.Count(log.String(), "a value was refused"); lines != refusalsPerMinute {
		t.Errorf("%d lines in the log, want %d and a count", lines, refusalsPerMinute)
	}
	if strings.ContainsAny(log.String(), "\x1b\x00") || !strings.Contains(log.String(), f.names.policies()) {
		t.Errorf("the log:\n%s", log.String())
	}

	// What took the place of something good counts as its end: here as in a replica
	// that starts now.
	k := advertised(n)
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: k, Digest: "sha256:a"}))
	wantBasis(t, book, k, "accepted sha256:a")
	v := good(k)
	put(v.name(kindAccepted), []byte("{"))
	wantBasis(t, book, k, "not_accepted")
	put(v.name(kindAdvertised), []byte("{"))
	wantBasis(t, book, k, "not_advertised")
	wantBasis(t, feed1(t, open(t, s, Config{})), k, "not_advertised")

	// An older epoch that was written past the writers.
	k = advertised(n + 1)
	must(t, f.Accept(t.Context(), fedhttp.Policy{PolicyKey: k, Digest: "sha256:a"}))
	k.Epoch = 3
	v = good(k)
	put(v.name(kindAdvertised), text(v))
	wantBasis(t, book, k, "not_advertised")
}

func TestHostileDenials(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{})
	l := f.Denials()
	d := denial("s")
	v := newDenialValue(d)
	value, err := encode(v)
	must(t, err)
	for n, c := range []struct{ name, value string }{
		{v.name(), "{"}, {v.name() + "0", string(value)}, {"den.org-c.summarize.x", string(value)}, {"xyz", string(value)},
		{"fgt.org-c", `{"peer":"org-b","at":"2026-01-01T00:00:00Z"}`},
		{v.name(), string(value) + strings.Repeat(" ", maxValue)},
	} {
		_, err := f.js.Publish(t.Context(), bucketSubject(f.names.denials())+c.name, []byte(c.value))
		must(t, err)
		eventually(t, c.name+" is refused", func() bool { return f.Status().Refused == uint64(n)+1 })
		if denied(l, d) {
			t.Errorf("%s: denied", c.name)
		}
	}
}

// TestServerRefusesOversized: a bucket of this package's takes none in the first
// place.
func TestServerRefusesOversized(t *testing.T) {
	t.Parallel()
	s := newServer(t, t.TempDir())
	f := open(t, s, Config{})
	terms := fedhttp.Terms{"x": strings.Repeat("x", maxValue)}
	if err := f.Accept(t.Context(), fedhttp.Policy{PolicyKey: key(1), Digest: "d", Terms: terms}); err == nil {
		t.Error("the writer takes it")
	}
	_, err := f.js.PublishMsg(t.Context(), &nats.Msg{Subject: bucketSubject(f.names.policies()) + "acc.x", Data: make([]byte, maxMessage+1)})
	if err == nil {
		t.Error("the server takes it")
	}
}
