package apply

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// Verdict is how an object is: StatePending, StateReady or StateFailed, and why.
type Verdict struct {
	State   string
	Message string
	// Since is when a failure was noted by its controller, as it wrote it.
	Since string
}

// Judge says how an object is, from the object alone.
func Judge(obj *unstructured.Unstructured) Verdict { return Verdict{State: StatePending} }
