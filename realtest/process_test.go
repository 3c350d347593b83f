package realtest

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// binary finds a program of Debian's. Without it the test is skipped, and in CI,
// which installs it, it fails.
func binary(t *testing.T, name string) string {
	t.Helper()
	for _, path := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	text := fmt.Sprintf("%s is not installed (Debian: apt-get install %[1]s); this test needs the real one", name)
	if os.Getenv("CI") == "true" {
		t.Fatal(text)
	}
	t.Skip(text)
	return ""
}

// freePorts returns n addresses on loopback where nobody listens just now.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	addrs := make([]string, n)
	for i := range addrs {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // all at once, so that they differ
		addrs[i] = l.Addr().String()
	}
	return addrs
}

// start runs a server with the configuration that config makes for n addresses,
// and returns those once it listens on them. Somebody else may take an address in
// between: then it tries others. The process is killed at the end of the test,
// and by the kernel should this one die.
func start(t *testing.T, path string, n int, args func(file string, addrs []string) []string, config func(dir string, addrs []string) string) []string {
	t.Helper()
	var said string
	for range 5 {
		addrs, dir := freePorts(t, n), t.TempDir()
		file := filepath.Join(dir, "server.conf")
		if err := os.WriteFile(file, []byte(config(dir, addrs)), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		cmd := exec.Command(path, args(file, addrs)...)
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.SysProcAttr = dieWithParent()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() {
			_ = cmd.Wait()
			close(over)
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			<-over
			if t.Failed() {
				t.Logf("%s said:\n%s", path, out.String())
			}
		})
		if listens(addrs, over) {
			return addrs
		}
		_ = cmd.Process.Kill()
		<-over
		said = out.String()
	}
	t.Fatalf("%s does not start:\n%s", path, said)
	return nil
}

// listens waits until somebody listens on every address, and reports false where
// the process is over or does not come to it.
func listens(addrs []string, over <-chan struct{}) bool {
	deadline := time.After(20 * time.Second)
	for _, addr := range addrs {
		for {
			conn, err := net.Dial("tcp", addr)
			if err == nil {
				conn.Close()
				break
			}
			select {
			case <-over:
				return false
			case <-deadline:
				return false
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	select {
	case <-over: // it was somebody else who listens
		return false
	default:
		return true
	}
}
