package chart_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

// endless is a template that runs for hours in little memory.
const endless = `{{ range until 100000 }}{{ range until 10000 }}{{ range until 10000 }}{{ end }}{{ end }}{{ end }}`

func TestLimits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		template string
		cfg      chart.Config
		text     string
	}{
		"deadline":              {endless, chart.Config{Timeout: 5 * time.Second}, "deadline of 5s"},
		"memory in one line":    {`{{ repeat 5000000000 "a" }}`, chart.Config{}, "memory of 512 MiB"},
		"memory bit by bit":     {`{{ $all := list }}{{ range until 1000000 }}{{ $all = append $all (repeat 100000 "a") }}{{ end }}`, chart.Config{}, "memory of 512 MiB"},
		"memory of aliases":     {yamlBomb(), chart.Config{OutputLimit: 1 << 20}, ""},
		"calls without end":     {`{{ define "a" }}{{ tpl "{{ include \"a\" . }}" . }}{{ end }}{{ define "b" }}{{ template "b" . }}{{ end }}{{ template "b" . }}`, chart.Config{}, ""},
		"output":                {`a: {{ repeat 3000000 "a" }}`, chart.Config{OutputLimit: 2 << 20}, "output of 3000003 bytes is more than 2097152"},
		"output of a small one": {"apiVersion: v1\nkind: A\nmetadata: {name: a}\nbig: &a [" + strings.Repeat("xxxxxxxxxx,", 50) + "]\nmore: [" + strings.Repeat("*a,", 50) + "]\n", chart.Config{OutputLimit: 10_000}, "output is more than 10000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRenderer(t, tc.cfg)
			_, err := r.Render(t.Context(), request(writeChart(t, map[string]string{"templates/a.yaml": tc.template})))
			require.Error(t, err)
			if tc.text == "" { // stopped by the engine itself, or by a limit
				require.True(t, errors.Is(err, chart.ErrRender) || errors.Is(err, chart.ErrLimit), err)
			} else {
				require.ErrorIs(t, err, chart.ErrLimit)
				require.ErrorContains(t, err, tc.text)
			}
			result, err := r.Render(t.Context(), request(writeChart(t, configMap("a: b"))))
			require.NoError(t, err, "the renderer lives on")
			require.Equal(t, "b", data(t, result, "a"))
		})
	}
}

func yamlBomb() string {
	var text strings.Builder
	text.WriteString("apiVersion: v1\nkind: A\nmetadata: {name: a}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n")
	for i := 1; i < 10; i++ {
		last := "*a" + strconv.Itoa(i-1)
		text.WriteString("a" + strconv.Itoa(i) + ": &a" + strconv.Itoa(i) + " [" + strings.Repeat(last+",", 9) + last + "]\n")
	}
	return text.String()
}

func TestContext(t *testing.T) {
	t.Parallel()
	dir := writeChart(t, map[string]string{"templates/a.yaml": endless})
	t.Run("cancelled while it renders", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		req := request(writeChart(t, map[string]string{"templates/a.yaml": `{{ lookup "v1" "Secret" "a" "b" }}` + endless}))
		req.Lookup = func(context.Context, string, string, string, string) (map[string]any, error) {
			cancel() // the template is being executed
			return nil, nil
		}
		_, err := newRenderer(t, chart.Config{}).Render(ctx, req)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, chart.ErrLimit)
	})
	t.Run("over while it waits for its turn", func(t *testing.T) {
		t.Parallel()
		r := newRenderer(t, chart.Config{Children: 1})
		first, stop := context.WithCancel(t.Context())
		var group errgroup.Group
		started := make(chan struct{})
		req := request(writeChart(t, map[string]string{"templates/a.yaml": `{{ lookup "v1" "Secret" "a" "b" }}` + endless}))
		req.Lookup = func(context.Context, string, string, string, string) (map[string]any, error) {
			close(started)
			return nil, nil
		}
		group.Go(func() error {
			_, err := r.Render(first, req)
			return err
		})
		<-started
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := r.Render(ctx, request(dir))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		stop()
		require.ErrorIs(t, group.Wait(), context.Canceled)
	})
	t.Run("closed", func(t *testing.T) {
		t.Parallel()
		r := chart.NewRenderer(chart.Config{})
		r.Close()
		r.Close()
		_, err := r.Render(t.Context(), request(dir))
		require.ErrorIs(t, err, chart.ErrClosed)
	})
}

func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRenderer(t, chart.Config{Children: 2})
	dir := writeChart(t, configMap("a: {{ .Values.i | quote }}"))
	var group errgroup.Group
	for i := range 20 {
		group.Go(func() error {
			req := request(dir)
			req.Values = map[string]any{"i": i}
			result, err := r.Render(t.Context(), req)
			if err != nil {
				return err
			}
			if got := result.Objects[0].Object["data"].(map[string]any)["a"]; got != strconv.Itoa(i) {
				return errors.New("mixed up")
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
}

// TestInProcess runs TestHelperInProcess in a program that doesn't call RenderChild.
func TestInProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperInProcess$", "-test.v")
	cmd.Env = append(os.Environ(), inProcess+"=1")
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	require.Contains(t, string(text), "PASS: TestHelperInProcess")
}

func TestHelperInProcess(t *testing.T) {
	t.Parallel()
	if os.Getenv(inProcess) == "" {
		t.Skip("TestInProcess runs it")
	}
	r := newRenderer(t, chart.Config{OutputLimit: 1 << 20})
	req := request(writeChart(t, configMap(`a: {{ (lookup "v1" "Secret" "a" "b").found | quote }}`)))
	req.Lookup = func(context.Context, string, string, string, string) (map[string]any, error) {
		return map[string]any{"found": "yes"}, nil
	}
	for i := range 2 {
		result, err := r.Render(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, "yes", data(t, result, "a"))
		require.Len(t, result.Lookups, 1)
		require.Len(t, result.Warnings, 1-i, "it warns once")
	}
	_, err := r.Render(t.Context(), request(writeChart(t, map[string]string{"templates/a.yaml": `a: {{ repeat 3000000 "a" }}`})))
	require.ErrorIs(t, err, chart.ErrLimit)
	_, err = r.Render(t.Context(), request(writeChart(t, map[string]string{"templates/a.yaml": "{{ fail `no` }}"})))
	require.ErrorIs(t, err, chart.ErrRender)
}
