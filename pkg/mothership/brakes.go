package mothership

import (
	"fmt"
	"strings"
	"time"
)

// BrakeScope is what a brake stops.
type BrakeScope string

// The scopes of brakes.
const (
	BrakeFleet     BrakeScope = "fleet"
	BrakeComponent BrakeScope = "component"
	BrakeVersion   BrakeScope = "version"
)

// Brake pauses all hand-overs of the fleet, of a component or of a version, until an operator releases it.
type Brake struct {
	Scope  BrakeScope
	Name   string // of the component or version; empty for the fleet
	Reason string
	Since  time.Time
}

// ID returns the brake's name on the wire: fleet, component:NAME or version:VERSION.
func (b Brake) ID() string {
	if b.Scope == BrakeFleet {
		return string(b.Scope)
	}
	return string(b.Scope) + ":" + b.Name
}

// ParseBrake returns the brake of that ID, without reason and time, or ErrInvalid.
func ParseBrake(id string) (Brake, error) {
	scope, name, named := strings.Cut(id, ":")
	b := Brake{Scope: BrakeScope(scope), Name: name}
	switch b.Scope {
	case BrakeFleet:
		if !named {
			return b, nil
		}
	case BrakeComponent, BrakeVersion:
		if name != "" {
			return b, nil
		}
	}
	return Brake{}, fmt.Errorf("%w: brake %q: want fleet, component:NAME or version:VERSION", ErrInvalid, id)
}

// Brakes are all that are pulled.
type Brakes []Brake

// Fleet returns the brake of the whole fleet, nil without one.
func (bs Brakes) Fleet() *Brake { return bs.find(BrakeFleet, "") }

// Holding returns a brake that keeps a component in a version from being handed over, nil without one.
func (bs Brakes) Holding(component, version string) *Brake {
	for _, b := range []*Brake{bs.Fleet(), bs.find(BrakeComponent, component), bs.find(BrakeVersion, version)} {
		if b != nil {
			return b
		}
	}
	return nil
}

func (bs Brakes) find(scope BrakeScope, name string) *Brake {
	for i := range bs {
		if bs[i].Scope == scope && bs[i].Name == name {
			return &bs[i]
		}
	}
	return nil
}
