package chart_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

// children lists the rendering processes whose parent is pid.
func children(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	var found []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended meanwhile
		}
		name := strings.LastIndexByte(string(text), ')') // the name may hold anything
		fields := strings.Fields(string(text[name+1:]))
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		require.NoError(t, err)
		command, err := os.ReadFile(filepath.Join(filepath.Dir(file), "cmdline"))
		if err == nil && fields[1] == strconv.Itoa(pid) && strings.Contains(string(command), "render-chart") {
			found = append(found, child)
		}
	}
	return found
}

func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(text), ") Z ")
}

//nolint:paralleltest // it counts this process's children
func TestChildren(t *testing.T) {
	me := os.Getpid()
	ctx, cancel := context.WithCancel(t.Context())
	r := chart.NewRenderer(chart.Config{Timeout: 5 * time.Second, MemoryLimit: 600 << 20})
	var group errgroup.Group
	group.Go(func() error { return r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		require.NoError(t, group.Wait())
		require.Empty(t, children(t, me), "none outlives the renderer")
	})
	var waiting int
	require.Eventually(t, func() bool {
		found := children(t, me)
		if len(found) == 1 {
			waiting = found[0]
		}
		return len(found) == 1
	}, 10*time.Second, 5*time.Millisecond, "one waits from the start")

	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", waiting))
	require.NoError(t, err)
	require.Empty(t, environment)
	require.Eventually(t, func() bool {
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", waiting))
		return err == nil && strings.Contains(string(limits), strconv.Itoa(600<<20))
	}, 10*time.Second, 5*time.Millisecond, "its memory is limited")

	_, err = r.Render(ctx, request(testChart("plain")))
	require.NoError(t, err)
	require.False(t, alive(waiting), "each renders once")
	found := children(t, me)
	require.Len(t, found, 1)
	require.NotEqual(t, waiting, found[0], "the next one waits")

	process, err := os.FindProcess(found[0])
	require.NoError(t, err)
	require.NoError(t, process.Kill())
	require.Eventually(t, func() bool { return !alive(found[0]) }, 10*time.Second, 5*time.Millisecond)
	_, err = r.Render(ctx, request(testChart("plain")))
	require.NoError(t, err, "one that died while it waited is replaced")

	_, err = r.Render(ctx, request(writeChart(t, map[string]string{"templates/a.yaml": endless})))
	require.ErrorIs(t, err, chart.ErrLimit)
	require.Len(t, children(t, me), 1, "what exceeds its deadline is killed")
}

// TestParentKilled starts TestHelperEndless in another process and kills that.
//
//nolint:paralleltest // it needs the processor for itself, to be in time
func TestParentKilled(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperEndless$")
	cmd.Env = append(os.Environ(), helper+"="+writeChart(t, map[string]string{
		"templates/a.yaml": `{{ lookup "v1" "Secret" "a" "b" }}` + endless,
	}))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "rendering\n", line)
	found := children(t, cmd.Process.Pid)
	require.Len(t, found, 1)
	require.True(t, alive(found[0]))
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { return !alive(found[0]) }, 10*time.Second, 5*time.Millisecond)
}

func TestHelperEndless(t *testing.T) {
	t.Parallel()
	dir := os.Getenv(helper)
	if dir == "" {
		t.Skip("TestParentKilled runs it")
	}
	req := request(dir)
	req.Lookup = func(context.Context, string, string, string, string) (map[string]any, error) {
		_, err := os.Stdout.WriteString("rendering\n")
		return nil, err
	}
	_, err := newRenderer(t, chart.Config{}).Render(t.Context(), req)
	require.NoError(t, err)
}
