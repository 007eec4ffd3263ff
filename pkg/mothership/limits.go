package mothership

import "time"

// Limits are the durations and counts of the rules.
type Limits struct {
	ReconcileInterval     time.Duration // a ready cluster is due again after it, +-10 %
	Heartbeat             time.Duration // what component reconcilers are asked to beat at
	Lease                 time.Duration // until a component reconciler declared its heartbeat
	OperationDeadline     time.Duration // after the first accepted attempt
	FullAfter             time.Duration // an operation that nobody accepted for so long ends in error
	InputBudget           time.Duration // an input that was never ready fails for good after it
	BusyDelay             time.Duration // gate of a component reconciler that is full and says no Retry-After
	MaxTries              int
	MaxReconcileRetries   int
	MaxDeleteRetries      int
	MaxParallelPerCluster int
	Backoff               Backoff // between runs that failed
	TryBackoff            Backoff // between attempts of an operation that weren't delivered
}

// Backoff doubles from Base to Max.
type Backoff struct {
	Base time.Duration
	Max  time.Duration
}

// DefaultLimits returns the defaults of all limits.
func DefaultLimits() Limits {
	return Limits{
		ReconcileInterval:     5 * time.Minute,
		Heartbeat:             10 * time.Second,
		Lease:                 90 * time.Second,
		OperationDeadline:     30 * time.Minute,
		FullAfter:             time.Hour,
		InputBudget:           100 * time.Minute,
		BusyDelay:             5 * time.Second,
		MaxTries:              10,
		MaxReconcileRetries:   150,
		MaxDeleteRetries:      15,
		MaxParallelPerCluster: 10,
		Backoff:               Backoff{Base: 30 * time.Second, Max: 5 * time.Minute},
		TryBackoff:            Backoff{Base: time.Second, Max: time.Minute},
	}
}

// After returns the delay after the n-th failure (1 is the first). Jitter, in [0,1), spreads it over 90 to 110 percent.
func (b Backoff) After(n int, jitter float64) time.Duration {
	d := b.Base
	for i := 1; i < n && d < b.Max; i++ {
		d *= 2
	}
	return spread(min(d, b.Max), jitter)
}

// spread moves d by up to ten percent to either side.
func spread(d time.Duration, jitter float64) time.Duration {
	return d + time.Duration(float64(d)*(jitter-0.5)/5)
}
