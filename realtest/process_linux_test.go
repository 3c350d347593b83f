package realtest

import "syscall"

// dieWithParent has the kernel kill the server where this process ends without
// doing so. It is sent when the thread that started the server ends, which is
// the main thread or one that the Go runtime keeps.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
