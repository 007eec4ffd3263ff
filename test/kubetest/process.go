package kubetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	module       = "module github.com/kyma-incubator/reconciler\n"
	startTimeout = 4 * time.Minute // several may start at once on a small machine
)

// process is a running "testcluster up". It watches its parent, this binary,
// and ends with it. No goroutine stays with it here: leak checks see none.
type process struct {
	cmd            *exec.Cmd
	out            *os.File // what it says; open as long as it lives
	kubeconfigFile string
}

func startProcess(o Options) (*process, error) {
	binary, err := Binary()
	if err != nil {
		return nil, err
	}
	args := []string{"up"}
	if o.ControlPlaneOnly {
		args = append(args, "--control-plane-only")
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	p := &process{cmd: exec.CommandContext(context.Background(), binary, args...), out: out}
	p.cmd.Stdout, p.cmd.Stderr = in, in
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's Ctrl-C ends it through its parent
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	_ = in.Close() // so that the end of the process is the end of what it says
	if err := p.waitReady(); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// waitReady returns when the cluster has said where its kubeconfig is: when it
// is ready. All it says before is for the error.
func (p *process) waitReady() error {
	if err := p.out.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	var said []string
	lines := bufio.NewScanner(p.out)
	for lines.Scan() {
		if file, ready := strings.CutPrefix(lines.Text(), "ready "); ready {
			p.kubeconfigFile = file
			return nil
		}
		said = append(said, lines.Text())
	}
	err := lines.Err()
	if err == nil {
		err = errors.New("it ended")
	}
	return fmt.Errorf("no ready cluster: %w; it said:\n%s", err, strings.Join(said, "\n"))
}

// stop ends the cluster and waits for that; its data goes with it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	_ = p.cmd.Wait()                          // its exit code says nothing new
	_ = p.out.Close()
}

// Binary returns the path of the test cluster's binary and builds it first
// where it is missing. Its "up" starts a cluster, its "kubectl" is kubectl.
func Binary() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(context.Background(), "go", "run", "./build")
	cmd.Dir = filepath.Join(root, "test", "cluster")
	cmd.Stderr = os.Stderr
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build the test cluster: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Root returns the repository's folder, found from the working directory: the
// folder of the package that is tested.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if strings.HasPrefix(string(text), module) {
			return dir, nil
		}
	}
	return "", errors.New("the working directory is not in the repository")
}
