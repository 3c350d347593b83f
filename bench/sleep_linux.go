package bench

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// alarm wakes a goroutine on time. A timer of Go's does so up to a millisecond late when
// nothing else goes on; and a thread that sleeps in the kernel keeps a processor from
// the calls until the runtime takes it away.
type alarm struct{ timer *os.File }

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return &alarm{os.NewFile(uintptr(fd), "timerfd")}, nil
}

func (a *alarm) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	conn, err := a.timer.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := conn.Control(func(fd uintptr) {
		set = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(d.Nanoseconds())}, nil)
	}); err != nil {
		return err
	}
	if set != nil {
		return os.NewSyscallError("timerfd_settime", set)
	}
	_, err = a.timer.Read(make([]byte, 8)) // how often it has rung
	return err
}

func (a *alarm) close() { _ = a.timer.Close() }
