package fedhttp

import (
	"runtime"
	"strings"
	"testing"
)

// TestShown: what a peer makes megabytes long costs no more than what is shown of it is
// worth, and what was cut keeps its secrets. It does not run in parallel, as it measures
// the process.
func TestShown(t *testing.T) {
	long := strings.Repeat("://u:secret@a ", 1<<20)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	text := shown(long)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d MiB for %d bytes", n>>20, len(text))
	}
	if strings.Contains(text, "secret") || len(text) > maxQuoted+len(cutMark) {
		t.Errorf("shown is %s", text)
	}
	const url = "https://"
	for cut := range 16 {
		s := url + strings.Repeat("u", maxShown-len(url)-cut) + ":secret@a.example/path"
		if text := shown(s); text != url+"[redacted]"+cutMark {
			t.Errorf("cut %d bytes into the secret, shown is %s", cut, text)
		}
	}
}
