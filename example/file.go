package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// pendingFile takes its place at path when it is whole: nobody reads half of
// it, and a job that fails leaves the file of the one before.
type pendingFile struct {
	*os.File
	path string
}

// createFile begins a file. What stands in its way is found here, before the
// job has run. The caller calls discard, whether it has called commit or not.
func createFile(path string) (*pendingFile, error) {
	switch info, err := os.Lstat(path); {
	case err == nil && !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	f, err := os.OpenFile(path+"."+rand.Text()[:8]+".tmp", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, err
	}
	return &pendingFile{f, path}, nil
}

// commit puts the file in its place.
func (f *pendingFile) commit() error {
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), f.path)
}

// discard removes what was not committed.
func (f *pendingFile) discard() {
	_ = f.Close()
	_ = os.Remove(f.Name()) // after commit there is none of that name
}
