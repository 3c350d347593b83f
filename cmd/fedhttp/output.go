package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"
)

// output is where a response goes. A file is opened before anything is sent, and
// keeps what it has until there is a response.
type output struct {
	lockedWriter
	file  *os.File // nil: stdout
	fresh bool     // the file is ours, and has nothing yet
}

func (c *call) open() (*output, error) {
	if c.output == "" || c.output == "-" {
		return &output{lockedWriter: lockedWriter{to: c.std.out}}, nil
	}
	f, err := os.OpenFile(c.output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	fresh := err == nil
	if errors.Is(err, fs.ErrExist) {
		f, err = os.OpenFile(c.output, os.O_WRONLY|os.O_CREATE, 0o666)
	}
	if err != nil {
		return nil, err
	}
	return &output{lockedWriter: lockedWriter{to: f}, file: f, fresh: fresh}, nil
}

// begin makes room for a response.
func (o *output) begin() error {
	o.fresh = false
	if o.file == nil {
		return nil
	}
	info, err := o.file.Stat()
	if err != nil || !info.Mode().IsRegular() { // a device or a pipe
		return err
	}
	return o.file.Truncate(0)
}

// close ends it, and removes a file that no response has come for.
func (o *output) close() error {
	if o.file == nil {
		return nil
	}
	err := o.file.Close()
	if o.fresh {
		err = errors.Join(err, os.Remove(o.file.Name()))
	}
	return err
}

// lockedWriter lets several goroutines write to one place, and remembers the first
// failure.
type lockedWriter struct {
	to io.Writer

	mu  sync.Mutex
	err error
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.to.Write(p)
	if w.err == nil {
		w.err = err
	}
	return n, err
}

func (w *lockedWriter) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}
