package reconciler

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/kyma-incubator/reconciler/api/reconcilerv1"
)

// Config of a Reconciler. Zero values mean the defaults.
type Config struct {
	// Name labels the occupancy metric; the first component's name.
	Name string
	// Components are what is served. At least one.
	Components []Component
	// Workspace is the directory with the versions' charts and CRDs. Only components that render nothing do without.
	Workspace string
	// Workers is how many tasks run at once (50); one more is refused.
	Workers int
	// MaxRetries is how often a task is tried if the task doesn't say (5).
	MaxRetries int
	// RetryDelay is the pause after the first failed try (30 s); it doubles up to MaxRetryDelay (5 min).
	RetryDelay, MaxRetryDelay time.Duration
	// TryTimeout bounds one try (10 min).
	TryTimeout time.Duration
	// Grace is how long Run goes on after its context ended (25 s): work that can be cut off anywhere is at once, the rest
	// after three fifths of it; what remains is for the last callbacks.
	Grace time.Duration
	// Heartbeat is how often a callback is sent if the task doesn't say (10 s), and never less often than thrice a lease.
	Heartbeat time.Duration
	// Lease is how long an accepted callback permits to work if the task doesn't say (90 s).
	Lease time.Duration
	// Urgent is how often a callback is sent while the permit is missing, two thirds of the lease are gone, or the result
	// is not accepted (1 s; the last one doubles).
	Urgent time.Duration
	// CallbackTimeout bounds one callback (5 s), as does a third of the lease.
	CallbackTimeout time.Duration
	// FinalTimeout is how long the result is sent again (1 h).
	FinalTimeout time.Duration
	// AnswerTimeout is how long Versions and Dependencies of a component may take to answer (1 s).
	AnswerTimeout time.Duration
	// AllowLoopback permits clusters on loopback addresses, for tests and laptops.
	AllowLoopback bool
	// LogDir keeps the log lines of each operation for a while; empty: they aren't kept.
	LogDir string
	// LogMaxBytes bounds each operation's file (1 MiB), LogTotalBytes all of them (256 MiB), LogMaxAge their age (24 h).
	LogMaxBytes, LogTotalBytes int64
	LogMaxAge                  time.Duration
	// Callbacks sends the callbacks; by default they are posted to the task's URL.
	Callbacks CallbackSender
	// Progress, if set, is told of each object when something happened to it, by the goroutine of that task.
	Progress func(correlationID string, resource reconcilerv1.Resource)
	// Log takes the log lines (none).
	Log *zap.Logger
	// Registry takes the metrics and is what /metrics serves (a new one).
	Registry *prometheus.Registry
}

func (c Config) withDefaults() Config {
	if c.Name == "" && len(c.Components) > 0 {
		c.Name = c.Components[0].Name
	}
	set(&c.Workers, 50)
	set(&c.MaxRetries, 5)
	set(&c.RetryDelay, 30*time.Second)
	set(&c.MaxRetryDelay, 5*time.Minute)
	set(&c.TryTimeout, 10*time.Minute)
	set(&c.Grace, 25*time.Second)
	set(&c.Heartbeat, 10*time.Second)
	set(&c.Lease, 90*time.Second)
	set(&c.Urgent, time.Second)
	set(&c.CallbackTimeout, 5*time.Second)
	set(&c.FinalTimeout, time.Hour)
	set(&c.AnswerTimeout, time.Second)
	set(&c.LogMaxBytes, 1<<20)
	set(&c.LogTotalBytes, 256<<20)
	set(&c.LogMaxAge, 24*time.Hour)
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	return c
}

func (c Config) validate() error {
	for name, value := range map[string]time.Duration{
		"RetryDelay": c.RetryDelay, "MaxRetryDelay": c.MaxRetryDelay, "TryTimeout": c.TryTimeout, "Grace": c.Grace,
		"Heartbeat": c.Heartbeat, "Lease": c.Lease, "Urgent": c.Urgent, "CallbackTimeout": c.CallbackTimeout,
		"FinalTimeout": c.FinalTimeout, "LogMaxAge": c.LogMaxAge, "AnswerTimeout": c.AnswerTimeout,
	} {
		if value < 0 {
			return errors.New(name + " is negative")
		}
	}
	if c.Workers < 0 || c.MaxRetries < 0 {
		return errors.New("number of Workers or MaxRetries is negative")
	}
	return components(c.Components).validate()
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (c Config) leaseOf(task reconcilerv1.Task) time.Duration {
	if task.LeaseSeconds > 0 {
		return seconds(task.LeaseSeconds)
	}
	return c.Lease
}

func (c Config) heartbeatOf(task reconcilerv1.Task) time.Duration {
	heartbeat := c.Heartbeat
	if task.HeartbeatSeconds > 0 {
		heartbeat = seconds(task.HeartbeatSeconds)
	}
	return max(min(heartbeat, c.leaseOf(task)/3), time.Millisecond)
}
