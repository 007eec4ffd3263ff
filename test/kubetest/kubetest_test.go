package kubetest_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kyma-incubator/reconciler/test/kubetest"
)

const (
	wait = 30 * time.Second
	tick = 100 * time.Millisecond
)

func newClient(t *testing.T, c *kubetest.Cluster) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	require.NoError(t, err)
	return client
}

// eventually polls the check, whose errors mean "not yet".
func eventually(t *testing.T, what string, check func(ctx context.Context) (bool, error)) {
	t.Helper()
	require.Eventually(t, func() bool {
		ok, err := check(t.Context())
		return err == nil && ok
	}, wait, tick, what)
}

func template(annotations map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "test"}, Annotations: annotations},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: "example.invalid/init"}},
			Containers:     []corev1.Container{{Name: "main", Image: "example.invalid/main"}},
		},
	}
}

func deployment(replicas int32, annotations map[string]string) *appsv1.Deployment {
	deadline := int32(2)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "test"},
		Spec: appsv1.DeploymentSpec{
			Replicas:                &replicas,
			ProgressDeadlineSeconds: &deadline,
			Selector:                &metav1.LabelSelector{MatchLabels: map[string]string{"app": "test"}},
			Template:                template(annotations),
		},
	}
}

func job(annotations map[string]string) *batchv1.Job {
	limit := int32(0)
	pod := template(annotations)
	pod.Labels = nil
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "test"},
		Spec:       batchv1.JobSpec{BackoffLimit: &limit, Template: pod},
	}
}

func TestDeploymentRollsOut(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	apps := newClient(t, c).AppsV1().Deployments(c.Namespace(t))
	_, err := apps.Create(t.Context(), deployment(3, nil), metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "three replicas are ready", func(ctx context.Context) (bool, error) {
		d, err := apps.Get(ctx, "test", metav1.GetOptions{})
		return err == nil && d.Status.ReadyReplicas == 3 && d.Status.AvailableReplicas == 3, err
	})
}

func TestPodsThatDontGetReady(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotation, value string
		phase             corev1.PodPhase
		waiting           string
	}{
		"never ready": {kubetest.NeverReady, "true", corev1.PodRunning, ""},
		"crash":       {kubetest.Crash, "true", corev1.PodRunning, "CrashLoopBackOff"},
		"image pull":  {kubetest.ImagePull, "fail", corev1.PodPending, "ImagePullBackOff"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kubetest.Start(t)
			ns := c.Namespace(t)
			client := newClient(t, c)
			_, err := client.AppsV1().Deployments(ns).Create(t.Context(),
				deployment(1, map[string]string{test.annotation: test.value}), metav1.CreateOptions{})
			require.NoError(t, err)
			eventually(t, "the rollout's deadline passes", func(ctx context.Context) (bool, error) {
				d, err := client.AppsV1().Deployments(ns).Get(ctx, "test", metav1.GetOptions{})
				if err != nil {
					return false, err
				}
				for _, c := range d.Status.Conditions {
					if c.Type == appsv1.DeploymentProgressing && c.Reason == "ProgressDeadlineExceeded" {
						return d.Status.ReadyReplicas == 0, nil
					}
				}
				return false, nil
			})
			pods, err := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			require.Len(t, pods.Items, 1)
			pod := pods.Items[0]
			require.Equal(t, test.phase, pod.Status.Phase)
			require.Len(t, pod.Status.ContainerStatuses, 1)
			if test.waiting != "" {
				require.NotNil(t, pod.Status.ContainerStatuses[0].State.Waiting)
				require.Equal(t, test.waiting, pod.Status.ContainerStatuses[0].State.Waiting.Reason)
			}
		})
	}
}

func TestNeverReadyHealsWithoutItsAnnotation(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	pods := newClient(t, c).CoreV1().Pods(c.Namespace(t))
	tmpl := template(map[string]string{kubetest.NeverReady: "true"})
	pod := &corev1.Pod{ObjectMeta: tmpl.ObjectMeta, Spec: tmpl.Spec}
	pod.Name = "test"
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "it runs", func(ctx context.Context) (bool, error) {
		p, err := pods.Get(ctx, "test", metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning, err
	})
	_, err = pods.Patch(t.Context(), "test", "application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(t, "it is ready", func(ctx context.Context) (bool, error) {
		p, err := pods.Get(ctx, "test", metav1.GetOptions{})
		return err == nil && isReady(p), err
	})
}

func TestReadyAfter(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	pods := newClient(t, c).CoreV1().Pods(c.Namespace(t))
	tmpl := template(map[string]string{kubetest.ReadyAfter: "2s"})
	pod := &corev1.Pod{ObjectMeta: tmpl.ObjectMeta, Spec: tmpl.Spec}
	pod.Name = "test"
	_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	var got *corev1.Pod
	eventually(t, "it is ready", func(ctx context.Context) (bool, error) {
		var err error
		got, err = pods.Get(ctx, "test", metav1.GetOptions{})
		return err == nil && isReady(got), err
	})
	for _, condition := range got.Status.Conditions {
		if condition.Type == corev1.PodReady {
			require.GreaterOrEqual(t, condition.LastTransitionTime.Sub(got.Status.StartTime.Time), time.Second) // whole seconds on the wire
		}
	}
}

func isReady(p *corev1.Pod) bool {
	for _, condition := range p.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func TestJobs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		annotations map[string]string
		want        batchv1.JobConditionType
	}{
		"complete": {nil, batchv1.JobComplete},
		"fail":     {map[string]string{kubetest.FailJob: "true"}, batchv1.JobFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := kubetest.Start(t)
			jobs := newClient(t, c).BatchV1().Jobs(c.Namespace(t))
			_, err := jobs.Create(t.Context(), job(test.annotations), metav1.CreateOptions{})
			require.NoError(t, err)
			eventually(t, "the job ends", func(ctx context.Context) (bool, error) {
				j, err := jobs.Get(ctx, "test", metav1.GetOptions{})
				if err != nil {
					return false, err
				}
				for _, condition := range j.Status.Conditions {
					if condition.Type == test.want && condition.Status == corev1.ConditionTrue {
						return true, nil
					}
				}
				return false, nil
			})
		})
	}
}

func TestDaemonSetRunsOnAllNodes(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	sets := newClient(t, c).AppsV1().DaemonSets(c.Namespace(t))
	_, err := sets.Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "test"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "test"}},
			Template: template(nil),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "all pods are ready", func(ctx context.Context) (bool, error) {
		d, err := sets.Get(ctx, "test", metav1.GetOptions{})
		return err == nil && d.Status.NumberReady == 3 && d.Status.DesiredNumberScheduled == 3, err
	})
}

func TestStatefulSetWithClaimsThatGrow(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	ns := c.Namespace(t)
	client := newClient(t, c)
	replicas := int32(2)
	_, err := client.AppsV1().StatefulSets(ns).Create(t.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "test"},
		Spec: appsv1.StatefulSetSpec{
			Replicas:    &replicas,
			ServiceName: "test",
			Selector:    &metav1.LabelSelector{MatchLabels: map[string]string{"app": "test"}},
			Template:    template(nil),
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
					},
				},
			}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	eventually(t, "both pods are ready", func(ctx context.Context) (bool, error) {
		s, err := client.AppsV1().StatefulSets(ns).Get(ctx, "test", metav1.GetOptions{})
		return err == nil && s.Status.ReadyReplicas == 2, err
	})

	claims := client.CoreV1().PersistentVolumeClaims(ns)
	claim, err := claims.Patch(t.Context(), "data-test-0", "application/merge-patch+json",
		[]byte(`{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	want := resource.MustParse("2Gi")
	eventually(t, "the claim and its volume have grown", func(ctx context.Context) (bool, error) {
		got, err := claims.Get(ctx, "data-test-0", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		volume, err := client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		return err == nil && got.Status.Capacity.Storage().Equal(want) && volume.Spec.Capacity.Storage().Equal(want), err
	})
}

func TestNamespaceGoesWithWhatIsInIt(t *testing.T) {
	t.Parallel()
	c := kubetest.Start(t)
	client := newClient(t, c)
	ns := c.Namespace(t)
	_, err := client.AppsV1().Deployments(ns).Create(t.Context(), deployment(1, nil), metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, client.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}))
	eventually(t, "the namespace is gone", func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func TestOwnControlPlaneHasNoNodes(t *testing.T) {
	t.Parallel()
	c := kubetest.StartOwn(t, kubetest.Options{ControlPlaneOnly: true})
	nodes, err := newClient(t, c).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, nodes.Items)
	require.Contains(t, c.Kubeconfig(), "certificate-authority-data")
}
