//go:build !unix || aix || solaris || illumos

package fednats

func lockDir(string) (unlock func(), err error) { return func() {}, nil }
