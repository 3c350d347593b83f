package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// exact has the kernel wake this thread on time and not up to 50 µs later. Where it
// cannot, the calls begin that much later, which is shown.
func exact() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

// sleep blocks the thread. A timer of Go's would wake it up to a millisecond late
// when nothing else goes on.
func sleep(d time.Duration) {
	if d > 0 {
		rest := unix.NsecToTimespec(d.Nanoseconds())
		_ = unix.Nanosleep(&rest, nil)
	}
}
