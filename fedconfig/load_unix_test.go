//go:build unix

package fedconfig_test

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/fedhttp/fedhttp/fedconfig"
)

// TestLoadPipe: a pipe that nobody writes to does not keep Load waiting.
func TestLoadPipe(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fedconfig.Load(path); err == nil {
		t.Error("no error")
	}
}
