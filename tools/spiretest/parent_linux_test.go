package spiretest

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel kill the command when this process ends, in
// whatever way.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
