package mothership

import "errors"

// The meanings an error can have for a caller. They are wrapped with %w; the text of what wraps them is fit for a client.
var (
	// ErrNotFound says that a cluster, version, run or operation does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that a request does not fit the state of what it names.
	ErrConflict = errors.New("conflict")
	// ErrStale says that a callback belongs to a past attempt, to another runner, or contradicts a final state.
	ErrStale = errors.New("stale")
	// ErrUnauthorized says that a callback's token is missing or wrong.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrInvalid says that a request can't be understood.
	ErrInvalid = errors.New("invalid")
)
