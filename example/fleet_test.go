package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestMain is also the process of a server.
func TestMain(m *testing.M) {
	if cfg, ok := os.LookupEnv(serverEnv); ok {
		os.Exit(serveNATS(cfg, os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// runFleetJSON runs the command line on a folder that has to be empty in the end.
func runFleetJSON(t *testing.T, n string) (r fleetReport) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-fleet", n, "-json"}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &stderr)
	}
	dec := json.NewDecoder(&stdout)
	dec.DisallowUnknownFields()
	var seconds struct {
		fleetReport
		Seconds map[string]float64 `json:"seconds"`
	}
	if err := dec.Decode(&seconds); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return seconds.fleetReport
}

// TestFleet checks every figure. All are exact but what depends on which tasks were
// on their way: those that a rotated anchor drops, and what the replicas that are
// alone ask for.
func TestFleet(t *testing.T) {
	fedtest.CheckLeaks(t)
	got := runFleetJSON(t, "3")
	want := fleetReport{
		Replicas: 3, Copies: 3,
		Alone: fleetFigures{
			Denials: 3, Refused: 58, Dropped: got.Alone.Dropped, AnchorFetches: 3, Recovered: 60,
			Negotiations: got.Alone.Negotiations, Released: 60,
			DeniedAnew: 3, RefusedAnew: 57, NegotiatedAnew: got.Alone.NegotiatedAnew, RanAnew: 60,
		},
		Fleet: fleetFigures{
			Denials: 1, Refused: 60, Dropped: got.Fleet.Dropped, AnchorFetches: 1, Recovered: 60, Negotiations: 1, Released: 60,
			RefusedAnew: 60, RanAnew: 60, ServersStarted: 7,
		},
		Outage: outageFigures{
			RightPolicy: 60, Pending: 15, Spooled: 8, UnsignedAnswers: 15, EscalatedOnce: 15, Escalations: 15, EscalationsKept: 15,
			Denials: 9, RefusedAgain: 18,
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	for _, dropped := range []int{got.Alone.Dropped, got.Fleet.Dropped} {
		if dropped < 3 || dropped > 12 {
			t.Errorf("%d tasks were dropped after the rotation, want 3 to 12", dropped)
		}
	}
	got.Alone.Dropped, got.Fleet.Dropped = 12, 12 // the most
	if got.Alone.Negotiations < 3 || got.Alone.NegotiatedAnew < 3 {
		t.Errorf("%+v: fewer negotiations than replicas", got.Alone)
	}
	got.Alone.Negotiations, got.Alone.NegotiatedAnew = 3, 3
	checkFleetMissed(t, got)
}

// TestFleetOfOne: a server in the process keeps everything too.
func TestFleetOfOne(t *testing.T) {
	fedtest.CheckLeaks(t)
	got := runFleetJSON(t, "1")
	want := fleetReport{
		Replicas: 1, Copies: 1,
		Alone: fleetFigures{
			Denials: 1, Refused: 20, Dropped: got.Alone.Dropped, AnchorFetches: 1, Recovered: 20,
			Negotiations: got.Alone.Negotiations, Released: 20,
			DeniedAnew: 1, RefusedAnew: 19, NegotiatedAnew: got.Alone.NegotiatedAnew, RanAnew: 20,
		},
		Fleet: fleetFigures{
			Denials: 1, Refused: 20, Dropped: got.Fleet.Dropped, AnchorFetches: 1, Recovered: 20, Negotiations: 1, Released: 20,
			RefusedAnew: 20, RanAnew: 20, ServersStarted: 2,
		},
		Outage: outageFigures{
			RightPolicy: 20, Pending: 5, UnsignedAnswers: 5, EscalatedOnce: 5, Escalations: 5, EscalationsKept: 5, Denials: 3,
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

// checkFleetMissed checks that each figure that is another is named.
func checkFleetMissed(t *testing.T, r fleetReport) {
	t.Helper()
	if missed := r.missed(); missed != nil {
		t.Errorf("%q", missed)
	}
	for _, figures := range []any{&r.Alone, &r.Fleet, &r.Outage} {
		v := reflect.ValueOf(figures).Elem()
		for i := range v.NumField() {
			tag := v.Type().Field(i).Tag.Get("json")
			if tag == "" {
				continue
			}
			change := int64(1)
			if figures == any(&r.Alone) && strings.HasPrefix(tag, "negotiations") {
				change = -1 // there may be more
			}
			v.Field(i).SetInt(v.Field(i).Int() + change)
			if missed := r.missed(); len(missed) != 1 || !strings.Contains(missed[0], "."+tag+" is ") {
				t.Errorf("%s: %q", tag, missed)
			}
			v.Field(i).SetInt(v.Field(i).Int() - change)
		}
	}
}

func TestFleetText(t *testing.T) {
	t.Parallel()
	ms := elapsed(2345 * time.Microsecond)
	r := fleetReport{
		Replicas: 3, Copies: 3, Alone: fleetFigures{Denials: 31}, Fleet: fleetFigures{Denials: 32, Released: 33},
		Outage: outageFigures{Escalations: 34, Spooled: 35}, Seconds: fleetTimes{DenialKnown: ms, LastReleased: ms, AllKnown: elapsed(5 * time.Second)},
	}
	var out bytes.Buffer
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, line := range []string{
		"A FLEET 3 of A's replicas", "the fleet stores: 3.", "denials of one scope 31 32 B's policy ledger",
		"knew of the denial 2.3 ms after", "the last of 33 held tasks reached B 2.3 ms after", "after 5.0 s.",
		"A SERVER IS KILLED that of replica 3", "35 of its", "their escalations: on record 34 the fleet",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, &out)
		}
	}
}

// TestFleetInterrupted checks that a fleet that is broken off leaves nothing behind:
// as it begins, while its servers start, and while it is at work. (A NATS server
// that is closed while it starts leaves goroutines of its own.)
func TestFleetInterrupted(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, step := range []string{"replicas alone", "its servers", "a server is killed"} {
		ctx, cancel := context.WithCancel(t.Context())
		var stdout bytes.Buffer
		stderr := &interrupter{at: step, cancel: cancel}
		if code := run(ctx, []string{"-fleet", "3"}, &stdout, stderr); code != 1 {
			t.Errorf("%s: exit code %d, want 1", step, code)
		}
		cancel()
		if stdout.Len() > 0 || !strings.Contains(stderr.String(), "example: ") {
			t.Errorf("%s: stdout %q, stderr %q", step, &stdout, stderr.String())
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", step, left, err)
		}
	}
}

// TestServerApart: what keeps a server of its own process from starting is told.
func TestServerApart(t *testing.T) {
	fedtest.CheckLeaks(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addresses, err := freeAddresses(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	s := &natsServer{apart: true, cfg: serverConfig{Dir: t.TempDir(), Name: "replica-9", Cluster: taken.Addr().String(), Listen: addresses[0],
		Routes: []string{"nats-route://" + addresses[1]}}}
	if err := s.start(t.Context()); err == nil || !strings.Contains(err.Error(), "the server of replica-9 has not started: example: fednats: ") {
		t.Errorf("started: %v", err)
	}
	s.stop()

	s.cfg.Cluster = addresses[0]
	s.cfg.Listen = addresses[2]
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	process := s.process
	if err := s.kill(); err != nil || process.ProcessState.String() != "signal: killed" || s.runs() {
		t.Errorf("killed: %v, %v", err, process.ProcessState)
	}

	var stderr bytes.Buffer
	if code := serveNATS("{", strings.NewReader(""), io.Discard, &stderr); code != 1 || stderr.Len() == 0 {
		t.Errorf("exit code %d, stderr %q", code, &stderr)
	}
}

// interrupter is a stderr that breaks off the run at a step.
type interrupter struct {
	at     string
	cancel func()
	mu     sync.Mutex
	all    bytes.Buffer
}

func (i *interrupter) Write(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.all.Write(p)
	if bytes.Contains(p, []byte(i.at)) {
		i.cancel()
	}
	return len(p), nil
}

func (i *interrupter) String() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.all.String()
}
