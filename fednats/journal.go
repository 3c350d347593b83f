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
// What is appended survives the process. It survives the machine when it
// is synced, which it is once it has to wait. It belongs to one goroutine. A nil
// journal keeps nothing.
type journal struct {
	path    string
	log     *slog.Logger
	file    *os.File
	written int   // how many of the queue's first items the file has
	dead    int   // how many others
	size    int64 // of the file, without what was not written whole
	torn    bool  // there may be something after size
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

// readItems counts as damaged what is no line of a journal, also one that never ends.
func readItems(r io.Reader) (items []item, damaged int, err error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := readLine(lines)
		if err == nil || len(line) > 0 {
			var i item
			if len(line) <= maxLine && unmarshalLine(line, &i) {
				items = append(items, i)
			} else {
				damaged++ // the last one may have been cut off by the end of the process
			}
		}
		if errors.Is(err, io.EOF) {
			return items, damaged, nil
		}
		if err != nil {
			return nil, 0, err
		}
	}
}

// readLine returns a line without its end, and of one that is too long somewhat more
// than maxLine bytes.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line) <= maxLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return bytes.TrimSuffix(line, []byte("\n")), err
		}
	}
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
	if err := j.write(b); err != nil {
		j.report(err)
		return
	}
	j.written += len(items)
	j.failed, j.dirty = false, true
}

// write leaves nothing behind that a line would come after, should only a part of it
// find room: at the latest when it is called again.
func (j *journal) write(b []byte) error {
	if j.torn {
		if err := j.truncate(j.size); err != nil {
			return err
		}
	}
	n, err := j.file.Write(b)
	if err != nil {
		j.torn = true
		return errors.Join(err, j.truncate(j.size))
	}
	j.size += int64(n)
	return nil
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
		err = j.empty()
	case j.dead > 1000 && j.dead > j.written:
		err = j.rewrite(from(0)[:j.written])
	}
	if err != nil {
		j.report(err)
	}
}

// empty drops everything.
func (j *journal) empty() error {
	if err := j.truncate(0); err != nil {
		return err
	}
	j.written, j.dead, j.dirty = 0, 0, false
	return nil
}

func (j *journal) truncate(size int64) error {
	err := j.file.Truncate(size)
	if err == nil {
		_, err = j.file.Seek(size, io.SeekStart)
	}
	if err == nil {
		j.size, j.torn = size, false
	}
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
	j.size, j.torn = int64(len(b)), false
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
