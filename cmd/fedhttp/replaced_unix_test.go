//go:build unix

package main

import (
	"path/filepath"
	"syscall"
	"testing"
)

// TestPipes: a pipe would keep the program waiting, and has nothing to be read again.
func TestPipes(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	peers := write(t, "peers.yaml", onePeer)
	for _, flag := range []string{"-policies", "-anchors"} {
		runWith(t, "", "get", "-peers", peers, flag, pipe, "https://b.example/").want(t, exitFailed, "pipe.yaml is no regular file")
	}
}
