// Package reconcilerv1 is the wire contract of component reconcilers: types, client and server, generated from openapi.yaml.
// The callback message is part of it too, so that a component reconciler needs no other contract.
package reconcilerv1

//go:generate oapi-codegen -config codegen.yaml openapi.yaml
