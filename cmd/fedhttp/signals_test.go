package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fedhttp/fedhttp/fedtest"
)

// TestSignalWhileReading: what waits for an input that does not come is ended by the first
// signal.
func TestSignalWhileReading(t *testing.T) {
	t.Parallel()
	peers := write(t, "peers.yaml", onePeer)
	for name, args := range map[string][]string{
		"explain": {"explain", "-peers", peers, "-"},
		"post":    {"post", "-peers", peers, "-d", "@-", "https://registry.b.example/"},
		"cacert":  {"get", "-peers", peers, "-cacert", "/dev/stdin", "https://registry.b.example/"},
		"creds":   {"escalations", "-nats", "nats://127.0.0.1:1", "-creds", "/dev/stdin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := exec.CommandContext(t.Context(), os.Args[0], args...)
			program.Env = append(os.Environ(), asProgram+"=1")
			in, err := program.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := program.Start(); err != nil {
				t.Fatal(err)
			}
			defer time.AfterFunc(patience, func() { _ = program.Process.Kill() }).Stop()
			if _, err := in.Write(make([]byte, 1<<20)); err != nil { // more than a pipe holds: it is being read
				t.Fatal(err)
			}
			if err := program.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			var ended *exec.ExitError
			if err := program.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
				t.Errorf("it was not ended by the signal: %v", err)
			}
		})
	}
}

// TestHangup: a gateway whose terminal is closed stops as for any other signal, unless
// whoever has started it wants it to go on.
func TestHangup(t *testing.T) {
	t.Parallel()
	peer := newPeer(t, fedtest.Config{})
	peers := peersOf(t, peer)
	p := startProgram(t, nil, "-peers", peers)
	p.end(t, syscall.SIGHUP)
	if !strings.Contains(p.logs.String(), "msg=stopping") {
		t.Errorf("%s", p.logs)
	}

	arrived, release := make(chan bool), make(chan bool)
	peer.Otherwise(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		_, _ = io.WriteString(w, "whole")
	})
	p = startAs(t, exec.CommandContext(t.Context(), need(t, "nohup"), os.Args[0], "proxy", "-listen", "127.0.0.1:0", "-peers", peers), nil)
	got := make(chan string, 1)
	get := func(path string) string {
		resp, err := http.Get(p.url + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	go func() { got <- get("/org-b/") }()
	<-arrived
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if body := get(healthPath); body != "ok\n" {
		t.Errorf("%s", body)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil { // the first one to it, so that the call ends
		t.Fatal(err)
	}
	eventually(t, func() bool { return strings.Contains(p.logs.String(), "msg=stopping") })
	close(release)
	if body := <-got; body != "whole" {
		t.Errorf("%s", body)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("%v: %s", err, p.logs)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestLostOutput: a command whose output is lost has failed.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	peers := write(t, "peers.yaml", onePeer)
	answer := write(t, "answer", "HTTP/1.1 403 x\r\n\r\n")
	for _, args := range [][]string{
		{"check", peers}, {"explain", "-peers", peers, answer}, {"explain", "-json", "-peers", peers, answer}, {"completion", "bash"}, {"-help"},
		{"proxy", "-peers", peers, "-listen", "127.0.0.1:0"},
	} {
		var errs bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		code := run(ctx, args, streams{strings.NewReader(""), full{}, &errs})
		cancel()
		if code != exitFailed || !strings.Contains(errs.String(), "fedhttp: no space left on device\n") {
			t.Errorf("%q: exit code %d, want %d: %s", args, code, exitFailed, &errs)
		}
	}
	peer := newPeer(t, fedtest.Config{})
	peer.Otherwise(fedtest.Deny("SCOPE_NARROWED"))
	var errs bytes.Buffer
	code := run(t.Context(), []string{"get", "-peers", peersOf(t, peer), peer.URL}, streams{strings.NewReader(""), full{}, &errs})
	if code != 10 || !strings.Contains(errs.String(), "; and no space left on device\n") {
		t.Errorf("exit code %d, want that of the decision: %s", code, &errs)
	}
}
