//go:build unix && !aix && !solaris && !illumos

package fednats

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockDir keeps other processes out of a spool for as long as this one lives.
func lockDir(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s is in use by another process: %w", dir, err)
	}
	return func() { file.Close() }, nil
}
