//go:build !linux

package main

import "syscall"

// childAttributes: the terminal's Ctrl-C doesn't reach a child.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
