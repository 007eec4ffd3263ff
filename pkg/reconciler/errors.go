package reconciler

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
)

// What Accept refuses a task with.
var (
	// ErrBadTask is in the chain of the error for a task that can't be run; the text names what is wrong with it.
	ErrBadTask = errors.New("bad task")
	// ErrOldFence means that this reconciler knows of a newer task for the same cluster and component.
	ErrOldFence = errors.New("a newer task for this cluster and component is known")
	// ErrBusy means that all workers are taken.
	ErrBusy = errors.New("no free worker")
	// ErrStopping means that this reconciler takes no tasks at the moment: it is stopping or not running yet.
	ErrStopping = errors.New("not taking tasks: stopping")
	// ErrNoAnswer means that a component doesn't say in time whether it serves a version, or what it depends on.
	ErrNoAnswer = errors.New("no answer to a question")
)

// Why a task ended before its work was done.
var (
	// ErrRefused is in the chain of a CallbackSender's error if the receiver doesn't want to hear of this attempt any more.
	ErrRefused    = errors.New("callback refused")
	errLeaseOver  = errors.New("the lease is over: no callback was accepted for too long")
	errNoPermit   = errors.New("the first callback was not accepted yet")
	errSuperseded = errors.New("a newer task for this cluster and component arrived")
	errUnwanted   = errors.New("stopped: the work is no longer wanted")
	errStopped    = errors.New("this reconciler is stopping")
	errNotTaken   = errors.New("the task was not taken")
)

// MissingDependenciesError is the refusal of a task whose component depends on others that aren't ready.
type MissingDependenciesError struct {
	Component         string
	Required, Missing []string
}

func (e *MissingDependenciesError) Error() string {
	return fmt.Sprintf("component %q needs others to be ready first: %s", e.Component, strings.Join(e.Missing, ", "))
}

// Permanent marks an error as one that trying again doesn't heal; it ends the task. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err: err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string   { return e.err.Error() }
func (e *permanentError) Unwrap() error   { return e.err }
func (e *permanentError) Permanent() bool { return true }

// PanicError is a panic of an action.
type PanicError struct {
	Value string
	Stack string
}

func (e *PanicError) Error() string { return "panic: " + e.Value }

// Permanent says that a panic isn't tried again.
func (*PanicError) Permanent() bool { return true }

// isPermanent says whether an error can't heal: it says so itself, by a method of that name, or it is a name that
// nobody knows or a certificate for another name.
func isPermanent(err error) bool {
	var says interface{ Permanent() bool }
	if errors.As(err, &says) && says.Permanent() {
		return true
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return true
	}
	var host x509.HostnameError
	return errors.As(err, &host)
}
