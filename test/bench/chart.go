package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kyma-incubator/reconciler/pkg/reconciler/chart"
)

// One chart of a hundred objects on a real API server (no controllers: pods aren't waited for), by our component reconciler as a
// process, by kubectl and by helm, in turn.

//go:embed all:chart
var benchChart embed.FS

const (
	chartVersion = "1.0.0"
	chartObjects = 100
)

// chartResult is what the part "chart" measured. Durations are one each per round, or per repeat.
type chartResult struct {
	render, helmTemplate       []time.Duration
	first, repeat              []time.Duration
	firstRequests, repeatCalls float64
	kubectlFirst               []time.Duration
	kubectlRepeat              []time.Duration
	kubectlRequests            float64
	kubectlRepeatRequests      float64
	helmFirst, helmRepeat      []time.Duration
	kubernetes                 string
}

// playground is the test cluster with what works on it.
type playground struct {
	bench      *bench
	cluster    *process
	reconciler *process
	runner     *taskRunner
	workspace  string
	kubeconfig string
	testTool   string // bin/testcluster, which is also kubectl
	helm       string
}

func (b *bench) measureChart(ctx context.Context) (result *chartResult, err error) {
	p, err := b.startPlayground(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	result = &chartResult{}
	if result.kubernetes, err = p.version(ctx); err != nil {
		return nil, err
	}
	if err := p.measureRender(ctx, result); err != nil {
		return nil, fmt.Errorf("render: %w", err)
	}
	b.progress("render %v (helm template %v)", median(result.render), median(result.helmTemplate))
	for turn := range b.options.rounds + 1 { // the first, with cold caches, isn't counted
		for _, step := range []func(context.Context, int, *chartResult) error{p.roundReconciler, p.roundKubectl, p.roundHelm} {
			into := result
			if turn == 0 {
				into = &chartResult{}
			}
			if err := step(ctx, turn, into); err != nil {
				return nil, fmt.Errorf("round %d: %w", turn, err)
			}
		}
		if turn > 0 {
			last := turn - 1
			b.progress("round %d: first apply %v (kubectl %v, helm %v), unchanged %v (kubectl %v, helm %v)", turn,
				round(result.first[last]), round(result.kubectlFirst[last]), round(result.helmFirst[last]),
				median(result.repeat), round(result.kubectlRepeat[last]), round(result.helmRepeat[last]))
		}
	}
	return result, nil
}

func (b *bench) startPlayground(ctx context.Context) (p *playground, err error) {
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	p = &playground{
		bench: b, workspace: filepath.Join(b.dir, "workspace"), kubeconfig: filepath.Join(b.dir, "kubeconfig"),
		testTool: filepath.Join(b.options.tools, "testcluster"), helm: filepath.Join(b.options.tools, "helm"),
	}
	for _, tool := range []string{p.testTool, p.helm} {
		if _, err := os.Stat(tool); err == nil {
			continue
		}
		b.progress("building %s (the first time takes minutes)", filepath.Base(tool))
		build := exec.CommandContext(ctx, "make", "-C", b.options.root, "bin/"+filepath.Base(tool)) //nolint:gosec // the repository's own target
		build.Stdout, build.Stderr = b.stderr, b.stderr
		if err := build.Run(); err != nil {
			return nil, err
		}
	}
	b.progress("starting the test cluster's control plane")
	if p.cluster, err = b.start("testcluster", p.testTool, "up", "--control-plane-only", "--kubeconfig-out", p.kubeconfig); err != nil {
		return nil, err
	}
	if err := waitFor(ctx, 2*time.Minute, "test cluster", p.cluster, func(context.Context) error {
		_, err := os.Stat(p.kubeconfig)
		return err
	}); err != nil {
		return nil, errors.Join(err, p.close())
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	listen := fmt.Sprintf("127.0.0.1:%d", port)
	if err := os.MkdirAll(filepath.Join(p.workspace, chartVersion, "resources"), 0o750); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if p.reconciler, err = b.start("reconciler", b.bin("reconciler"), "start", "base",
		"--listen", listen, "--workspace", p.workspace, "--allow-loopback-clusters"); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if err := waitFor(ctx, 30*time.Second, "reconciler", p.reconciler, healthy("http://"+listen)); err != nil {
		return nil, errors.Join(err, p.close())
	}
	text, err := os.ReadFile(p.kubeconfig)
	if err == nil {
		p.runner, err = startTaskRunner(ctx, "http://"+listen, string(text))
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

func (p *playground) close() error {
	var err error
	if p.runner != nil {
		p.runner.close()
	}
	for _, proc := range []*process{p.reconciler, p.cluster} {
		if proc == nil {
			continue
		}
		_, stopErr := proc.stop(syscall.SIGTERM, 40*time.Second)
		err = errors.Join(err, stopErr)
	}
	return err
}

// addChart puts the chart into the workspace under a component's name, which is also the release's and part of every object's name.
func (p *playground) addChart(component string) (dir string, err error) {
	source, err := fs.Sub(benchChart, "chart")
	if err != nil {
		return "", err
	}
	dir = filepath.Join(p.workspace, chartVersion, "resources", component)
	return dir, os.CopyFS(dir, source)
}

func (p *playground) measureRender(ctx context.Context, result *chartResult) error {
	dir, err := p.addChart("render")
	if err != nil {
		return err
	}
	renderer := chart.NewRenderer(chart.Config{})
	defer renderer.Close()
	for range p.bench.options.rounds + 1 {
		start := time.Now()
		rendered, err := renderer.Render(ctx, chart.Request{Dir: dir, Component: "render", Namespace: "render", KubeVersion: result.kubernetes})
		if err != nil {
			return err
		}
		result.render = append(result.render, time.Since(start))
		if n := len(rendered.Objects); n != chartObjects {
			return fmt.Errorf("the chart renders to %d objects instead of %d", n, chartObjects)
		}
		took, _, err := p.timed(ctx, p.helm, "template", "render", dir, "--namespace", "render")
		if err != nil {
			return err
		}
		result.helmTemplate = append(result.helmTemplate, took)
	}
	result.render, result.helmTemplate = result.render[1:], result.helmTemplate[1:]
	return nil
}

// roundReconciler applies a fresh copy of the chart and repeats it.
func (p *playground) roundReconciler(ctx context.Context, round int, result *chartResult) error {
	component := fmt.Sprintf("ours-%d", round)
	if _, err := p.addChart(component); err != nil {
		return err
	}
	before, err := p.requests(ctx)
	if err != nil {
		return err
	}
	took, err := p.runner.run(ctx, component)
	if err != nil {
		return fmt.Errorf("first apply: %w; %s", err, p.reconciler.tail())
	}
	result.first = append(result.first, took)
	between, err := p.requests(ctx)
	if err != nil {
		return err
	}
	result.firstRequests = between - before
	repeats := max(1, p.bench.options.repeats/p.bench.options.rounds)
	for range repeats {
		took, err := p.runner.run(ctx, component)
		if err != nil {
			return fmt.Errorf("unchanged repeat: %w", err)
		}
		result.repeat = append(result.repeat, took)
	}
	after, err := p.requests(ctx)
	result.repeatCalls = (after - between) / float64(repeats)
	return err
}

// roundKubectl applies the same manifest by `kubectl apply --server-side`, and once more.
func (p *playground) roundKubectl(ctx context.Context, round int, result *chartResult) error {
	name := fmt.Sprintf("kubectl-%d", round)
	dir, err := p.addChart("render-" + name)
	if err != nil {
		return err
	}
	_, manifest, err := p.timed(ctx, p.helm, "template", name, dir, "--namespace", name)
	if err != nil {
		return err
	}
	file := filepath.Join(p.bench.dir, name+".yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		return err
	}
	if _, _, err := p.timed(ctx, p.testTool, "kubectl", "create", "namespace", name); err != nil {
		return err
	}
	for _, into := range []struct {
		times    *[]time.Duration
		requests *float64
	}{{&result.kubectlFirst, &result.kubectlRequests}, {&result.kubectlRepeat, &result.kubectlRepeatRequests}} {
		before, err := p.requests(ctx)
		if err != nil {
			return err
		}
		took, _, err := p.timed(ctx, p.testTool, "kubectl", "apply", "--server-side", "-f", file)
		if err != nil {
			return err
		}
		*into.times = append(*into.times, took)
		after, err := p.requests(ctx)
		if err != nil {
			return err
		}
		*into.requests = after - before
	}
	return nil
}

// roundHelm installs the same chart by helm, and upgrades it without a change.
func (p *playground) roundHelm(ctx context.Context, round int, result *chartResult) error {
	name := fmt.Sprintf("helm-%d", round)
	dir, err := p.addChart("render-" + name)
	if err != nil {
		return err
	}
	took, _, err := p.timed(ctx, p.helm, "install", name, dir, "--namespace", name, "--create-namespace")
	if err != nil {
		return err
	}
	result.helmFirst = append(result.helmFirst, took)
	if took, _, err = p.timed(ctx, p.helm, "upgrade", name, dir, "--namespace", name); err != nil {
		return err
	}
	result.helmRepeat = append(result.helmRepeat, took)
	return nil
}

// timed runs a program against the test cluster, with a home of its own for caches.
func (p *playground) timed(ctx context.Context, program string, args ...string) (time.Duration, string, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig, "HOME="+p.bench.dir)
	var out, errOut strings.Builder
	command.Stdout, command.Stderr = &out, &errOut
	start := time.Now()
	err := command.Run()
	took := time.Since(start)
	if err != nil {
		return 0, "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, errOut.String())
	}
	return took, out.String(), nil
}

// version returns the API server's version.
func (p *playground) version(ctx context.Context) (string, error) {
	_, out, err := p.timed(ctx, p.testTool, "kubectl", "version", "-o", "yaml")
	if err != nil {
		return "", err
	}
	_, out, _ = strings.Cut(out, "serverVersion:")
	for line := range strings.Lines(out) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "gitVersion: "); ok {
			return version, nil
		}
	}
	return "", errors.New("kubectl shows no server version")
}

// requests returns how many requests the API server has answered, the ones of this function left out. Its own few in the background remain.
func (p *playground) requests(ctx context.Context) (float64, error) {
	_, out, err := p.timed(ctx, p.testTool, "kubectl", "get", "--raw", "/metrics")
	if err != nil {
		return 0, err
	}
	var sum float64
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "apiserver_request_total{") || strings.Contains(line, `verb="WATCH"`) || strings.Contains(line, `subresource="/metrics"`) {
			continue
		}
		value := strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:])
		var n float64
		if _, err := fmt.Sscan(value, &n); err != nil {
			return 0, fmt.Errorf("metrics: %q: %w", value, err)
		}
		sum += n
	}
	return sum, nil
}
