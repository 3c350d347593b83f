//go:build !linux

package spiretest

import "os/exec"

// endWithParent does nothing: only Linux has a way.
func endWithParent(*exec.Cmd) {}
