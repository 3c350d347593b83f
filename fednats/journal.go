package fednats

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
)

// journal keeps an outbox on disk: a line for each item, in their order. Items that
// are done with stay in the file until it can be cut, and are published again if
// the process ends before that; the cluster knows them by their ids.
//
// What is appended survives the process at once. It survives the machine when it
// is synced, which it is once it has to wait. It belongs to one goroutine. A nil
// journal keeps nothing.
type journal struct {
	path    string
	log     *slog.Logger
	file    *os.File
	written int // how many of the queue's first items the file has
	dead    int // how many others
	failed  bool
	dirty   bool
}

// openJournal returns the items that an earlier process has left, and how many of
// them could not be read.
func openJournal(dir, name string, log *slog.Logger) (j *journal, items []item, damaged int, err error) {
	path := filepath.Join(dir, name+".spool")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, 0, err
	}
	items, damaged, err = readItems(file)
	if err != nil {
		file.Close()
		return nil, nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	j = &journal{path: path, log: log, file: file}
	if err := j.rewrite(items); err != nil { // without what could not be read
		j.file.Close()
		return nil, nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	return j, items, damaged, nil // rewrite has counted them as written
}

const maxLine = 8 << 20

func readItems(r io.Reader) (items []item, damaged int, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for lines.Scan() {
		var i item
		if unmarshalLine(lines.Bytes(), &i) {
			items = append(items, i)
		} else {
			damaged++ // the last one may have been cut off by the end of the process
		}
	}
	return items, damaged, lines.Err()
}

func marshalLine(b []byte, i *item) []byte {
	text, err := json.Marshal(i)
	if err != nil {
		return b // cannot be: an item has strings, bytes and a time
	}
	b = fmt.Appendf(b, "%08x ", crc32.ChecksumIEEE(text))
	return append(append(b, text...), '\n')
}

func unmarshalLine(line []byte, i *item) bool {
	sum, text, ok := bytes.Cut(line, []byte(" "))
	want, err := strconv.ParseUint(string(sum), 16, 32)
	return ok && err == nil && uint32(want) == crc32.ChecksumIEEE(text) && json.Unmarshal(text, i) == nil
}

// append writes the items that the file does not have.
func (j *journal) append(from func(n int) []item) {
	if j == nil {
		return
	}
	items := from(j.written)
	if len(items) == 0 {
		return
	}
	var b []byte
	for n := range items {
		b = marshalLine(b, &items[n])
	}
	if _, err := j.file.Write(b); err != nil {
		// A part of it may be there, which the next try would come after.
		j.report(errors.Join(err, j.rewrite(from(0)[:j.written])))
		return
	}
	j.written += len(items)
	j.failed, j.dirty = false, true
}

func (j *journal) sync() {
	if j == nil || !j.dirty {
		return
	}
	if err := j.file.Sync(); err != nil {
		j.report(err)
		return
	}
	j.dirty = false
}

// forget drops the queue's first items, of which left are not done with.
func (j *journal) forget(removed, left int, from func(n int) []item) {
	if j == nil {
		return
	}
	inFile := min(removed, j.written)
	j.written -= inFile
	j.dead += inFile
	var err error
	switch {
	case j.dead == 0:
	case left == 0 || j.written == 0:
		err = j.truncate()
	case j.dead > 1000 && j.dead > j.written:
		err = j.rewrite(from(0)[:j.written])
	}
	if err != nil {
		j.report(err)
	}
}

func (j *journal) truncate() error {
	if err := j.file.Truncate(0); err != nil {
		return err
	}
	_, err := j.file.Seek(0, io.SeekStart)
	j.written, j.dead, j.dirty = 0, 0, false
	return err
}

// rewrite puts a file with the items in the place of the one that is there.
func (j *journal) rewrite(items []item) error {
	next, err := os.OpenFile(j.path+".new", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	var b []byte
	for n := range items {
		b = marshalLine(b, &items[n])
	}
	_, err = next.Write(b)
	if err == nil {
		err = next.Sync()
	}
	if err == nil {
		err = os.Rename(next.Name(), j.path)
	}
	if err != nil {
		next.Close()
		return err
	}
	j.file.Close()
	j.file, j.written, j.dead, j.dirty = next, len(items), 0, false
	if dir, err := os.Open(filepath.Dir(j.path)); err == nil {
		_ = dir.Sync() // not every system can
		dir.Close()
	}
	return nil
}

// report logs the first of failures in a row: what cannot be written is kept in
// memory, and tried again.
func (j *journal) report(err error) {
	if !j.failed {
		j.log.Error("fednats: the spool cannot be kept on disk", slog.String("error", err.Error()))
	}
	j.failed = true
}

func (j *journal) close() {
	if j != nil {
		j.sync()
		j.file.Close()
	}
}
