package reconciler_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kyma-incubator/reconciler/pkg/reconciler"
)

func TestOperationLogsAreBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]reconciler.Config{
		"by age":  {LogMaxAge: 100 * time.Millisecond},
		"by size": {LogMaxAge: 200 * time.Millisecond, LogTotalBytes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &callbacks{}
			cfg := test
			cfg.LogDir, cfg.Callbacks = t.TempDir(), c
			cfg.Components = component(func(_ context.Context, task *reconciler.Task) error {
				task.Log.Info("a line")
				return nil
			})
			r, stop := start(t, cfg)
			for n := range 3 {
				require.NoError(t, r.Accept(newTask(n)))
				c.final(t, url(n))
			}
			require.Eventually(t, func() bool {
				entries, err := os.ReadDir(cfg.LogDir)
				return err == nil && len(entries) == 0
			}, 10*time.Second, 5*time.Millisecond)
			require.NoError(t, stop())
		})
	}
}

func TestLastLines(t *testing.T) {
	t.Parallel()
	c := &callbacks{}
	r, stop := start(t, reconciler.Config{Callbacks: c, MaxRetries: 1, Components: component(func(_ context.Context, task *reconciler.Task) error {
		for range 100 {
			task.Log.Info(strings.Repeat("ä", 2000))
		}
		task.Log.Info("the last\x00 one")
		return reconciler.Permanent(context.Canceled)
	})})
	require.NoError(t, r.Accept(newTask(1)))
	final := c.final(t, "")
	require.NoError(t, stop())
	require.Len(t, final.Logs, 50)
	for _, line := range final.Logs {
		require.LessOrEqual(t, len(line), 1000)
	}
	require.Contains(t, final.Logs[48], "the last")
	require.Contains(t, final.Logs[49], "task failed")
}
