package chart

import (
	"os"
	"syscall"
)

// self is the program that runs, even if its file was replaced meanwhile.
func self() (string, error) {
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}

// processAttributes end the child together with its parent, and keep signals of the terminal from it.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// limitMemory bounds what this process may use; beyond it, its next allocation ends it.
func limitMemory(bytes int64) {
	limit := uint64(max(bytes, 0))
	// A parent's lower limit stays; without any, the deadline is still there.
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: limit, Max: limit})
}
