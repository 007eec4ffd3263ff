package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// childAttributes makes a child end with this process.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// clockTick is the unit of /proc/PID/stat: USER_HZ, which is 100 on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// cpuTime returns what a process has used of the processor so far.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:])) // the name before it may hold blanks
	const user, system = 11, 12                                               // the 14th and 15th field of the line
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/%d/stat: too few fields", pid)
	}
	var ticks int64
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// peakMemory returns the most memory that a process has held so far, in bytes.
func peakMemory(pid int) (int64, error) {
	return procValue(fmt.Sprintf("/proc/%d/status", pid), "VmHWM:")
}

// machineMemory returns the memory of this machine, in bytes.
func machineMemory() (int64, error) {
	return procValue("/proc/meminfo", "MemTotal:")
}

// cpuModel returns the processor's name, empty if it isn't known.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// procValue reads a line "Name: 123 kB".
func procValue(file, name string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for scanner := bufio.NewScanner(bytes.NewReader(text)); scanner.Scan(); {
		if fields := strings.Fields(scanner.Text()); len(fields) >= 2 && fields[0] == name {
			n, err := strconv.ParseInt(fields[1], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s: no line %s", file, name)
}
