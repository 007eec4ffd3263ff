//go:build !linux

package main

import (
	"errors"
	"syscall"
	"time"
)

// Processor time and memory of other processes are read from /proc, so elsewhere these figures are missing.

func childAttributes() *syscall.SysProcAttr { return nil }

func cpuTime(int) (time.Duration, error) { return 0, errors.ErrUnsupported }

func peakMemory(int) (int64, error) { return 0, errors.ErrUnsupported }

func machineMemory() (int64, error) { return 0, errors.ErrUnsupported }

func cpuModel() string { return "" }
