package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestWire checks what the servers counted, and both ways to print it.
func TestWire(t *testing.T) {
	fedtest.CheckLeaks(t)
	const limit = time.Second // long enough for go-retryablehttp to give up
	var stdout, stderr bytes.Buffer
	missed, err := reportWire(t.Context(), limit, true, &stdout, &stderr)
	if err != nil || len(missed) > 0 {
		t.Fatalf("error %v, not as promised: %q", err, missed)
	}
	var got struct {
		Go    string    `json:"go"`
		Limit float64   `json:"plain_limit_seconds"`
		Rows  []wireRow `json:"rows"`
	}
	dec := json.NewDecoder(&stdout)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if dec.More() || got.Go != runtime.Version() || got.Limit != limit.Seconds() {
		t.Errorf("got %s with a limit of %v s, and more: %v", got.Go, got.Limit, dec.More())
	}

	const often = -1 // as often as the time allows, but more than once
	want := []struct {
		name                  string
		plain, fedhttp        int64
		plainSays, fedhttpErr string
	}{
		{"HTTP/1 GET, 1 pooled", 2, 1, "EOF", "ambiguous"},
		{"HTTP/1 GET, 5 pooled", 6, 1, "EOF", "ambiguous"},
		{"HTTP/1 GET, 20 pooled", 21, 1, "EOF", "ambiguous"},
		{"HTTP/1 POST with a key", 2, 1, "EOF", "ambiguous"},
		{"HTTP/2 PROTOCOL_ERROR", often, 1, "stopped after 1s", "ambiguous"},
		{"HTTP/2 GOAWAY", often, 1, "stopped after 1s", "ambiguous"},
		{"HTTP/2 REFUSED_STREAM", often, 1, "stopped after 1s", "ambiguous"},
		{"HTTP/2 refusal, trusted", often, 2, "stopped after 1s", "routing_failed"},
		{"go-retryablehttp", 5, 1, "EOF", "ambiguous"},
	}
	if len(got.Rows) != len(want) {
		t.Fatalf("%d rows, want %d", len(got.Rows), len(want))
	}
	for i, w := range want {
		r := got.Rows[i]
		if r.Name != w.name {
			t.Errorf("row %d is %q, want %q", i, r.Name, w.name)
		}
		if n := r.Plain.Deliveries; n < 2 || w.plain != often && n != w.plain {
			t.Errorf("%s: %d deliveries with %s, want %d (%d: often)", w.name, n, r.Stock, w.plain, often)
		}
		if r.Fedhttp.Deliveries != w.fedhttp {
			t.Errorf("%s: %d deliveries with fedhttp, want %d", w.name, r.Fedhttp.Deliveries, w.fedhttp)
		}
		if r.Plain.Error != w.plainSays || r.Fedhttp.Error != w.fedhttpErr {
			t.Errorf("%s: the clients say %q and %q, want %q and %q", w.name, r.Plain.Error, r.Fedhttp.Error, w.plainSays, w.fedhttpErr)
		}
		if progress := stderr.String(); !strings.Contains(progress, w.name+" ") {
			t.Errorf("the progress is %q, without %q", progress, w.name)
		}
	}

	var table bytes.Buffer
	if err := printWire(&table, limit, got.Rows); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		", 20 connections pooled | 21 (EOF) | 1 (ambiguous) |\n",
		" (stopped after 1s) | 2 (routing_failed) |\n",
		"(default policy, shorter waits) in the place of net/http | 5 (EOF) | 1 (ambiguous) |\n",
	} {
		if !strings.Contains(table.String(), line) {
			t.Errorf("no %q in\n%s", line, &table)
		}
	}
	if n := strings.Count(table.String(), "\n|"); n != len(want)+1 {
		t.Errorf("%d lines of the table below its head, want %d", n, len(want)+1)
	}
}

// TestWireMissed checks that a promise that fedhttp does not keep is named.
func TestWireMissed(t *testing.T) {
	t.Parallel()
	var rows []wireRow
	for _, c := range wireCases {
		rows = append(rows, wireRow{Name: c.name, Fedhttp: wireCount{Deliveries: 1}})
	}
	const want = "HTTP/2 refusal, trusted: fedhttp delivered it 1 times, want 2"
	if missed := missedOnWire(rows); len(missed) != 1 || missed[0] != want {
		t.Errorf("got %q, want only %q", missed, want)
	}
	var stderr bytes.Buffer
	if code := exitCode(&stderr, []string{want}, nil); code != 1 || !strings.Contains(stderr.String(), want) {
		t.Errorf("exit code %d, stderr %q", code, &stderr)
	}
}

// TestWireCountsAll checks that the count sees what comes when the client has
// long returned: it is what every figure rests on.
func TestWireCountsAll(t *testing.T) {
	fedtest.CheckLeaks(t)
	for try := 1; ; try++ {
		counted, err := sendLate(t)
		if errors.Is(err, syscall.ECONNREFUSED) && try < 100 {
			continue // too late: this machine has other things to do
		}
		if errorKind(err) != "EOF" || counted != 1 {
			t.Errorf("counted %d, and the client says %v", counted, err)
		}
		return
	}
}

// startStock starts a case's server, for the caller to close, and makes net/http's client
// of it.
func startStock(t *testing.T, c wireCase) (server *wireServer, client *http.Client, end func()) {
	t.Helper()
	server, err := startWire(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if client, end, err = newStock(c, server); err != nil {
		server.close()
		t.Fatal(err)
	}
	return server, client, end
}

// sendLate sends a request while the server is being drained.
func sendLate(t *testing.T) (counted int64, err error) {
	t.Helper()
	c := wireCases[0]
	server, client, end := startStock(t, c)
	defer server.close()
	late := make(chan error, 1)
	time.AfterFunc(20*time.Millisecond, func() { late <- c.send(context.Background(), client, server.url) })
	if err := server.drain(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	err = <-late
	return server.whole.Load(), err
}

// TestWireLateGoAway checks that the count comes to an end where a GOAWAY meets a
// request that the client has just given up, as it can when the time is over.
func TestWireLateGoAway(t *testing.T) {
	fedtest.CheckLeaks(t)
	for range 20 { // net/http gives up in the background: not each is late
		counted, err := giveUpBeforeGoAway(t)
		if counted != 1 || !errors.Is(err, context.Canceled) {
			t.Fatalf("counted %d, and the client says %v", counted, err)
		}
	}
}

func giveUpBeforeGoAway(t *testing.T) (counted int64, err error) {
	t.Helper()
	sending, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	gaveUp := make(chan struct{})
	c := wireCase{method: http.MethodPost, answer: func(stream uint32) []byte {
		giveUp()
		<-gaveUp
		return goAway(stream)
	}}
	server, client, end := startStock(t, c)
	defer server.close()
	err = c.send(sending, client, server.url)
	close(gaveUp)
	draining, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.drain(draining, end); err != nil {
		t.Fatalf("the connection does not end: %v", err)
	}
	return server.whole.Load(), err
}

func TestWireInterrupted(t *testing.T) {
	fedtest.CheckLeaks(t)
	for _, args := range [][]string{{"-wire"}, {"-wire", "-json"}} {
		for _, after := range []time.Duration{0, 30 * time.Millisecond, 900 * time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			var stdout, stderr bytes.Buffer
			if code := run(ctx, args, &stdout, &stderr); code != 1 {
				t.Errorf("%q after %v: exit code %d, want 1", args, after, code)
			}
			cancel()
			if stdout.Len() > 0 || !strings.Contains(stderr.String(), "example: ") {
				t.Errorf("%q after %v: stdout %q, stderr %q", args, after, &stdout, &stderr)
			}
		}
	}
}
