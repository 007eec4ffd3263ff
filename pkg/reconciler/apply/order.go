package apply

import "github.com/kyma-incubator/reconciler/pkg/kube"

// The order groups. Objects of one group are sent side by side, a group after the one before. Within groups 2 to 7 the
// kinds are Helm's, in Helm's order; kinds that Helm's order tells apart but that can't depend on each other share a
// group.
const (
	orderNamespaces = iota
	orderCRDs
	orderPolicies // what pods are admitted by, and the accounts that token Secrets refer to
	orderConfig
	orderRoles
	orderBindings
	orderWorkloads
	orderCustom
	orderLast // APIServices and webhook configurations
	orderGroups
)

func orderOf(k key) int {
	switch k.kind {
	case kindNamespace:
		if k.group == "" {
			return orderNamespaces
		}
	case kindCRD:
		return orderCRDs
	case "APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding":
		return orderLast
	}
	if !kube.Builtin(k.group) {
		return orderCustom
	}
	switch k.kind {
	case "PriorityClass", "NetworkPolicy", "ResourceQuota", "LimitRange", "PodSecurityPolicy", "PodDisruptionBudget",
		"ServiceAccount":
		return orderPolicies
	case kindSecret, "ConfigMap", "StorageClass", kindPV, kindPVC:
		return orderConfig
	case "ClusterRole", "Role":
		return orderRoles
	case "ClusterRoleBinding", "RoleBinding", "Service":
		return orderBindings
	case "DaemonSet", kindPod, "ReplicationController", "ReplicaSet", "Deployment", "HorizontalPodAutoscaler",
		"StatefulSet", kindJob, "CronJob", "IngressClass", "Ingress":
		return orderWorkloads
	default:
		return orderCustom
	}
}

// deleteOrder is the reverse, but for webhook configurations and APIServices, which go first (they are last in orderOf),
// since a dead one blocks every namespace, and for CRDs and namespaces, which go last anyway.
func deleteOrder(k key) int { return orderGroups - 1 - orderOf(k) }
