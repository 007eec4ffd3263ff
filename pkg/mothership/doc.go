// Package mothership is the words and the rules of the control plane: statuses, states, the transition table, what each
// event does to a cluster, its open run and that run's operations, the plan of a run, backoff and budgets.
//
// The rules are pure functions over an Aggregate: time and jitter are arguments. The store loads an aggregate under its
// cluster's lock, calls one function, and writes the difference.
//
// Not done here: no I/O, no clock, no goroutine, no logging, no wire format.
package mothership
