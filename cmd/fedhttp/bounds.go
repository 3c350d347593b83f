package main

import (
	"fmt"
	"io"
	"os"
)

// What a flag names is read into memory, and may be a device or a pipe that never ends.
const (
	// maxFile bounds the files of policies, anchors and credentials, in bytes: room for
	// thousands of entries.
	maxFile = 1 << 20
	// maxPEM bounds a file of certificates or of a key. The public web's authorities, with
	// the text that tools write beside each, are about 1 MiB.
	maxPEM = 16 << 20
	// maxData bounds a file that is sent. It is kept, as it may have to be sent again.
	maxData = 64 << 20
	// maxInput bounds a file that is explained; a HAR file may be large.
	maxInput = 64 << 20
)

// readAll reads in, which is called name, to its end. One that is larger than limit bytes is
// an error with the remedy.
func readAll(in io.Reader, name string, limit int64, remedy string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err == nil && int64(len(data)) > limit {
		return nil, fmt.Errorf("%s is larger than %d bytes; %s", name, limit, remedy)
	}
	return data, err
}

// readPath is readAll for a file.
func readPath(path string, limit int64, remedy string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, path, limit, remedy)
}
