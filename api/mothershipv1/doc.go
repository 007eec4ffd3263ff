// Package mothershipv1 is the wire contract of the mothership: types, client and server, generated from openapi.yaml.
// What component reconcilers send is defined in package reconcilerv1 and only referred to here.
package mothershipv1

//go:generate oapi-codegen -config codegen.yaml openapi.yaml
