//go:build !linux

package bench

import "time"

func exact() {}

func sleep(d time.Duration) { time.Sleep(d) }
