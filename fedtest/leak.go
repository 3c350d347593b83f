package fedtest

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"time"
)

// TB is the part of testing.TB that [CheckLeaks] needs.
type TB interface {
	Helper()
	Cleanup(func())
	Errorf(format string, args ...any)
}

const leakLabel = "fedtest-leak-check"

var leakChecks atomic.Uint64

// leakDeadline is how long a goroutine may take to end after its test.
const leakDeadline = 15 * time.Second

// CheckLeaks fails the test where, at its end, a goroutine is left over that
// was started by it, or by a goroutine that it started. Call it first in the
// test, so that its check comes last of the cleanups. Tests may run in parallel:
// goroutines are told apart by a profiler label, which they inherit. (One that
// sets profiler labels of its own is not seen.) In a test of a
// testing/synctest bubble it belongs outside of the bubble.
func CheckLeaks(t TB) {
	t.Helper()
	checkLeaks(t, leakDeadline)
}

func checkLeaks(t TB, deadline time.Duration) {
	t.Helper()
	id := fmt.Sprint(leakChecks.Add(1))
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(leakLabel, id)))
	t.Cleanup(func() {
		t.Helper()
		pprof.SetGoroutineLabels(context.Background()) // this goroutine is none of them
		var left []string
		for wait, begin := time.Millisecond, time.Now(); time.Since(begin) < deadline; wait = min(2*wait, 100*time.Millisecond) {
			if left = labelled(id); len(left) == 0 {
				return
			}
			time.Sleep(wait)
		}
		t.Errorf("fedtest: the test left goroutines behind:\n\n%s", strings.Join(left, "\n\n"))
	})
}

// labelled returns the stacks of the goroutines that have the label.
func labelled(id string) []string {
	var profile bytes.Buffer
	// In this form each distinct stack is a paragraph, with a line of labels.
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return []string{err.Error()}
	}
	var stacks []string
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf("%q:%q", leakLabel, id)) {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}
