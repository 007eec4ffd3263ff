package daemon

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Repeats logs identical messages once per period, with a count of what was left out. It may be used from several goroutines.
type Repeats struct {
	log    *zap.Logger
	period time.Duration
	max    int

	mu   sync.Mutex
	seen map[string]*repeat
}

type repeat struct {
	since time.Time
	count int
}

// NewRepeats returns one that writes to log, each key once per period (an hour if zero).
func NewRepeats(log *zap.Logger, period time.Duration) *Repeats {
	return &Repeats{log: log, period: or(period, time.Hour), max: 1024, seen: map[string]*repeat{}}
}

// Log writes the message unless one with this key was written within the period; the next one says how many were left out.
func (r *Repeats) Log(level zapcore.Level, key, message string, fields ...zap.Field) {
	if left, ok := r.due(key); ok {
		if left > 0 {
			fields = append(fields, zap.Int("repeated", left))
		}
		r.log.Log(level, message, fields...)
	}
}

// Forget makes the next message with this key be written again, because what it was about has healed.
func (r *Repeats) Forget(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, key)
}

func (r *Repeats) due(key string) (left int, ok bool) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.seen[key]; last != nil {
		if now.Sub(last.since) < r.period {
			last.count++
			return 0, false
		}
		left = last.count
	}
	if len(r.seen) >= r.max {
		for other, last := range r.seen {
			if now.Sub(last.since) >= r.period {
				delete(r.seen, other)
			}
		}
		if len(r.seen) >= r.max {
			clear(r.seen)
		}
	}
	r.seen[key] = &repeat{since: now}
	return left, true
}
