package fednats

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJournalWhileSending: what comes while the cluster is waited for is on disk at
// once, and not when its answer is there.
func TestJournalWhileSending(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sending, answer := make(chan struct{}, 2), make(chan struct{})
	c := &fakeCluster{fail: func(string) error {
		sending <- struct{}{}
		<-answer
		return nil
	}}
	o, _ := newTestOutbox(t, c, 100, dir)
	o.add(item{ID: "first"})
	<-sending
	o.add(item{ID: "second"})
	eventually(t, "the second is on disk", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "things.spool"))
		return err == nil && strings.Contains(string(b), `"second"`)
	})
	close(answer)
	eventually(t, "both are published", func() bool { return o.status().Published == 2 })
}

// TestJournalTorn: what found no room on the disk, or only a part of it, spoils nothing
// that is written later.
func TestJournalTorn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j, _, _, err := openJournal(dir, "things", slog.New(slog.DiscardHandler))
	must(t, err)
	queue := []item{{ID: "1"}, {ID: "2"}, {ID: "3"}}
	upTo := func(end int) func(int) []item { return func(n int) []item { return queue[n:end] } }
	j.append(upTo(1))
	file := j.file
	j.file, err = os.Open(j.path) // takes nothing
	must(t, err)
	j.append(upTo(2))
	j.file.Close()
	j.file = file
	if j.written != 1 || !j.failed {
		t.Errorf("%d written, failed: %v", j.written, j.failed)
	}
	_, err = file.WriteString(`00000000 {"id":"2","subj`) // a part of the second
	must(t, err)
	j.append(upTo(3))
	j.close()
	_, items, damaged, err := openJournal(dir, "things", slog.New(slog.DiscardHandler))
	if err != nil || damaged != 0 || len(items) != 3 || items[1].ID != "2" {
		t.Errorf("%v, %d damaged, %+v", err, damaged, items)
	}
}

// TestJournalDamaged: whatever is in the file, a program starts, with all that can be
// read.
func TestJournalDamaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	line := func(id string) string { return string(marshalLine(nil, &item{ID: id})) }
	long := strings.Repeat("\x00", maxLine+100_000) + "\n"
	content := line("1") + long + line("2") + "\n" + strings.Repeat("x", 70_000) + "\n" + line("3") + long[:100_000]
	must(t, os.WriteFile(filepath.Join(dir, "things.spool"), []byte(content), 0o600))
	var c fakeCluster
	o, _ := newTestOutbox(t, &c, 100, dir)
	eventually(t, "published", func() bool { return o.status().Published == 3 })
	if s := o.status(); s.Lost != 4 {
		t.Errorf("%+v", s)
	}
}
