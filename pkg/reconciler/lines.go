package reconciler

import (
	"strings"
	"sync"
	"unicode/utf8"

	"go.uber.org/zap/zapcore"
)

const (
	maxLines     = 50
	maxLine      = 1000
	maxError     = 8000
	maxWarnings  = 50
	maxResources = 200
)

// lastLines keeps the last log lines of a task.
type lastLines struct {
	mu    sync.Mutex
	lines []string
}

func (l *lastLines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == maxLines {
		copy(l.lines, l.lines[1:])
		l.lines = l.lines[:maxLines-1]
	}
	l.lines = append(l.lines, cut(strings.TrimRight(line, "\n"), maxLine))
}

func (l *lastLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// Write implements zapcore.WriteSyncer: one call is one line.
func (l *lastLines) Write(p []byte) (int, error) {
	l.add(string(p))
	return len(p), nil
}

// Sync implements zapcore.WriteSyncer.
func (*lastLines) Sync() error { return nil }

// cut returns at most limit bytes of s, and whole characters only.
func cut(s string, limit int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "�")
	if len(s) <= limit {
		return s
	}
	s = s[:limit-len("…")]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s + "…"
}

// scrubCore replaces the secrets of a task in what is logged, wherever it goes after that.
type scrubCore struct {
	zapcore.Core
	scrub *scrubber
}

func (c *scrubCore) With(fields []zapcore.Field) zapcore.Core {
	return &scrubCore{Core: c.Core.With(c.fields(fields)), scrub: c.scrub}
}

func (c *scrubCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

func (c *scrubCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	entry.Message = c.scrub.text(entry.Message)
	if checked := c.Core.Check(entry, nil); checked != nil { // each of those behind it has its own level
		checked.Write(c.fields(fields)...)
	}
	return nil
}

func (c *scrubCore) fields(fields []zapcore.Field) []zapcore.Field {
	out := make([]zapcore.Field, 0, len(fields))
	for _, f := range fields {
		switch f.Type { //nolint:exhaustive // the others hold no text, or are not flattened
		case zapcore.StringType:
			f.String = c.scrub.text(f.String)
		case zapcore.ErrorType:
			if err, ok := f.Interface.(error); ok {
				f = zapcore.Field{Key: f.Key, Type: zapcore.StringType, String: c.scrub.text(err.Error())}
			}
		case zapcore.StringerType:
			if s, ok := f.Interface.(interface{ String() string }); ok {
				f = zapcore.Field{Key: f.Key, Type: zapcore.StringType, String: c.scrub.text(s.String())}
			}
		}
		out = append(out, f)
	}
	return out
}
