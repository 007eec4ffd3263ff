package pgtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	startTimeout  = time.Minute
	startAttempts = 3 // a port may be taken between its choice and its use
)

// launch becomes the server and leaves a watcher beside it. When the watcher's
// input ends without a word, the test binary is gone, however it went: then the
// server and its data go too.
const launch = `
server=$1 dir=$2 port=$3
(
	read -r _ <&3 && exit
	kill -QUIT $$
	kill -CONT $$ # should it be frozen
	while kill -0 $$; do sleep 0.1; done
	rm -rf "$dir"
) 2>/dev/null &
exec "$server" -D "$dir/data" -p "$port" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
	-c fsync=off -c full_page_writes=off -c max_connections=300 >"$dir/log" 2>&1 3<&-
`

// Server is a PostgreSQL server on a loopback port.
type Server struct {
	dsn  string
	bin  string // folder of initdb and postgres
	dir  string // data and log
	port int
	cmd  *exec.Cmd // the server; nil while stopped
	tie  *os.File  // the watcher's input
}

// StartServer starts a server for this test alone, which ends with it.
func StartServer(tb testing.TB) *Server {
	tb.Helper()
	s, err := startServer()
	require.NoError(tb, err, "start PostgreSQL")
	tb.Cleanup(func() {
		s.signal(tb, syscall.SIGCONT)
		s.halt()
		require.NoError(tb, os.RemoveAll(s.dir))
	})
	return s
}

// DSN returns the URL of the database "postgres", of a user who may do
// everything. It stays the same over Stop and Start.
func (s *Server) DSN() string { return s.dsn }

// Stop ends the server at once: connections break, and new ones are refused.
func (s *Server) Stop(tb testing.TB) {
	tb.Helper()
	require.NotNil(tb, s.cmd, "the server is stopped already")
	s.halt()
}

// Start starts a stopped server again, with its data, and waits until it
// answers.
func (s *Server) Start(tb testing.TB) {
	tb.Helper()
	require.Nil(tb, s.cmd, "the server runs already")
	require.NoError(tb, s.run(), "start PostgreSQL again")
}

// Freeze stops all of the server's processes without ending them: the
// connections stay open, and nothing is answered any more. Only on Linux.
func (s *Server) Freeze(tb testing.TB) {
	tb.Helper()
	s.signal(tb, syscall.SIGSTOP)
}

// Thaw ends Freeze.
func (s *Server) Thaw(tb testing.TB) {
	tb.Helper()
	s.signal(tb, syscall.SIGCONT)
}

func startServer() (*Server, error) {
	bin, err := findBin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir}
	if err := s.initialize(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	for range startAttempts {
		if s.port, err = freePort(); err != nil {
			break
		}
		s.dsn = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
		if err = s.run(); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, os.RemoveAll(dir))
}

func (s *Server) initialize() error {
	credential, err := unprivileged()
	if err != nil {
		return err
	}
	if credential != nil {
		if err := os.Chown(s.dir, int(credential.Uid), int(credential.Gid)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "-D", filepath.Join(s.dir, "data"),
		"-U", "postgres", "--auth=trust", "--no-sync", "--locale=C", "--encoding=UTF8")
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
}

// run starts the server and waits until it answers.
func (s *Server) run() error {
	credential, err := unprivileged()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(s.log()); err != nil { // of an earlier start
		return err
	}
	input, tie, err := os.Pipe()
	if err != nil {
		return err
	}
	defer input.Close()
	// It outlives the test that starts it.
	cmd := exec.CommandContext(context.Background(), "/bin/sh", "-c", launch, "pgtest", filepath.Join(s.bin, "postgres"), s.dir, strconv.Itoa(s.port))
	cmd.Dir = s.dir
	cmd.ExtraFiles = []*os.File{input} // number 3
	// A group of its own: the terminal's Ctrl-C ends it through the test binary.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setpgid: true}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, tie.Close())
	}
	s.cmd, s.tie = cmd, tie
	if err := s.waitReady(); err != nil {
		s.halt()
		return err
	}
	return nil
}

func (s *Server) waitReady() error {
	deadline := time.Now().Add(startTimeout)
	for {
		err := execute(context.Background(), s.dsn, "SELECT 1")
		if err == nil {
			return nil
		}
		log, logErr := os.ReadFile(s.log())
		ended := logErr == nil && strings.HasSuffix(strings.TrimSpace(string(log)), "database system is shut down")
		if ended || time.Now().After(deadline) {
			return fmt.Errorf("PostgreSQL doesn't answer (%w); its log:\n%s", err, log)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (s *Server) log() string { return filepath.Join(s.dir, "log") }

// halt ends the server at once and waits for that. Its data stays.
func (s *Server) halt() {
	if s.cmd == nil {
		return
	}
	_, _ = s.tie.WriteString("halt\n") // the watcher may go
	_ = s.tie.Close()
	_ = s.cmd.Process.Signal(syscall.SIGQUIT) // it may have ended already
	_ = s.cmd.Wait()                          // its exit code says nothing new
	s.cmd, s.tie = nil, nil
}

// signal goes to the server's main process and to its children, which are in
// sessions of their own.
func (s *Server) signal(tb testing.TB, signal syscall.Signal) {
	tb.Helper()
	if s.cmd == nil {
		return
	}
	text, err := os.ReadFile(filepath.Join(s.dir, "data", "postmaster.pid"))
	require.NoError(tb, err)
	line, _, _ := strings.Cut(string(text), "\n")
	main, err := strconv.Atoi(line)
	require.NoError(tb, err)
	// The main process first, so that it starts no more children meanwhile.
	require.NoError(tb, syscall.Kill(main, signal))
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(tb, err)
	require.NotEmpty(tb, stats, "freezing a server needs /proc")
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // that process has ended
		}
		// pid (name) state parent …; the name may hold anything.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[1] != line {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(tb, err)
		_ = syscall.Kill(child, signal) // or it has ended
	}
}

// unprivileged: the server refuses to be run by root, so root runs it as
// somebody else.
func unprivileged() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil //nolint:nilnil // no change of user is needed
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL doesn't run as root, and there is neither a user postgres nor nobody")
}

// findBin returns the folder with initdb and postgres: of the PATH, else the
// newest of Debian's.
func findBin() (string, error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		if file, err := filepath.EvalSymlinks(initdb); err == nil {
			return filepath.Dir(file), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return "", fmt.Errorf("no PostgreSQL server (initdb) on PATH or in /usr/lib/postgresql: "+
			"install it (`make setup`; Debian: package postgresql; macOS: brew install postgresql), or set %s", EnvDatabaseURL)
	}
	version := func(path string) int {
		v, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return v
	}
	newest := slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

// freePort picks a free loopback port, below the range from which the kernel
// takes those of outgoing connections.
func freePort() (int, error) {
	const low, high, tries = 20000, 32000, 100
	var listen net.ListenConfig
	for range tries {
		l, err := listen.Listen(context.Background(), "tcp", fmt.Sprintf("127.0.0.1:%d", low+rand.IntN(high-low)))
		if err != nil {
			continue
		}
		port := l.Addr().(*net.TCPAddr).Port
		return port, l.Close()
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1 between %d and %d", low, high)
}
