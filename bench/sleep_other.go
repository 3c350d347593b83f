//go:build !linux

package bench

import "time"

// alarm wakes a goroutine up to a millisecond late, which is shown.
type alarm struct{}

func newAlarm() (*alarm, error) { return &alarm{}, nil }

func (*alarm) sleep(d time.Duration) error {
	time.Sleep(d)
	return nil
}

func (*alarm) close() {}
