// Package reconciler is the framework of component reconcilers: services that bring one component of one cluster to one
// version. A component is a Go value, see Component; New takes them and returns a Reconciler that serves
// api/reconcilerv1 and runs what it accepts.
//
// One accepted task goes like this. Its first callback is the permit: nothing is touched before that was accepted. Then
// pre-action, action and post-action run, with heartbeats beside them; a try that fails is repeated after a delay; the
// result is sent until it is accepted or refused. A task ends early, without touching the cluster any more, if a
// callback is refused, if its lease is over, or if a newer task for the same cluster and component arrives.
//
// What is not done here: charts are read and rendered in package chart, objects are applied, waited for and deleted in
// package apply, connections to clusters are in pkg/kube. What one component needs beyond its chart is the component's.
package reconciler
