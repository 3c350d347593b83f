package main

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestTLS runs the incident in which the stale anchor is an authority that B has
// rotated: the handshake fails, one fetch of the bundle mends it for all, and each
// task is delivered once.
func TestTLS(t *testing.T) {
	fedtest.CheckLeaks(t)
	traces := newTraces()
	defer traces.close()
	run := func(newClient makeClient) (boundaryFigures, boundaryExtras) {
		t.Helper()
		o, err := newTLSBoundary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f, x, err := runBoundary(t.Context(), o, newClient)
		if err != nil {
			t.Fatal(err)
		}
		return f, x
	}
	naive, x := run(newNaive)
	if want := (boundaryFigures{Tasks: 200, PolicyEvaluations: 480, Denials: 480, MaxSendsPerDeniedTask: 4, Quarantined: true}); naive != want {
		t.Errorf("stock client:\n%+v, want\n%+v", naive, want)
	}
	if x.brokenOff != droppedTasks {
		t.Errorf("the stock client broke off %d handshakes, want %d", x.brokenOff, droppedTasks)
	}

	got, x := run(fedhttpClient(traces, nil))
	want := boundaryFigures{
		Tasks: 200, PolicyEvaluations: droppedTasks + got.Denials, Denials: got.Denials, MaxSendsPerDeniedTask: 1,
		RefusedLocally: deniedTasks - got.Denials, Recovered: droppedTasks, AnchorRefreshes: 1,
	}
	if got != want || got.Denials < deniedScopes || got.Denials >= deniedScopes+boundaryCalls {
		t.Errorf("fedhttp:\n%+v, want\n%+v", got, want)
	}
	if x.brokenOff == 0 || x.brokenOff > boundaryCalls {
		t.Errorf("fedhttp broke off %d handshakes, want one for each of the tasks on their way then, 1 to %d", x.brokenOff, boundaryCalls)
	}
	if want := droppedTasks + got.Denials; x.sends != want || x.dropped != 0 {
		t.Errorf("%d requests reached B and %d were dropped, want %d and 0: each task once", x.sends, x.dropped, want)
	}
}

func TestTLSReport(t *testing.T) {
	fedtest.CheckLeaks(t)
	var out bytes.Buffer
	if code := run(t.Context(), []string{"-tls", "-json"}, &out, io.Discard); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	var figures struct{ Boundary pair[boundaryFigures] }
	if err := json.Unmarshal(out.Bytes(), &figures); err != nil || figures.Boundary.Fedhttp.Recovered != droppedTasks {
		t.Errorf("%s: %v", out.Bytes(), err)
	}
	out.Reset()
	if code := run(t.Context(), []string{"-tls"}, &out, io.Discard); code != 0 || !bytes.Contains(out.Bytes(), []byte("handshakes that A broke off")) {
		t.Errorf("exit code %d:\n%s", code, out.Bytes())
	}
}
