package mothership

import "time"

// Runtime is the broker's name for a cluster.
type Runtime struct {
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Metadata is what the broker tells about a cluster's owner and plan.
type Metadata struct {
	GlobalAccountID string `json:"globalAccountID"`
	SubAccountID    string `json:"subAccountID"`
	ServiceID       string `json:"serviceID"`
	ServicePlanID   string `json:"servicePlanID"`
	ServicePlanName string `json:"servicePlanName"`
	ShootName       string `json:"shootName"`
	InstanceID      string `json:"instanceID"`
	Region          string `json:"region"`
}

// Entry is one configuration entry of a component. Value is decoded JSON with numbers kept as json.Number.
type Entry struct {
	Key    string
	Value  any
	Secret bool
}

// Component is one component of a cluster's list.
type Component struct {
	Name          string
	URL           string
	Namespace     string
	Version       string
	Configuration []Entry
	ConfigVersion int64 // the config version that holds Configuration, where a component is named without it
}

// KymaConfig is what the broker wants to be in a cluster.
type KymaConfig struct {
	Version        string
	Profile        string
	Administrators []string
	Components     []Component
}

// Input is the body of a broker's POST or PUT, already validated and defaulted.
type Input struct {
	RuntimeID  string
	Runtime    Runtime
	Metadata   Metadata
	Kubeconfig Secret
	Kyma       KymaConfig
}

// Failure says why one component keeps its cluster from being ready.
type Failure struct {
	Component string
	Reason    string
}

// ClusterView is a cluster, or one of its config versions, with its real status.
type ClusterView struct {
	RuntimeID      string
	ClusterVersion int64
	ConfigVersion  int64
	Status         Status
	Failures       []Failure
}

// StatusRequest is an operator's wish: ready, reconcile_pending, or reconcile_disabled (until a time, or without an end).
type StatusRequest struct {
	Status Status
	Until  *time.Time
}

// StatusChange is one entry of a cluster's history; the duration of the newest one reaches to now.
type StatusChange struct {
	Started  time.Time
	Duration time.Duration
	Status   Status
}

// ClusterSnapshot is one cluster version.
type ClusterSnapshot struct {
	Version   int64
	RuntimeID string
	Runtime   Runtime
	Metadata  Metadata
	Created   time.Time
}

// ConfigSnapshot is one config version.
type ConfigSnapshot struct {
	Version        int64
	ClusterVersion int64
	RuntimeID      string
	Kyma           KymaConfig
	Deleted        bool
	Created        time.Time
}

// StatusSnapshot is one row of a cluster's history.
type StatusSnapshot struct {
	ID             int64
	RuntimeID      string
	ClusterVersion int64
	ConfigVersion  int64
	Status         Status
	Deleted        bool
	Created        time.Time
}

// StateView is a cluster, one config version of it, and the status that belongs to them.
type StateView struct {
	Cluster       ClusterSnapshot
	Configuration ConfigSnapshot
	Status        StatusSnapshot
}

// StateFilter names a state by exactly one of its fields.
type StateFilter struct {
	RuntimeID     string
	SchedulingID  string
	CorrelationID string
}

// ClusterMetric is a cluster as the metrics show it.
type ClusterMetric struct {
	RuntimeID       string
	RuntimeName     string
	GlobalAccountID string
	PlanName        string
	Status          Status
}

// Topic names what a loop waits for.
type Topic string

// The topics of wake-ups.
const (
	TopicDue       Topic = "due"       // a cluster may be due
	TopicClaimable Topic = "claimable" // an operation may be claimable
)
