// Package kubetest gives tests a real Kubernetes API: a cluster on loopback
// ports whose pods are simulated (test/cluster says how). Tests share one
// cluster, each in a namespace of its own:
//
//	c := kubetest.Start(t)
//	ns := c.Namespace(t)
//	client, err := dynamic.NewForConfig(c.Config())
//
// Where KUBECONFIG_TEST names a kubeconfig, its cluster is the shared one.
// Otherwise the first test of a package starts one, and builds the cluster's
// binary before where that is missing (about five minutes, once per machine).
//
// Without a word every pod is ready within a second and every Job's pod
// succeeds. The annotations NeverReady, Crash, ImagePull, FailJob and ReadyAfter
// on a pod (so, on the template of a workload) make it behave otherwise.
//
// Not here: nothing is ever reached at a pod's or a Service's address, and a
// broken APIService stops all namespaces from going: tests of those, and others
// that disturb a whole cluster, take StartOwn.
package kubetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// EnvKubeconfig names the kubeconfig file of the cluster to use.
const EnvKubeconfig = "KUBECONFIG_TEST"

// Annotations of a pod, and what the simulated kubelet does for them.
const (
	NeverReady = "kubetest/never-ready" // "true": runs but isn't ready; a Job's pod never ends
	Crash      = "kubetest/crash"       // "true": its containers are in CrashLoopBackOff
	ImagePull  = "kubetest/image-pull"  // "fail": it stays Pending with ImagePullBackOff
	FailJob    = "kubetest/fail-job"    // "true": it ends Failed with exit code 1
	ReadyAfter = "kubetest/ready-after" // a Go duration: it is ready, or a Job's pod ends, only then
)

const requestTimeout = 30 * time.Second

// Options say what a cluster of one's own has.
type Options struct {
	// ControlPlaneOnly starts only the API server: no controllers, no nodes, no
	// pods. It takes half the time and a third of the memory.
	ControlPlaneOnly bool
}

// Cluster is a running one.
type Cluster struct {
	kubeconfig string
	config     *rest.Config
}

var shared struct {
	once    sync.Once
	process *process // holds the pipe open
	cluster *Cluster
	err     error
}

// Start returns the cluster that the tests of this binary share. It ends with
// the binary; a KUBECONFIG_TEST one stays. A cluster that doesn't start fails
// every test that asks for it.
func Start(tb testing.TB) *Cluster {
	tb.Helper()
	shared.once.Do(func() { shared.cluster, shared.err = startShared() })
	require.NoError(tb, shared.err, "start the test cluster")
	return shared.cluster
}

func startShared() (*Cluster, error) {
	if file := os.Getenv(EnvKubeconfig); file != "" {
		return fromFile(file)
	}
	p, err := startProcess(Options{})
	if err != nil {
		return nil, err
	}
	shared.process = p
	return fromFile(p.kubeconfigFile)
}

// StartOwn starts a cluster for this test alone, whatever KUBECONFIG_TEST says,
// and stops it when the test is over.
func StartOwn(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	p, err := startProcess(o)
	require.NoError(tb, err, "start a test cluster")
	tb.Cleanup(p.stop)
	c, err := fromFile(p.kubeconfigFile)
	require.NoError(tb, err)
	return c
}

func fromFile(file string) (*Cluster, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %q: %w", file, err)
	}
	config.QPS = -1 // no limit of the client's own
	config.Timeout = requestTimeout
	return &Cluster{kubeconfig: string(text), config: config}, nil
}

// Kubeconfig returns the administrator's kubeconfig as text.
func (c *Cluster) Kubeconfig() string { return c.kubeconfig }

// Config returns the administrator's client configuration: a copy, to be
// changed at will, without a rate limit. Requests end after 30 s, watches too.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Namespace creates a namespace for this test and returns its name. It is
// deleted when the test is over; nobody waits for its end.
func (c *Cluster) Namespace(tb testing.TB) string {
	tb.Helper()
	client, err := corev1client.NewForConfig(c.Config())
	require.NoError(tb, err)
	name := c.Name(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), requestTimeout)
	defer cancel()
	_, err = client.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(tb, err, "create a namespace")
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), requestTimeout)
		defer cancel()
		err := client.Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, context.DeadlineExceeded) {
			require.NoError(tb, err, "delete the test's namespace")
		}
	})
	return name
}

// Name returns a name that no other test has: up to 40 characters that any
// object may be called, for what lives in no namespace.
func (*Cluster) Name(tb testing.TB) string {
	tb.Helper()
	name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(tb.Name()), "-"), "-")
	if len(name) > 30 {
		name = strings.Trim(name[:30], "-")
	}
	return fmt.Sprintf("%s-%08x", name, rand.Uint32())
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// IgnoreConnections is for goleak: client-go keeps its connections, and
// nothing closes them.
func IgnoreConnections() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
	}
}
