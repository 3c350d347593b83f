//go:build !linux

package realtest

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
