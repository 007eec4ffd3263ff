package store

import (
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/kyma-incubator/reconciler/pkg/mothership"
)

// line is a log line about a change that a transaction makes; it is written after the commit.
type line struct {
	level   zapcore.Level
	repeats string // identical ones are written once an hour; empty: always
	message string
	fields  []zap.Field
}

func (s *Store) tell(lines []line) {
	for _, l := range lines {
		if l.repeats == "" {
			s.cfg.Log.Log(l.level, l.message, l.fields...)
		} else {
			s.repeats.Log(l.level, l.repeats, l.message, l.fields...)
		}
	}
}

// journal notes what is worth a log line in the changes of an aggregate: what is wanted of its cluster, its run's beginning and
// end, and operations that ended or were lost. Nothing of a configuration is in it; reasons are what clients see, too.
func (t *tx) journal(l *locked) {
	if message := l.news(); message != "" {
		c := &l.Cluster
		fields := []zap.Field{zap.String("runtime-id", c.RuntimeID), zap.Int64("config-version", c.ConfigVersion), zap.String("status", string(c.Status))}
		if !c.DisabledUntil.IsZero() {
			fields = append(fields, zap.Time("until", c.DisabledUntil))
		}
		t.lines = append(t.lines, line{level: zapcore.InfoLevel, message: message, fields: fields})
	}
	for _, op := range l.Operations {
		t.journalOperation(l, op)
	}
	if l.created {
		t.lines = append(t.lines, line{level: zapcore.InfoLevel, message: "run created", fields: append(ofRun(l.Run), zap.Bool("delete", l.Run.Delete))})
	}
	if l.Run != nil && l.Run.Finished {
		t.lines = append(t.lines, line{level: zapcore.InfoLevel, message: "run ended", fields: l.runEnded()})
	}
}

// news says what has become of the cluster; empty if nothing, or if the lines about its run say it.
func (l *locked) news() string {
	c, was := &l.Cluster, &l.cluster
	switch {
	case c.ConfigVersion != was.ConfigVersion && (was.Status == "" || was.Status == mothership.StatusDeleted):
		return "cluster registered"
	case c.ConfigVersion != was.ConfigVersion:
		return "cluster changed"
	case c.Status == mothership.StatusDeletePending && was.Status != c.Status:
		return "cluster is to be deleted"
	case c.Disabled && (!was.Disabled || !c.DisabledUntil.Equal(was.DisabledUntil)):
		return "cluster disabled"
	case was.Disabled && !c.Disabled:
		return "cluster enabled"
	case c.Status == was.Status, l.created, l.Run != nil && l.Run.Finished:
		return ""
	}
	return "cluster's status changed"
}

func ofRun(r *mothership.Run) []zap.Field {
	return []zap.Field{zap.String("runtime-id", r.RuntimeID), zap.String("scheduling-id", r.SchedulingID), zap.Int64("config-version", r.ConfigVersion)}
}

func (l *locked) runEnded() []zap.Field {
	var failed []string
	for _, op := range l.Operations {
		if op.State == mothership.StateError {
			failed = append(failed, op.Component)
		}
	}
	slices.Sort(failed)
	duration := time.Duration(0)
	if !l.begun.IsZero() {
		duration = l.now.Sub(l.begun)
	}
	fields := append(ofRun(l.Run), zap.String("status", string(l.Run.Status)), zap.Duration("duration", duration))
	if len(failed) > 0 {
		fields = append(fields, zap.Strings("failed", failed))
	}
	if l.Run.Superseded {
		fields = append(fields, zap.Bool("superseded", true))
	}
	if l.Run.Reason != "" {
		fields = append(fields, zap.String("reason", l.Run.Reason))
	}
	return fields
}

func (t *tx) journalOperation(l *locked, op *mothership.Operation) {
	if op.Changed == 0 {
		return
	}
	was, full := l.full[op.CorrelationID]
	x := line{level: zapcore.WarnLevel}
	switch {
	case op.State == mothership.StateError:
		x.message, x.repeats = "operation failed", "failed/"+op.RuntimeID+"/"+op.Component+"/"+op.Reason
	case op.State == mothership.StateOrphan && full && was.state != op.State:
		x.message = "attempt lost"
	case op.State.Final() && t.s.cfg.Log.Core().Enabled(zapcore.DebugLevel):
		x.level, x.message = zapcore.DebugLevel, "operation ended"
	default:
		return
	}
	x.fields = []zap.Field{
		zap.String("runtime-id", op.RuntimeID), zap.String("scheduling-id", op.SchedulingID), zap.String("correlation-id", op.CorrelationID),
		zap.String("component", op.Component), zap.Int("attempt", op.Attempt), zap.String("state", string(op.State)),
	}
	if op.Reason != "" {
		x.fields = append(x.fields, zap.String("reason", t.s.clean(op.Reason)))
	}
	t.lines = append(t.lines, x)
}
