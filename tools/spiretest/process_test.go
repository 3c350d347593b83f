package spiretest

import (
	"bytes"
	"context"
	"flag"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

var programs = flag.String("spire", "../../bin/spire", "the `folder` of spire-server and spire-agent, which tools/spire/build makes")

func program(name string) string { return filepath.Join(*programs, name) }

const startTimeout = time.Minute

// process is a program that runs until the test ends.
type process struct {
	name  string
	log   logBuffer
	ended chan struct{} // closed when it has ended
	err   error         // why; valid once ended is closed
}

// start starts a program. It is killed when the test ends, and on Linux with this
// process, however that ends. Its log is shown where the test fails.
func start(t *testing.T, name, path string, args ...string) *process {
	t.Helper()
	p := &process{name: name, ended: make(chan struct{})}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	cmd.WaitDelay = time.Second
	endWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v (make test-spire builds it)", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
		if t.Failed() {
			t.Logf("%s said:\n%s", name, p.log.String())
		}
	})
	return p
}

// await returns once check has no error.
func (p *process) await(ctx context.Context, t *testing.T, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-p.ended:
			t.Fatalf("%s ended before it was ready: %v", p.name, p.err)
		case <-ctx.Done():
			t.Fatalf("%s is not ready after %v: %v", p.name, startTimeout, err)
		}
	}
}

// eventually polls until check has no error.
func eventually(ctx context.Context, t *testing.T, what string, check func() error) {
	t.Helper()
	const limit = 2 * time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: not after %v: %v", what, limit, err)
		}
	}
}

// logBuffer is written by the process and read by the test.
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
