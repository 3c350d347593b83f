package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "report.html")
	write := func(text string) *pendingFile {
		f, err := createFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		return f
	}
	read := func() string {
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(text)
	}
	first := write("first")
	if read() != "" {
		t.Error("it is there before it is whole")
	}
	if err := first.commit(); err != nil {
		t.Fatal(err)
	}
	first.discard()
	if got := read(); got != "first" {
		t.Errorf("committed: %q", got)
	}
	write("second").discard()
	if got := read(); got != "first" {
		t.Errorf("discarded: %q", got)
	}
	third := write("third")
	if err := third.commit(); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != "third" {
		t.Errorf("committed again: %q", got)
	}
	// What comes into its place meanwhile is no file to replace.
	fourth := write("fourth")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := fourth.commit(); err == nil {
		t.Error("a folder was replaced")
	}
	fourth.discard()
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Errorf("left over: %v, %v", entries, err)
	}
}

// TestReportRefused checks what stands in the way of a report: it is found
// before the job runs, and nothing is touched.
func TestReportRefused(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	old := filepath.Join(folder, "old.html")
	if err := os.WriteFile(old, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(folder, "link.html")
	if err := os.Symlink(old, link); err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for path, says := range map[string]string{
		folder:                                "not a regular file",
		link:                                  "not a regular file",
		os.DevNull:                            "not a regular file",
		filepath.Join(folder, "no", "r.html"): "no such file or directory",
		filepath.Join(old, "r.html"):          "not a directory",
		old:                                   "boundary, stock client", // the job, which was canceled
	} {
		var stdout, stderr bytes.Buffer
		if code := run(canceled, []string{"-report", path}, &stdout, &stderr); code != 1 {
			t.Errorf("%s: exit code %d, want 1", path, code)
		}
		if !strings.Contains(stderr.String(), says) || stdout.Len() > 0 {
			t.Errorf("%s: stderr %q, want %q; stdout %q", path, &stderr, says, &stdout)
		}
		if started := strings.Contains(stderr.String(), "done in"); started {
			t.Errorf("%s: the job has run", path)
		}
	}
	if text, err := os.ReadFile(old); err != nil || string(text) != "old" {
		t.Errorf("the old report is %q, %v", text, err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 2 {
		t.Errorf("left over: %v, %v", entries, err)
	}
}
