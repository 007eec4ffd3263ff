//go:build !linux

package chart

import (
	"os"
	"syscall"
)

// self is the program that runs.
func self() (string, error) { return os.Executable() }

// processAttributes are none here: the end of the pipe ends the child.
func processAttributes() *syscall.SysProcAttr { return nil }

// limitMemory can't bound a process here; the garbage collector's limit and the deadline remain.
func limitMemory(int64) {}
