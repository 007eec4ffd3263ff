package main

import "syscall"

// childAttributes: a child dies with the thread that started it, and the
// terminal's Ctrl-C doesn't reach it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
